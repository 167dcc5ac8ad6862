"""Prints hashes of initial weights, outputs, gradients and trained weights, as JSON.

    python tests/data/make_same_bits.py > tests/data/same_bits.json

They are promised to be the same on every processor with fused multiply-add and for any number of threads:
``tests/kernels/test_same_bits.py`` runs this file under settings that stand for other machines. Run it anew only when a
change is meant to change bits, and say so in the changelog.
"""

import hashlib
import json

import numpy as np

import elman
from elman import initializers

T, B, D, Q = 23, 12, 5, 3


def digest(*arrays):
    """Hash of the bytes of arrays."""
    return hashlib.sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)).hexdigest()[:16]


def starts():
    """Every initialiser, square and not."""
    for name in initializers.NAMED:
        for shape in ((40, 40), (37, 64), (64, 37)):
            if name == "spectral_radius" and shape[0] != shape[1]:
                continue
            values = initializers.by_name(name, "start")(shape, np.random.default_rng(1))
            yield f"start {name} {shape[0]} x {shape[1]}", digest(values)


def networks():
    """Name, network, loss and the options of training: between them all cells, losses, optimizers and options."""
    single, double = {"dtype": "float32"}, {"dtype": "float64"}

    def read(width, kind):
        return elman.Readout(width, Q, rng=1, **kind)

    yield (
        "RNN", elman.Network(elman.RNN(D, 37, rng=0, **double), read(37, double)), "mse",
        {"optimizer": elman.Adam(3e-2), "clip_norm": 0.5},
    )  # fmt: skip
    yield (
        "RNN relu, MLP", elman.Network(
            elman.RNN(D, 20, nonlinearity="relu", rng=0, **single), elman.MLP(20, 11, Q, rng=1, **single)
        ), "cross_entropy", {"optimizer": elman.SGD(0.1), "truncation": 7},
    )  # fmt: skip
    yield (
        "LSTM", elman.Network(elman.LSTM(D, 33, rng=0, **double), read(33, double)), "cross_entropy",
        {"optimizer": elman.Adam(1e-2), "clip_norm": 0.1},
    )  # fmt: skip
    yield (
        "LSTM projected", elman.Network(elman.LSTM(D, 16, proj_size=5, rng=0, **single), read(5, single)), "mse",
        {"optimizer": elman.SGD(0.05, momentum=0.9)},
    )  # fmt: skip
    stack = elman.GRU(D, 18, num_layers=2, bidirectional=True, dropout=0.3, rng=0, **single)
    yield (
        "GRU both directions, two layers, dropout", elman.Network(stack, read(36, single)), "cross_entropy",
        {"optimizer": elman.SGD(0.1, momentum=0.9, nesterov=True), "clip_norm": 1.0},
    )  # fmt: skip
    yield (
        "GRU reset before, long", elman.Network(elman.GRU(D, 70, reset_after=False, rng=0, **double), read(70, double)),
        "mse", {"checkpoint": True},
    )  # fmt: skip
    yield "MGU zoneout", elman.Network(elman.MGU(D, 9, zoneout=0.1, rng=0, **single), read(9, single)), "mse", {}


def passes():
    """Weights at the start, a forward and a backward pass, and training."""
    for name, net, loss, options in networks():
        rng = np.random.default_rng(2)
        x = rng.standard_normal((T, B, D)).astype(net.dtype)
        y = rng.integers(0, Q, (T, B)) if loss == "cross_entropy" else x[..., :Q] ** 2
        lengths = rng.integers(1, T + 1, B)
        yield f"{name}: weights", digest(net.theta)
        layer = net.layer
        trace = layer.trace(x, training=False)
        grads = layer.backward(trace, d_output=trace.output)
        yield f"{name}: output", digest(trace.output)
        yield f"{name}: gradients", digest(*grads.params.values(), grads.x)
        yield f"{name}: norms of gradients", digest(grads.state_norms)
        history = elman.fit(
            net, x, y, loss=loss, lengths=lengths, epochs=3, batch_size=5, rng=3, progress=False, **options
        )
        yield f"{name}: trained", digest(net.theta, np.array(history.loss))


def many_rows():
    """Weight gradients in float32 over more rows than one block of their sums, in windows that end within blocks."""
    layer = elman.LSTM(D, 21, dtype="float32", rng=0)
    x = np.random.default_rng(4).standard_normal((200, 13, D)).astype(layer.dtype)
    trace = layer.trace(x, training=False, checkpoint=23)
    yield "LSTM, 2600 rows: gradients", digest(layer.backward(trace, d_output=trace.output).theta)


if __name__ == "__main__":
    print(json.dumps(dict([*starts(), *passes(), *many_rows()]), indent=1))
