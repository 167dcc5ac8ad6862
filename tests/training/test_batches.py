"""Batches that the caller makes, and windows that are cut when they are needed."""

import tracemalloc

import numpy as np
import pytest

import elman
from elman.errors import ArgumentError, DTypeError, ShapeError
from elman.training import SGD, fit

T, N, D, Q = 7, 12, 2, 1


def network(**options):
    kind = {k: v for k, v in options.items() if k == "dtype"}
    return elman.Network(elman.RNN(D, 5, rng=0, **options), elman.Readout(5, Q, rng=1, **kind))


def data():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(T, N, D))
    return x, x[..., :1] * 0.5


def trained(*given, net=None, **options):
    net = network() if net is None else net
    settings = {"optimizer": SGD(0.1), "epochs": 3, "progress": False, "rng": 0}
    history = fit(net, *given, **(settings | options))
    return net.theta.copy(), history


class Supply:
    """Batches in the order that training itself would draw them."""

    def __init__(self, x, y, size):
        rng = np.random.default_rng(0)
        self.x, self.y, self.size, self.orders = x, y, size, [rng.permutation(N) for _ in range(3)]
        self.orders[:0] = [self.orders[0]]  # before the first epoch, the first batch is looked at

    def __iter__(self):
        order = self.orders.pop(0)
        for start in range(0, N, self.size):
            chosen = order[start : start + self.size]
            yield self.x[:, chosen], self.y[:, chosen]


@pytest.mark.parametrize("options", [{}, {"truncation": 3}, {"accumulate": 2}])
def test_batches_of_ones_own_train_as_arrays_do(options):
    x, y = data()
    theta, history = trained(x, y, batch_size=5, **options)
    own, again = trained(Supply(x, y, 5), **options)
    np.testing.assert_array_equal(own, theta)
    assert again == history


def test_a_list_of_batches_of_several_lengths_and_weights():
    x, y = data()
    batches = [(x[:, :5], y[:, :5]), (x[:4, 5:], y[:4, 5:], np.linspace(0, 1, 7))]
    seen = []
    net = network()
    _, history = trained(
        batches, net=net, validation=batches, callbacks=[lambda u: seen.append((u.x.shape, u.samples.tolist()))],
        epochs=2, loss=Squares(),
    )  # fmt: skip
    assert seen == 2 * [((7, 5, 2), [0, 1, 2, 3, 4]), ((4, 7, 2), [5, 6, 7, 8, 9, 10, 11])]
    first = ((net(x[:, :5])[0] - y[:, :5]) ** 2).mean(-1)
    second = ((net(x[:4, 5:])[0] - y[:4, 5:]) ** 2).mean(-1) * np.linspace(0, 1, 7)
    mean = (first.sum() + second.sum()) / (first.size + 4 * np.linspace(0, 1, 7).sum())
    assert history.validation_loss[-1] == pytest.approx(mean, rel=1e-12)


class Squares:
    takes_weight = True

    def value_and_gradient(self, output, target, weight=None):
        share = np.ones(output.shape[:-1]) if weight is None else weight
        share = (share / share.sum())[..., None] / output.shape[-1]
        return (share * (output - target) ** 2).sum(), 2 * share * (output - target)


def test_what_is_no_supply_of_batches_is_refused():
    x, y = data()
    cases = [
        (DTypeError, "begins anew", iter([(x, y)]), {}),
        (DTypeError, "begins anew", ((x, y) for _ in range(3)), {}),
        (ArgumentError, "at least one", [], {}),
        (DTypeError, r"batches\[0\] must be \(x, y\)", [x], {}),
        (ShapeError, r"batches\[0\] y must have shape", [(x, y[:-1])], {}),
        (DTypeError, "y must be an array of real numbers, got None: .* iterable of batches", x, {}),
        (ArgumentError, "lengths must be left out", [(x, y)], {"lengths": np.ones(N, int)}),
        (ArgumentError, r"WarmUp\(updates\)", Supply(x, y, 4), {"schedule": "warm-up"}),
    ]
    for kind, message, batches, options in cases:
        with pytest.raises(kind, match=message):
            trained(batches, **options)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("stride", [1, 3, 12])
def test_windows_train_as_copies_of_them_do(dtype, batch_first, stride):
    series = np.random.default_rng(1).normal(size=(60, 3))
    w = elman.datasets.windows(series, 9, stride)
    x, y = w[:-1, :, :2], w[1:, :, 2:]
    assert isinstance(x, elman.datasets.Windows)
    assert np.shares_memory(x, series)
    assert not w.flags.writeable
    if batch_first:
        x, y = x.swapaxes(0, 1), y.swapaxes(0, 1)
    options = {"dtype": dtype, "batch_first": batch_first}
    cut, a = trained(x, y, net=network(**options), batch_size=4, validation=(x, y))
    copied, b = trained(np.array(x), np.array(y), net=network(**options), batch_size=4, validation=(x, y))
    np.testing.assert_array_equal(cut, copied)
    assert a == b


def test_gaps_in_windows_are_found_and_may_be_ignored():
    series = np.random.default_rng(1).normal(size=(200, 3))
    series[70, 2] = np.nan
    w = elman.datasets.windows(series, 9, 1)
    with pytest.raises(ArgumentError, match="y must be finite, and holds nan"):
        trained(w[:-1, :, :2], w[1:, :, 2:])
    with pytest.raises(ArgumentError, match="x must be finite"):
        trained(w[:-1, :, 1:], w[1:, :, :1])
    given = w[:-1, :, :2], w[1:, :, 2:]
    theta, _ = trained(*given, missing="ignore", loss=Squares())
    copied, _ = trained(*map(np.array, given), missing="ignore", loss=Squares())
    np.testing.assert_array_equal(theta, copied)
    late = w[-1, :, 2:]  # one target a window, some of them missing
    np.testing.assert_array_equal(
        trained(given[0], late, missing="ignore", loss=Squares())[0],
        trained(np.array(given[0]), np.array(late), missing="ignore", loss=Squares())[0],
    )


def test_windows_of_a_map_take_megabytes(tmp_path):
    """1e6 x 10 numbers, in windows of 365 steps: 29 GB as an array."""
    series = np.lib.format.open_memmap(tmp_path / "series.npy", "w+", "float32", (1_000_000, 10))
    series[:] = np.random.default_rng(0).standard_normal((1000, 10), np.float32).repeat(1000, 0)
    series = np.load(tmp_path / "series.npy", mmap_mode="r")
    net = elman.Network(elman.RNN(10, 4, dtype="float32", rng=0), elman.Readout(4, 1, dtype="float32", rng=1))

    class Enough(Exception):
        pass

    def stop(update):
        if update.step == 2:
            raise Enough

    tracemalloc.start()
    try:
        w = elman.datasets.windows(series, 365, 1)
        assert w.shape == (365, 999_636, 10)
        with pytest.raises(Enough):
            trained(w[:-1], w[1:, :, :1], net=net, batch_size=16, callbacks=[stop], truncation=None)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 60e6


def test_windows_are_arrays_in_all_respects():
    series = np.arange(20.0).reshape(10, 2)
    w = elman.datasets.windows(series, 4, 1)
    assert type(w * 2) is np.ndarray
    assert type(w.mean(0)) is np.ndarray
    assert w.sum() == np.array(w).sum()
    np.testing.assert_array_equal(w[:, 2], series[2:6])
    np.testing.assert_array_equal(w.copy() - 1, np.array(w) - 1)
    import pickle

    again = pickle.loads(pickle.dumps(w))
    np.testing.assert_array_equal(again, w)
    with pytest.raises(ValueError, match="read-only"):
        w[0, 0] = 1
    with pytest.raises(ArgumentError, match="all have one length"):
        trained(w, w[..., :1], lengths=np.full(7, 4))


def test_a_diagnosis_looks_at_windows_evenly_spaced():
    series = np.random.default_rng(1).normal(size=(100_000, 2))
    w = elman.datasets.windows(series, 20, 1)
    x, y = w[:-1], w[1:, :, :1]
    chosen = np.linspace(0, x.shape[1] - 1, 256).astype(int)
    tracemalloc.start()
    try:
        seen = elman.diagnose(network(), x, y, rng=0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    given = elman.diagnose(network(), np.array(x)[:, chosen], np.array(y)[:, chosen], rng=0)
    assert seen.to_dict() == given.to_dict()
    assert peak < 0.3 * x.size * 8
    last = elman.diagnose(network(), x, y[-1], rng=0)
    np.testing.assert_array_equal(
        last.curve.mean, elman.diagnose(network(), np.array(x)[:, chosen], np.array(y)[-1, chosen], rng=0).curve.mean
    )
