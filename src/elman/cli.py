"""The command ``elman``: the demo, and the diagnosis of saved weights."""

from __future__ import annotations

import argparse
import json
import math
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._version import __version__
from .diagnostics import Diagnosis, Verification, diagnose
from .errors import ElmanError, StateDictError
from .files import check_folder, replacing
from .interop import from_torch, load_pt, load_safetensors
from .layers import RNN, Network, Readout
from .layers.recurrent import Recurrent

Array = NDArray[Any]
UNREADABLE = (ValueError, EOFError, zipfile.BadZipFile)
"""What NumPy raises for a file of another kind, an empty one, and a cut one."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments; those of the process by default.

    Returns
    -------
    int
        0 on success, 1 on an error of the input (told on standard error), 130 after Ctrl-C.
    """
    arguments = _parser().parse_args(argv)
    try:
        arguments.run(arguments)
    except (ElmanError, OSError) as error:
        print(f"elman: {error}", file=sys.stderr)
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
        help="arrays under PyTorch's names, such as weight_hh_l0: .npz, .safetensors or .pt",
    )
    check.add_argument("--input", metavar="X.npy", help="sequences (T, n, D) that drive it; else normal noise")
    check.add_argument("--batch-first", action="store_true", help="X is (n, T, D)")
    check.add_argument(
        "--nonlinearity", default="tanh", choices=RNN.NONLINEARITIES, help="of an Elman network (default: %(default)s)"
    )
    check.add_argument("--steps", type=_at_least(1), default=100, help="length T of the noise (default: %(default)s)")
    check.add_argument("--json", metavar="FILE", help="write the diagnosis there as well")
    check.add_argument("--plot", metavar="PNG", help="save the curve there as well")
    check.add_argument("--seed", type=_at_least(0), default=0, help="seed of starts and noise (default: %(default)s)")
    check.set_defaults(run=_diagnose)
    return parser


def _at_least(least: int) -> Callable[[str], int]:
    """A type of argument for argparse: an integer with a lower bound."""

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
    for path in filter(None, (arguments.json, arguments.plot)):
        check_folder(path)
    model = model_from_weights(read_weights(arguments.weights), arguments.nonlinearity, arguments.batch_first)
    layer = model.layer if isinstance(model, Network) else model
    if arguments.input is None:
        shape = (64, arguments.steps) if arguments.batch_first else (arguments.steps, 64)
        x = np.random.default_rng(arguments.seed).standard_normal((*shape, layer.input_size))
        print(
            f"ASSUMED input: independent normal noise of standard deviation 1, {arguments.steps} steps. The rate "
            "depends on the input: give the real one with --input X.npy.\n"
        )
    else:
        x = _read_array(arguments.input)
    diagnosis = diagnose(model, x, rng=arguments.seed)
    verification = diagnosis.verify() if x.ndim == 3 and x.shape[layer.batch_axis] >= 4 else None
    print(diagnosis)
    print(verification or "Not verified: that takes at least 4 sequences.")
    if arguments.json:
        _write_json(arguments.json, diagnosis, verification)
        print(f"json: {arguments.json}")
    if arguments.plot:
        _write_plot(arguments.plot, diagnosis, verification)
        print(f"picture: {arguments.plot}")


def read_weights(path: str) -> Mapping[str, Array]:
    """Arrays of a file by name: ``.safetensors``, PyTorch's ``.pt`` or ``.pth``, or ``.npz``; no pickle is executed.

    Raises
    ------
    StateDictError
        If it is not such a file.
    MissingExtraError
        Without the package that reads it.
    OSError
        If it cannot be read.
    """
    if path.endswith(".safetensors"):
        stored: Mapping[str, Array] = load_safetensors(path)
        return stored
    if path.endswith((".pt", ".pth")):
        return load_pt(path)
    with open(path, "rb") as file:
        if not zipfile.is_zipfile(file):
            raise StateDictError(f"{path} is not an .npz of named arrays, as np.savez writes it")
        file.seek(0)
        try:
            with np.load(file, allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files}
        except UNREADABLE as error:
            raise StateDictError(f"{path} is not an .npz of plain arrays, as np.savez writes it: {error}") from error


def _read_array(path: str) -> Array:
    """The array of an ``.npy`` file."""
    try:
        array = np.load(path, allow_pickle=False)
    except UNREADABLE as error:
        raise StateDictError(f"{path} is not an .npy file of plain numbers, as np.save writes it: {error}") from error
    if not isinstance(array, np.ndarray):
        raise StateDictError(f"{path} holds several arrays; the input must be one, as np.save writes it")
    return array


def model_from_weights(
    weights: Mapping[str, Array], nonlinearity: str, batch_first: bool = False
) -> Recurrent | Network:
    """Build the layer, or the network with a linear readout, whose ``state_dict`` this is; cell and sizes are read off
    the shapes.

    Parameters
    ----------
    weights : mapping
        ``weight_ih_l0``, ``weight_hh_l0`` and perhaps biases and further layers; or those with ``layer.`` in front, and
        ``readout.weight``.
    nonlinearity : str
        As for :class:`elman.RNN`; without effect on other cells.
    batch_first : bool
        As for :class:`elman.RNN`.

    Returns
    -------
    RNN, LSTM, GRU or Network

    Raises
    ------
    StateDictError, ShapeError, DTypeError, ArgumentError
        If the names or shapes are not those of such a model.
    """
    prefix = "layer." if any(name.startswith("layer.") for name in weights) else ""
    W_ih, W_hh = weights.get(f"{prefix}weight_ih_l0"), weights.get(f"{prefix}weight_hh_l0")
    if W_ih is None or W_hh is None or W_ih.ndim != 2:
        raise StateDictError(
            "the weights must have PyTorch's names, weight_ih_l0, weight_hh_l0 and so on, with or without 'layer.' in "
            f"front; got {', '.join(f'{k} {v.shape}' for k, v in weights.items()) or 'nothing'}"
        )
    options: dict[str, Any] = {"batch_first": batch_first}
    if W_hh.shape == (len(W_ih), len(W_ih)):
        options["nonlinearity"] = nonlinearity
    layer = from_torch(weights, prefix=prefix, **options)
    assert isinstance(layer, Recurrent)
    if not prefix:
        return layer
    readout = from_torch(weights, prefix="readout.")
    assert isinstance(readout, Readout)
    network = Network(layer, readout)
    network.load_state_dict(weights)
    return network


def _write_json(path: str, diagnosis: Diagnosis, verification: Verification | None) -> None:
    """Write both results; numbers that JSON lacks become the strings that ``float`` reads back."""
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
    """Save the curve, with the measurement where there is one."""
    axes = diagnosis.plot()
    if verification is not None:
        verification.plot(ax=axes)
    with replacing(path) as temporary:
        axes.figure.savefig(temporary, dpi=130)
