"""How often a diagnosis from weights is right, by its input and by what it is told of it.

``python -m benchmarks.commands.weights_inputs --output benchmarks/prediction/weights_inputs.json`` records what
diagnoses print about themselves (``elman.diagnostics.diagnosis.track_record``; a test compares the two).
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import elman

T, N, TRUTH, SAMPLE, SEEDS = 100, 32, 64, 4, 2
THRESHOLD = math.log(100)
TOLD = ("N(0, 1)", "white", "autocorrelation", "sample")
CELLS = {"RNN": elman.RNN, "GRU": elman.GRU, "LSTM": elman.LSTM}
SCALES = {"RNN": (0.8, 1.0, 1.3, 1.7, 2.2), "GRU": (1.0, 2.0, 3.0, 4.0, 6.0), "LSTM": (1.0, 2.0, 4.0, 6.0, 9.0)}


def white(n: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """Independent noise; the label is the input three steps back."""
    x = rng.standard_normal((T, n, 8))
    return x, np.concatenate([np.zeros((3, n, 1)), x[:-3, :, :1]])


def smooth(n: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """First-order autoregressive noise, coefficient .95; the label is likewise."""
    x = rng.standard_normal((T, n, 8))
    for t in range(1, T):
        x[t] = 0.95 * x[t - 1] + math.sqrt(1 - 0.95**2) * x[t]
    return x, np.concatenate([np.zeros((3, n, 1)), x[:-3, :, :1]])


def tokens(n: int, size: int, language: np.random.Generator, rng: np.random.Generator) -> Any:
    """Text (T + 1, n) of a Markov chain whose words are about as frequent as Zipf's law has it."""
    zipf = 1 / np.arange(1, size + 1)
    rows = np.array([language.dirichlet(5 * zipf / zipf.sum() + 1e-3) for _ in range(size)])
    ends = rows.cumsum(axis=1)
    out = np.empty((T + 51, n), dtype=np.int64)
    out[0] = rng.integers(size, size=n)
    for t in range(1, len(out)):
        out[t] = np.minimum((ends[out[t - 1]] < rng.random(n)[:, None]).sum(axis=1), size - 1)
    return out[50:]


def embedded(n: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """Fifty words in a random embedding of 16 numbers; the label is the next word."""
    language = np.random.default_rng(1)
    words = tokens(n, 50, language, rng)
    return language.standard_normal((50, 16))[words[:-1]], words[1:]


def one_hot(n: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """Twenty-seven letters, one hot; the label is the next letter."""
    letters = tokens(n, 27, np.random.default_rng(2), rng)
    return np.eye(27)[letters[:-1]], letters[1:]


INPUTS: dict[str, Callable[[int, np.random.Generator], tuple[Any, Any]]] = {
    "white noise": white, "AR(1) noise": smooth, "embedded text": embedded, "one-hot text": one_hot,
}  # fmt: skip


VOCABULARY = {"embedded text": 50, "one-hot text": 27}


def correlation(x: Any, lags: int = 10) -> Any:
    """Autocorrelation of each channel at lags 1 .. ``lags``, with the divisor T, which keeps it positive definite."""
    centred = x - x.mean(axis=(0, 1))
    power = (centred**2).sum(axis=(0, 1))
    return np.array([(centred[k:] * centred[:-k]).sum(axis=(0, 1)) / power for k in range(1, lags + 1)])


def verdict(growth: float) -> str:
    """The side of the threshold on which a growth lies."""
    return "vanishing" if growth < -THRESHOLD else "exploding" if growth > THRESHOLD else "stable"


def records(seeds: int = SEEDS) -> list[dict[str, Any]]:
    """Measured and predicted growth of every network, before and after training."""
    out = []
    for (name, draw), (cell, build), seed in product(INPUTS.items(), CELLS.items(), range(seeds)):
        for k, scale in enumerate(SCALES[cell]):
            rng = np.random.default_rng([seed, k, sorted(INPUTS).index(name), sorted(CELLS).index(cell)])
            x, y = draw(160, rng)
            text = y.dtype.kind == "i"
            layer = build(x.shape[2], N, rng=rng)
            layer.params["weight_hh_l0"][...] *= scale
            net = elman.Network(layer, elman.Readout(N, VOCABULARY[name] if text else 1, rng=rng))
            loss = "cross_entropy" if text else "mse"
            for trained in (False, True):
                if trained:
                    elman.fit(net, x, y, loss=loss, optimizer=elman.Adam(0.005), epochs=20, progress=False, rng=seed)
                out.append({"input": name, "cell": cell, "trained": trained, **compared(net, draw, rng)})
    return out


def compared(net: Any, draw: Any, rng: np.random.Generator) -> dict[str, Any]:
    """One network: growth over T and rate, measured on fresh sequences, and as predicted from what it was told."""
    lin = net.linearize(draw(TRUTH, rng)[0])
    truth = elman.diagnose(lin, max_sequences=TRUTH, rng=rng).curve
    sample, many = draw(SAMPLE, rng)[0], draw(200, rng)[0]
    moments = {"input_mean": many.mean(axis=(0, 1)), "input_sd": many.std(axis=(0, 1))}
    options: dict[str, dict[str, Any]] = {
        "N(0, 1)": {"input_sd": 1.0, "length": T},
        "white": {**moments, "length": T},
        "autocorrelation": {**moments, "input_autocorrelation": correlation(many), "length": T},
        "sample": {"x": sample, "length": T},
    }
    said = {}
    for told, given in options.items():
        curve = elman.diagnose(net, level="weights", max_sequences=16, rng=rng, **given).curve
        said[told] = {"growth": float(curve.mean[-1]), "rate": curve.rate}
    return {"truth": {"growth": float(truth.mean[-1]), "rate": truth.rate}, "said": said}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Right verdicts, all, and the mean error of the rate, by what was told and by input."""
    table: dict[str, Any] = {}
    for told, name in product(TOLD, INPUTS):
        some = [row for row in rows if row["input"] == name]
        right = sum(verdict(r["truth"]["growth"]) == verdict(r["said"][told]["growth"]) for r in some)
        error = float(np.mean([abs(r["truth"]["rate"] - r["said"][told]["rate"]) for r in some]))
        table.setdefault(told, {})[name] = {"right": right, "of": len(some), "rate_error": round(error, 4)}
    return table


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    elman.set_num_threads(1)
    table = summary(records(arguments.seeds))
    text = json.dumps(table, indent=1)
    print(text)
    if arguments.output is not None:
        arguments.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
