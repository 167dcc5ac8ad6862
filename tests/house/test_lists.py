"""A list of sequences is one whatever holds each of them, and whether their lengths agree or not."""

from __future__ import annotations

from collections import UserList, deque

import numpy as np
import pytest

import elman
from elman.errors import ArgumentError, DTypeError, ElmanError, ShapeError
from elman.validation.sequences import axes, is_list

RNG = np.random.default_rng(0)
T = B = 5  # equally many steps and sequences: nothing but the rule tells the two axes apart
D, H, Q = 3, 4, 2


class Frame:
    """A table of another package: rows, columns, and numbers when asked for."""

    def __init__(self, values):
        self._values = np.asarray(values)
        self.shape = self._values.shape

    def __array__(self, dtype=None, copy=None):
        return self._values if dtype is None else self._values.astype(dtype)

    def __len__(self):
        return len(self._values)

    def __getitem__(self, column):
        raise KeyError(column)


def tensor(values):
    return pytest.importorskip("torch").as_tensor(np.asarray(values))


def frame(values):
    return pytest.importorskip("pandas").DataFrame(np.asarray(values))


ITEMS = {"nested lists": np.ndarray.tolist, "frames": Frame, "tensors": tensor, "pandas": frame}
SEQUENCES = {"list": list, "tuple": tuple, "deque": deque, "UserList": UserList}


@pytest.fixture(params=ITEMS)
def item(request):
    return ITEMS[request.param]


def arrays(n=B, steps=T, width=D):
    return list(RNG.standard_normal((n, steps, width)))


def test_what_counts_as_a_list():
    table = np.zeros((T, D))
    for value in (
        [],
        (),
        [table],
        [table.tolist()],
        deque([table]),
        [Frame(table)],
        [table, table.tolist()],
        [table[0]],
    ):
        assert is_list(value), value
    for value in (table, table.tolist(), [1.0, 2.0], [np.float64(1)] * 3, Frame(table), "abc", {"a": table}, None, 3.0):
        assert not is_list(value), value
    assert [axes(v) for v in (1.0, [1.0], [[1.0]], [[]], table, [table], Frame(table), "ab")] == [
        0,
        1,
        2,
        2,
        2,
        3,
        2,
        0,
    ]


@pytest.mark.parametrize("sequence", SEQUENCES)
@pytest.mark.parametrize("batch_first", [False, True])
def test_calls_and_traces(item, sequence, batch_first):
    layer = elman.RNN(D, H, batch_first=batch_first, rng=0)
    net = elman.Network(elman.GRU(D, H, batch_first=batch_first, rng=0), elman.Readout(H, Q, rng=1))
    x = arrays()
    given = SEQUENCES[sequence](item(a) for a in x)
    for model in (layer, net):
        one = np.stack(x, 0 if batch_first else 1)
        expected, hn = model(one)
        assert np.array_equal(np.stack(model(given)[0]), np.stack([model(a)[0] for a in x]))
        assert np.array_equal(np.stack(model(given)[0], 0 if batch_first else 1), expected)
        assert np.array_equal(model(given)[1], hn)
        trace = model.trace(given)
        assert np.array_equal(np.stack(trace.output), np.stack(model(x)[0]))
        d_output = RNG.standard_normal(np.shape(model(x)[0]))
        by_items = model.backward(trace, [item(d) for d in d_output]).theta
        assert np.array_equal(by_items, model.backward(model.trace(x), list(d_output)).theta)
    lin = layer.linearize(given)
    assert (lin.n_steps, lin.n_sequences) == (T, B)
    assert np.array_equal(lin.jacobian(2, 1), layer.linearize(x).jacobian(2, 1))


@pytest.mark.parametrize(
    ("loss", "end"), [("mse", False), ("mse", True), ("cross_entropy", False), ("cross_entropy", True)]
)
def test_fit_and_validation(item, loss, end):
    x = arrays(6, 6)
    if loss == "mse":
        y = list(RNG.standard_normal((6, Q) if end else (6, 6, Q)))
    else:
        y = list(RNG.integers(0, Q, (6,) if end else (6, 6)))
    results = []
    for make in (np.asarray, item):
        net = elman.Network(elman.RNN(D, H, rng=0), elman.Readout(H, Q, rng=1))
        made = ([make(a) for a in x], [int(a) if np.ndim(a) == 0 else make(a) for a in y])
        if make is np.asarray and not end:
            made = np.stack(x, 1), np.stack(y, 1)  # the same as arrays (T, N, .)
        history = elman.fit(
            net, *made, loss=loss, epochs=3, batch_size=4, validation=made, progress=False, rng=0
        )  # fmt: skip
        results.append((net.theta.copy(), history.loss, history.validation_loss))
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(results[0][1:], results[1][1:], rtol=1e-12)


def test_diagnose_and_monitor(item):
    x, y = arrays(8, 8), list(RNG.standard_normal((8, 8, Q)))
    for batch_first in (False, True):
        axis = 0 if batch_first else 1
        net = elman.Network(elman.RNN(D, H, batch_first=batch_first, rng=0), elman.Readout(H, Q, rng=1))
        one = elman.diagnose(net, np.stack(x, axis), np.stack(y, axis), rng=0)
        listed = elman.diagnose(net, [item(a) for a in x], [item(a) for a in y], rng=0)
        assert one.rate == listed.rate
        assert np.array_equal(one.loss.mean, listed.loss.mean)
        assert np.array_equal(net.loss_start(x, y), net.loss_start(np.stack(x, axis), np.stack(y, axis)))
        readings = []
        for probe in (np.stack(x, axis), [item(a) for a in x]):
            trained, monitor = elman.Network(net.layer, net.readout), elman.Monitor(probe, every=1)
            start = trained.theta.copy()
            elman.fit(trained, x, y, epochs=1, callbacks=[monitor], progress=False, rng=0)
            trained.theta[:] = start
            readings.append(monitor.readings[0].rate)
        assert readings[0] == readings[1]
    uneven = [a[: 4 + i % 2] for i, a in enumerate(x)]
    with pytest.raises(ShapeError, match="Cut windows of one length"):
        elman.diagnose(net, uneven)
    with pytest.raises(ShapeError, match="Cut windows of one length"):
        elman.Monitor(uneven)


def test_what_could_be_read_in_two_ways_is_refused_by_name(item):
    layer = elman.RNN(D, H, rng=0)
    net = elman.Network(layer, elman.Readout(H, Q, rng=1))
    x = RNG.standard_normal((T, B, D))
    rows = [item(a) for a in RNG.standard_normal((B, T, H))]
    with pytest.raises(ShapeError, match="d_output must be one array"):
        layer.backward(layer.trace(x), rows)
    with pytest.raises(ShapeError, match="reset must be one array"):
        layer(x, reset=[np.zeros(T, bool)] * B)
    for y, loss in ((RNG.standard_normal((B, T, Q)), "mse"), (RNG.integers(0, Q, (B, T)), "cross_entropy")):
        with pytest.raises(DTypeError, match="y must be one array, got a list"):
            elman.fit(net, x, [item(a) for a in y], loss=loss, progress=False)
    with pytest.raises(ShapeError, match="reset must be one array"):
        elman.fit(net, x, x[..., :Q], reset=[np.zeros(T, bool)] * B, progress=False)
    with pytest.raises(ShapeError, match="jacobians must be one array"):
        elman.JacobianStack([np.zeros((T, 2, 2))] * 2)
    with pytest.raises(ShapeError, match=r"one array \(T_i, D\) per sequence.*x\[0\] has shape \(3,\)"):
        layer([np.ones(D)] * 4)  # rows of one sequence, or sequences of one number per step?
    with pytest.raises(ShapeError, match=r"x\[0\] has shape \(2, 5, 3\)"):
        layer([np.ones((2, 5, D))])


def test_tables_are_one_sequence(item):
    layer, x = elman.RNN(D, H, rng=0), RNG.standard_normal((T, D))
    assert np.array_equal(layer(item(x))[0], layer(x)[0])


def test_what_numpy_cannot_read_is_refused():
    torch = pytest.importorskip("torch")
    layer = elman.RNN(D, H, rng=0)
    for x in (torch.zeros(T, D, requires_grad=True), [torch.zeros(T, D, requires_grad=True)] * 2):
        with pytest.raises(DTypeError, match="NumPy cannot read"):
            layer(x)
    with pytest.raises(DTypeError, match="NumPy cannot read"):
        layer(torch.zeros(T, D, dtype=torch.bfloat16))
    for x in ({"x": np.zeros((T, D))}, (a for a in arrays()), "text", object()):
        with pytest.raises(ElmanError):
            layer(x)


def test_both_directions_read_a_list_as_the_array_of_its_items():
    """Equally many sequences, steps and inputs: no length would tell a wrong axis."""
    layer = elman.GRU(6, 5, bidirectional=True, rng=0)
    net = elman.Network(layer, elman.Readout(10, 2, rng=1))
    rng = np.random.default_rng(2)
    x, y = rng.standard_normal((6, 6, 6)), rng.standard_normal((6, 6, 2))
    items, labels = [x[:, b].tolist() for b in range(6)], [y[:, b] for b in range(6)]
    for given, listed in (((layer, x), (layer, items)), ((net, x, y), (net, items, labels))):
        a, b = elman.diagnose(*given, rng=0), elman.diagnose(*listed, rng=0)
        for name in a.directions:
            np.testing.assert_array_equal(a.directions[name].curve.mean, b.directions[name].curve.mean)
        one, other = (d.verify(*rest[1:]) for d, rest in ((a, given), (b, listed)))
        assert str(one) == str(other)


@pytest.mark.parametrize("batch_first", [False, True])
def test_the_index_of_a_missing_number_is_that_in_the_list(batch_first):
    """x[2][3, 1], whatever the order of axes in which the sequences are then put."""
    items = [np.zeros((n, 2)) for n in (7, 2, 5)]
    items[2][3, 1] = np.nan
    with pytest.raises(ArgumentError, match=r"\[2, 3, 1\] is nan \(1 such numbers"):
        elman.RNN(2, 4, batch_first=batch_first, rng=0)(items)
    items[2] = np.zeros((5, 3))
    with pytest.raises(ShapeError, match=r"x\[2\] has shape \(5, 3\)"):
        elman.RNN(2, 4, batch_first=batch_first, rng=0)(items)
