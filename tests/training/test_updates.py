"""How updates are made: parts of the parameters, clipping by value, several batches, two-number truncation."""

import numpy as np
import pytest

import elman
from elman.errors import ArgumentError, DTypeError
from elman.training import SGD, Adam, AdamW, fit

T, N, D, Q = 9, 12, 2, 2
CELLS = {"rnn": elman.RNN, "gru": elman.GRU, "lstm": elman.LSTM, "mgu": elman.MGU}


def network(cell="rnn", readout=None, seed=0, at="steps", **options):
    layer = CELLS[cell](D, 5, rng=seed, **options)
    readout = elman.Readout(layer.output_size, Q, rng=seed + 1) if readout is None else readout
    return elman.Network(layer, readout, at=at)


def data():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(T, N, D))
    return x, np.stack([x[..., 0], np.roll(x[..., 1], 1, 0)], -1)


def trained(net, x, y, **options):
    settings = {"optimizer": SGD(0.1), "epochs": 3, "progress": False, "rng": 0, "batch_size": 4, "clip_norm": None}
    return fit(net, x, y, **(settings | options))


@pytest.mark.parametrize("optimizer", [SGD(0.1, momentum=0.9), Adam(0.1), AdamW(0.1, weight_decay=0.5)])
@pytest.mark.parametrize("train", ["readout.*", ("*.weight_hh_l0", "readout.bias"), "layer.*"])
def test_frozen_parameters_stay_to_the_bit_whatever_the_optimizer_has_seen(optimizer, train):
    (x, y), net = data(), network()
    trained(net, x, y, optimizer=optimizer, epochs=1)  # momentum for all of them
    before = net.state_dict()
    trained(net, x, y, optimizer=optimizer, train=train)
    moved = {name for name, value in net.state_dict().items() if not np.array_equal(value, before[name])}
    wanted = {
        "readout.*": {"readout.weight", "readout.bias"},
        "layer.*": {name for name in before if name.startswith("layer.")},
    }.get(train, {"layer.weight_hh_l0", "readout.bias"})
    assert moved == wanted
    trained(net, x, y, optimizer=optimizer, epochs=1)  # and all go on together
    assert not np.array_equal(net.params["layer.bias_ih_l0"], before["layer.bias_ih_l0"])


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("at", ["steps", "end"])
def test_a_readout_alone_needs_no_way_back_through_time(cell, at, monkeypatch):
    """The same bits as its part of the whole gradient."""
    (x, y), net = data(), network(cell, at=at)
    target = y if at == "steps" else y[-1]
    trace = net.trace(x)
    d = np.random.default_rng(0).normal(size=trace.output.shape)
    whole, alone = net.backward(trace, d), net.backward(trace, d, readout_only=True)
    for name in ("readout.weight", "readout.bias"):
        np.testing.assert_array_equal(alone.params[name], whole.params[name])
    assert not any(alone.params[name].any() for name in net.params if name.startswith("layer."))

    def never(*args, **options):
        raise AssertionError("went back through the layer")

    monkeypatch.setattr(type(net.layer), "backward_rows", never)
    history = trained(net, x, target, train="readout.*", callbacks=[elman.Monitor(every=2)])
    assert history.loss[-1] < history.loss[0]
    with pytest.raises(AssertionError, match="went back"):
        trained(net, x, target, train=["readout.*", "*.bias_ih_l0"])


def test_a_readout_alone_finds_the_least_squares_solution():
    (x, y), net = data(), network()
    states = net.layer(x)[0].reshape(-1, 5)
    design = np.column_stack([states, np.ones(len(states))])
    best = ((design @ np.linalg.lstsq(design, y.reshape(-1, Q), rcond=None)[0] - y.reshape(-1, Q)) ** 2).mean()
    history = trained(net, x, y, train="readout.*", epochs=3000, batch_size=N, optimizer=SGD(0.3))
    assert history.loss[-1] == pytest.approx(best, rel=1e-6)


def test_patterns_that_match_nothing_are_refused():
    (x, y), net = data(), network()
    with pytest.raises(ArgumentError, match=r"'decoder.\*' matches none: they are layer.weight_ih_l0, .*readout.bias"):
        trained(net, x, y, train=("readout.*", "decoder.*"))
    with pytest.raises(ArgumentError, match="matches none"):
        trained(net, x, y, train=())
    with pytest.raises(DTypeError, match="train must be patterns"):
        trained(net, x, y, train=3)


def test_clipping_by_value_comes_after_that_by_norm():
    (x, y), net = data(), network()
    start, grads = net.theta.copy(), []
    trained(net, x, y, epochs=1, batch_size=N, callbacks=[lambda u: grads.append(u.gradients.theta.copy())])
    for clip_norm, clip_value in ((None, 0.01), (0.05, 0.01), (0.05, None), (1e9, 1e9)):
        twin = network()
        history = trained(twin, x, y, epochs=1, batch_size=N, clip_norm=clip_norm, clip_value=clip_value)
        gradient = grads[0].copy()
        norm = np.linalg.norm(gradient)
        if clip_norm is not None and norm > clip_norm:
            gradient *= clip_norm / norm
        if clip_value is not None:
            gradient = np.clip(gradient, -clip_value, clip_value)
        np.testing.assert_allclose(twin.theta, start - 0.1 * gradient, rtol=1e-13)
        assert history.gradient_norm[0] == pytest.approx(norm, rel=1e-13)
    with pytest.raises(ArgumentError, match="clip_value must be positive"):
        trained(net, x, y, clip_value=0.0)


@pytest.mark.parametrize("options", [{}, {"truncation": 4}, {"truncation": (2, 5)}, {"lengths": True}])
@pytest.mark.parametrize("optimizer", [SGD, Adam])
def test_accumulated_batches_are_one_large_batch(options, optimizer):
    x, y = data()
    if options.get("lengths"):
        options = {"lengths": np.array([9, 3, 5, 9, 1, 2, 7, 6, 8, 4, 9, 2])}
    one, many = network(), network()
    a = trained(one, x, y, batch_size=8, optimizer=optimizer(0.05), clip_norm=0.5, **options)
    seen = []
    b = trained(
        many, x, y, batch_size=2, accumulate=4, optimizer=optimizer(0.05), clip_norm=0.5,
        callbacks=[lambda u: seen.append(u.loss)], **options,
    )  # fmt: skip
    np.testing.assert_allclose(many.theta, one.theta, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(b.loss, a.loss, rtol=1e-10)
    np.testing.assert_allclose(b.gradient_norm, a.gradient_norm, rtol=1e-9)
    assert len(seen) == a.updates == b.updates


@pytest.mark.parametrize("cell", ["rnn", "lstm"])
@pytest.mark.parametrize("last_step", [False, True])
@pytest.mark.parametrize("uneven", [False, True])
def test_two_number_truncation_is_the_loop_by_hand(cell, last_step, uneven):
    """BPTT(h; h'): every h' = 2 steps the loss of those, back through h = 5."""
    x, y = data()
    lengths = np.array([9, 3, 5, 9, 1, 2, 7, 6, 8, 4, 9, 2]) if uneven else np.full(N, T)
    target = y[lengths - 1, np.arange(N)] if last_step else y
    net, twin = network(cell), network(cell)
    history = trained(
        net, x, target, truncation=(2, 5), batch_size=N, epochs=1, **({"lengths": lengths} if uneven else {})
    )
    order = np.random.default_rng(0).permutation(N)
    x, y, lengths = x[:, order], y[:, order], lengths[order]
    losses, counts = [], []
    state, start = None, 0
    for first in range(0, T, 2):
        stop = min(first + 2, T)
        begin = max(0, first + 2 - 5)
        if begin > start:
            valid = np.clip(lengths - start, 0, begin - start)
            state = twin.trace(x[start:begin], state, lengths=valid).hn
            start = begin
        valid = np.clip(lengths - begin, 0, stop - begin)
        steps = np.arange(begin, stop)
        mask = (steps[:, None] >= first) & (steps[:, None] < lengths)
        if last_step:
            mask &= steps[:, None] == lengths - 1
        if not mask.any():
            continue
        trace = twin.trace(x[begin:stop], state, lengths=valid)
        d = np.where(mask[..., None], trace.output - y[begin:stop], 0)
        losses.append((d**2).sum())
        counts.append(mask.sum() * Q)
        # the state moves on with the parameters that it was computed with
        following = max(0, first + 4 - 5)
        moved = twin.trace(
            x[begin:following], state, lengths=np.clip(lengths - begin, 0, following - begin)
        ).hn if following > begin else state  # fmt: skip
        grads = twin.backward(twin.trace(x[begin:stop], state, lengths=valid), 2 * d / (mask.sum() * Q))
        twin.theta[...] -= 0.1 * grads.theta
        state, start = moved, following
    np.testing.assert_allclose(net.theta, twin.theta, rtol=1e-10, atol=1e-13)
    assert history.loss[0] == pytest.approx(sum(losses) / sum(counts), rel=1e-12)
    assert history.updates == len(losses)


def test_truncation_with_two_equal_numbers_is_that_with_one():
    x, y = data()
    one, two = network(), network()
    a, b = trained(one, x, y, truncation=4), trained(two, x, y, truncation=(4, 4))
    np.testing.assert_array_equal(one.theta, two.theta)
    assert a == b
    far, whole = network(), network()
    trained(far, x, y, truncation=(9, 20))
    trained(whole, x, y)
    np.testing.assert_array_equal(far.theta, whole.theta)
    for bad, kind in (((4, 3), ArgumentError), ((1, 2, 3), DTypeError), ((0, 3), ArgumentError), (2.0, DTypeError)):
        with pytest.raises(kind, match="truncation"):
            trained(far, x, y, truncation=bad)
