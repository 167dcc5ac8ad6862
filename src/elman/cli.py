"""The command ``elman``: the demo, and the diagnosis of saved weights."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ._version import __version__
from .diagnostics import Diagnosis, Verification, diagnose
from .errors import ArgumentError, ElmanError
from .files import check_target, listed, replacing, shown
from .interop.arrays_file import read_npy
from .interop.metadata import StatedWeights
from .interop.weights_file import MOST, model_in_file, read_weights
from .layers import RNN, Network
from .plotting.picture import check_picture, save_picture

MOST_NOISE = 2**27
"""Most numbers of made-up input: one gigabyte."""
MOST_WORDS = 4000
"""Most characters of an error that are printed: a file can hold any number of names of any length."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments; by default those of the process.

    Returns
    -------
    int
        0 on success, 1 on an error in the input (reported on standard error), 130 after Ctrl-C.
    """
    arguments = _parser().parse_args(argv)
    try:
        arguments.run(arguments)
    except (ElmanError, OSError) as error:
        print(f"elman: {shown(error, MOST_WORDS)}", file=sys.stderr)
        return 1
    except (MemoryError, RecursionError) as error:
        print(f"elman: the work is too large for this machine: {shown(error) or 'no memory'}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("elman: interrupted", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="elman", description="Recurrent networks for science on a CPU.")
    parser.add_argument("--version", action="version", version=f"elman {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    demo = commands.add_parser("demo", help="train on sunspots, predict and verify the gradient, save a picture")
    demo.add_argument("--output", default="elman-demo.png", metavar="PNG", help="the picture (default: %(default)s)")
    demo.add_argument("--seed", type=_at_least(0), default=0, help="seed of weights and batches (default: %(default)s)")
    demo.add_argument("--quiet", action="store_true", help="no progress bar")
    demo.set_defaults(run=_demo)

    check = commands.add_parser("diagnose", help="say whether gradients of saved weights vanish or explode, and why")
    check.add_argument(
        "weights",
        metavar="WEIGHTS",
        help="arrays under PyTorch's names, such as weight_hh_l0: .npz, .safetensors, or a file of torch.save",
    )
    check.add_argument("--prefix", default="", help="where the layer is in a model, such as encoder.rnn.")
    check.add_argument("--key", help="the entry of a checkpoint that holds the weights, such as state_dict")
    check.add_argument("--input", metavar="X.npy", help="sequences (T, n, D) that drive it; else normal noise")
    check.add_argument("--batch-first", action="store_true", help="X is (n, T, D)")
    check.add_argument(
        "--nonlinearity", choices=RNN.NONLINEARITIES, help="of an Elman network, if the file does not state it (tanh)"
    )
    check.add_argument(
        "--reset-after", choices=("yes", "no"), help="whether a GRU resets after the product, if the file does not "
        "state it (yes)",
    )  # fmt: skip
    check.add_argument(
        "--zoneout", type=float, nargs="+", metavar="P", help="zoneout, one number or one per state, if the file does "
        "not state it (0)",
    )  # fmt: skip
    check.add_argument("--steps", type=_at_least(1), default=100, help="length T of the noise (default: %(default)s)")
    check.add_argument("--json", metavar="FILE", help="write the diagnosis there as well")
    check.add_argument("--plot", metavar="PNG", help="save the curve there as well")
    check.add_argument("--seed", type=_at_least(0), default=0, help="seed of starts and noise (default: %(default)s)")
    check.set_defaults(run=_diagnose)
    return parser


def _at_least(least: int) -> Callable[[str], int]:
    """An argument type for argparse: an integer with a lower bound."""

    def integer(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, got {value}")
        return value

    return integer


def _demo(arguments: argparse.Namespace) -> None:
    from .demo import run

    run(arguments.output, progress=not arguments.quiet, rng=arguments.seed)


def _diagnose(arguments: argparse.Namespace) -> None:
    if arguments.json is not None:
        check_target(arguments.json)
    if arguments.plot is not None:
        check_picture(arguments.plot)
    weights = read_weights(arguments.weights, arguments.key)
    model, assumed, unused = model_in_file(weights, arguments.prefix, _options(arguments))
    _tell_source(weights, assumed, unused)
    layer = model.layer if isinstance(model, Network) else model
    if arguments.input is None:
        shape = (64, arguments.steps) if arguments.batch_first else (arguments.steps, 64)
        if arguments.steps > (most := MOST_NOISE // (64 * max(1, layer.input_size))):
            raise ArgumentError(
                f"--steps must be at most {most}, for 64 sequences of {layer.input_size} inputs; got {arguments.steps}"
            )
        x = np.random.default_rng(arguments.seed).standard_normal((*shape, layer.input_size))
        print(
            f"ASSUMED input: independent normal noise of standard deviation 1, {arguments.steps} steps. The rate "
            "depends on the input: give the real one with --input X.npy.\n"
        )
    else:
        x = read_npy(arguments.input)
    diagnosis = diagnose(model, x, rng=arguments.seed)
    verification = diagnosis.verify() if x.ndim == 3 and x.shape[layer.batch_axis] >= 4 else None
    print(diagnosis)
    print(verification or "Not verified: that takes at least 4 sequences.")
    if arguments.json is not None:
        _write_json(arguments.json, diagnosis, verification)
        print(f"json: {shown(arguments.json)}")
    if arguments.plot is not None:
        _write_plot(arguments.plot, diagnosis, verification)
        print(f"picture: {shown(arguments.plot)}")


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Options of the layer from the command line; those that were not given are left out."""
    options: dict[str, Any] = {"batch_first": arguments.batch_first}
    if arguments.nonlinearity is not None:
        options["nonlinearity"] = arguments.nonlinearity
    if arguments.reset_after is not None:
        options["reset_after"] = arguments.reset_after == "yes"
    if arguments.zoneout is not None:
        options["zoneout"] = arguments.zoneout[0] if len(arguments.zoneout) == 1 else tuple(arguments.zoneout)
    return options


def _tell_source(weights: StatedWeights, assumed: dict[str, Any], unused: list[str]) -> None:
    """Print what the file states, what was assumed where it states nothing, and what was not used."""
    if weights.stated:
        # the file does not preserve their order
        parts = [shown(f"{part} {kind}".strip()) for part, kind in sorted(weights.stated.items())]
        print(f"STATED by the file: {', '.join(parts)}")
    if assumed:
        flags = ", ".join("--" + name.replace("_", "-") for name in assumed)
        print(
            f"ASSUMED, since the file does not state it: {_words(assumed)}. Where it is otherwise, say so by {flags}."
        )
    if unused:
        print(f"NOT USED: {listed(unused, MOST)}")


def _words(options: dict[str, Any]) -> str:
    """Options with their values."""
    return ", ".join(f"{name} = {value}" for name, value in options.items())


def _write_json(path: str, diagnosis: Diagnosis, verification: Verification | None) -> None:
    """Write both results; numbers that JSON lacks become strings that ``float`` can read."""
    content = {"diagnosis": diagnosis.to_dict(), "verification": verification and verification.to_dict()}
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(_finite(content), indent=1, allow_nan=False) + "\n", encoding="utf-8")


def _finite(value: Any) -> Any:
    """The same structure with inf and nan as strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    return [_finite(v) for v in value] if isinstance(value, list | tuple) else value


def _write_plot(path: str, diagnosis: Diagnosis, verification: Verification | None) -> None:
    """Save the curve, with the measurement if there is one."""
    axes = diagnosis.plot()
    if verification is not None:
        verification.plot(ax=axes)
    save_picture(axes.figure, path, dpi=130)
