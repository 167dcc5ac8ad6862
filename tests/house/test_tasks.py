"""Generators of tasks: what they show, what they ask, and the baselines that their documentation promises."""

import numpy as np
import pytest

from elman.errors import ArgumentError, DTypeError
from elman.layers import RNN, Network, Readout
from elman.tasks import adding, copy_memory, flip_flop, temporal_order
from elman.training import fit

MAKERS = {
    "adding": lambda **k: adding(20, 6, **k),
    "copy_memory": lambda **k: copy_memory(5, 6, **k),
    "temporal_order": lambda **k: temporal_order(20, 6, **k),
    "flip_flop": lambda **k: flip_flop(20, 6, **k),
}


@pytest.mark.parametrize("T", [2, 3, 17, 50])
def test_adding_asks_for_the_marked_numbers(T):
    x, y = adding(T, 500, rng=0)
    assert x.shape == (T, 500, 2)
    assert y.shape == (500, 1)
    values, marks = x[..., 0], x[..., 1]
    assert set(np.unique(marks)) <= {0.0, 1.0}
    assert (marks[: T // 2].sum(axis=0) == 1).all()
    assert (marks[T // 2 :].sum(axis=0) == 1).all()
    np.testing.assert_allclose((values * marks).sum(axis=0), y[:, 0], rtol=1e-14)
    # every step can be marked
    assert (marks.sum(axis=1) > 0).all()


def test_baselines_of_adding():
    x, y = adding(30, 200_000, rng=1)
    # variances of sums of uniform numbers; standard errors .0004 and .0002
    assert np.mean((y - 1) ** 2) == pytest.approx(1 / 6, abs=0.002)
    second = (x[15:, :, 0] * x[15:, :, 1]).sum(axis=0)[:, None]
    assert np.mean((y - second - 0.5) ** 2) == pytest.approx(1 / 12, abs=0.001)


@pytest.mark.parametrize(("delay", "symbols", "length"), [(1, 2, 1), (7, 8, 10), (30, 3, 4)])
def test_copy_memory_asks_for_the_string(delay, symbols, length):
    x, y = copy_memory(delay, 300, symbols=symbols, length=length, rng=0)
    T = delay + 2 * length
    assert x.shape == (T, 300, symbols + 2)
    assert y.shape == (T, 300)
    assert (x.sum(axis=2) == 1).all()
    shown = x.argmax(axis=2)
    np.testing.assert_array_equal(shown[:length], y[-length:])
    assert set(np.unique(y[-length:])) == set(range(1, symbols + 1))
    assert (y[:-length] == 0).all()
    # one signal, just before the answer is due
    signal = np.argwhere(shown == symbols + 1)
    assert (np.sort(signal[:, 1]) == np.arange(300)).all()
    assert (signal[:, 0] == T - length - 1).all()
    assert (shown[length : T - length - 1] == 0).all()
    assert (shown[T - length :] == 0).all()


def test_baseline_of_copy_memory():
    from elman.losses import get_loss

    x, y = copy_memory(40, 50, rng=2)
    logits = np.full((*y.shape, 9), -40.0)
    logits[:-10, :, 0] = 40.0
    logits[-10:, :, 1:] = 40.0
    assert get_loss("cross_entropy").value_and_gradient(logits, y)[0] == pytest.approx(10 * np.log(8) / len(x))


@pytest.mark.parametrize("T", [10, 23, 100])
def test_temporal_order_names_the_pair(T):
    x, y = temporal_order(T, 2000, rng=0)
    assert x.shape == (T, 2000, 6)
    assert (x.sum(axis=2) == 1).all()
    shown = x.argmax(axis=2)
    relevant = shown < 2
    assert (relevant.sum(axis=0) == 2).all()
    first, second = np.argsort(~relevant, axis=0, kind="stable")[:2]
    row = np.arange(2000)
    np.testing.assert_array_equal(2 * shown[first, row] + shown[second, row], y)
    assert (first >= T // 10).all()
    assert (first < T / 5).all()
    assert (second >= T // 2).all()
    assert (second < 0.6 * T).all()
    # four classes alike: a chi-square of 3 degrees of freedom exceeds 16.3 once in a thousand
    assert ((np.bincount(y) - 500) ** 2 / 500).sum() < 16.3
    assert set(np.unique(shown)) == set(range(6))


def test_flip_flop_holds_the_last_pulse():
    x, y = flip_flop(60, 40, bits=4, probability=0.2, rng=0)
    assert x.shape == y.shape == (60, 40, 4)
    assert set(np.unique(x)) == {-1.0, 0.0, 1.0}
    held = np.zeros((40, 4))
    for t in range(60):
        held = np.where(x[t] != 0, x[t], held)
        np.testing.assert_array_equal(y[t], held)
    assert np.mean(x[1:] != 0) == pytest.approx(0.2, abs=0.02)


def test_baseline_of_flip_flop():
    x, y = flip_flop(25, 4000, probability=0.3, rng=3)
    assert np.mean(y**2) == 1
    assert np.mean((y - x) ** 2) == pytest.approx(0.7 * 24 / 25, abs=0.005)


@pytest.mark.parametrize("name", MAKERS)
def test_the_same_seed_gives_the_same_data(name):
    make = MAKERS[name]
    for a, b in zip(make(rng=3), make(rng=np.random.default_rng(3)), strict=True):
        np.testing.assert_array_equal(a, b)
    assert any((a != b).any() for a, b in zip(make(rng=3), make(rng=4), strict=True))


@pytest.mark.parametrize("name", MAKERS)
def test_fit_takes_them(name):
    x, y = MAKERS[name](rng=0)
    loss, outputs = ("mse", y.shape[-1]) if y.dtype.kind == "f" else ("cross_entropy", int(y.max()) + 1)
    net = Network(RNN(x.shape[2], 5, rng=0), Readout(5, outputs, rng=1))
    history = fit(net, x, y, loss=loss, epochs=2, progress=False, rng=0)
    assert np.isfinite(history.loss).all()


def test_no_sequences_are_legal():
    assert adding(5, 0)[0].shape == (5, 0, 2)
    assert copy_memory(5, 0)[1].shape == (25, 0)
    assert temporal_order(10, 0)[1].shape == (0,)
    assert flip_flop(5, 0)[1].shape == (5, 0, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: adding(1, 3), "T must be at least 2, got 1"),
        (lambda: adding(5, -1), "n must be at least 0"),
        (lambda: copy_memory(0, 3), "delay must be at least 1"),
        (lambda: copy_memory(3, 3, symbols=1), "symbols must be at least 2"),
        (lambda: copy_memory(3, 3, length=0), "length must be at least 1"),
        (lambda: temporal_order(9, 3), "T must be at least 10, got 9"),
        (lambda: flip_flop(5, 3, bits=0), "bits must be at least 1"),
        (lambda: flip_flop(5, 3, probability=1.0), "probability must lie in"),
    ],
)
def test_sizes_outside_their_range_are_refused(call, message):
    with pytest.raises(ArgumentError, match=message):
        call()


def test_sizes_that_are_no_integers_are_refused():
    with pytest.raises(DTypeError, match="T must be an integer"):
        adding(5.0, 3)
