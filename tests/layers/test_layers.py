"""Stacks, directions, lengths, restarts, noise and learned initial states, for every cell."""

import copy
import itertools
import pickle

import numpy as np
import pytest
from layer_kinds import KINDS, LENGTHS, initial, make, same, tupled

import elman
from elman.errors import ArgumentError, DTypeError, NonFiniteError, ShapeError
from elman.kernels import parallel
from elman.layers.engine.schedule import segmented
from elman.testing import check_adjoint, check_gradients

WITH_TORCH = ("tanh", "relu", "LSTM", "LSTM-proj", "GRU")


def of_row(state, b):
    parts = tuple(part[:, b : b + 1] for part in tupled(state))
    return parts if len(parts) > 1 else parts[0]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    ("kind", "layers", "both", "bias"), list(itertools.product(WITH_TORCH, (1, 3), (False, True), (False, True)))
)
def test_torch(kind, layers, both, bias, dtype):
    """Outputs, final states and all gradients, with and without lengths and given states; the padding holds NaN."""
    torch = pytest.importorskip("torch")
    rtol = 1e-12 if dtype == "float64" else 2e-5
    for seed, (with_lengths, given) in enumerate(itertools.product((False, True), (False, True))):
        # for relu a seed at which rounding moves no pre-activation across 0
        rng = np.random.default_rng(seed + 10)
        layer = make(kind, layers, both, rng=seed, bias=bias, dtype=dtype)
        build, fixed = KINDS[kind]
        reference = getattr(torch.nn, build.__name__)(3, 7, layers, bidirectional=both, bias=bias, **fixed).double()
        reference.load_state_dict({k: torch.from_numpy(v.astype(float)) for k, v in layer.state_dict().items()})
        x, lengths = rng.standard_normal((6, 5, 3)).astype(dtype), np.array([3, 1, 6, 2, 6])
        h0 = initial(layer, rng)
        tx, *ts = (torch.from_numpy(a.astype(float)).requires_grad_() for a in (x, *tupled(h0)))
        fed = tx
        if with_lengths:
            fed = torch.nn.utils.rnn.pack_padded_sequence(tx, torch.from_numpy(lengths), enforce_sorted=False)
        output, hn = reference(fed, (tuple(ts) if len(ts) > 1 else ts[0]) if given else None)
        if with_lengths:
            output, _ = torch.nn.utils.rnn.pad_packed_sequence(output, total_length=6)
        d_output = rng.standard_normal(output.shape).astype(dtype)
        d_hn = [rng.standard_normal(a.shape).astype(dtype) for a in tupled(hn)]
        loss = (output * torch.from_numpy(d_output)).sum()
        (loss + sum((a * torch.from_numpy(d)).sum() for a, d in zip(tupled(hn), d_hn, strict=True))).backward()
        if with_lengths:
            for b, n in enumerate(lengths):
                x[n:, b], d_output[n:, b] = np.nan, np.nan
        options = {"lengths": lengths} if with_lengths else {}
        trace = layer.trace(x, h0 if given else None, **options)
        got, got_hn = layer(x, h0 if given else None, **options)
        assert np.array_equal(got, trace.output)
        assert same(got_hn, trace.hn)
        grads = layer.backward(trace, d_output, tuple(d_hn) if len(d_hn) > 1 else d_hn[0])
        pairs = [(got, output), (grads.x, tx.grad), *zip(tupled(got_hn), tupled(hn), strict=True)]
        pairs += [(grads.params[k], p.grad) for k, p in reference.named_parameters()]
        if given:
            pairs += list(zip(tupled(grads.h0), (t.grad for t in ts), strict=True))
        for a, b in pairs:
            b = b.detach().numpy()
            assert abs(a - b).max() <= rtol * abs(b).max()


@pytest.mark.parametrize("noisy", [False, True], ids=["plain", "noisy"])
@pytest.mark.parametrize(
    ("kind", "layers", "both"), list(itertools.product([k for k in KINDS if k != "relu"], (1, 2), (False, True)))
)
def test_gradients_with_everything_on(kind, layers, both, noisy):
    """Against differences, with lengths, restarts, all kinds of noise and learned states; the padding holds NaN."""
    rng = np.random.default_rng(3)
    options = {"recurrent_dropout": 0.3, "zoneout": 0.2, "learn_initial_state": True} if noisy else {}
    if noisy and layers > 1:
        options["dropout"] = 0.25
    layer = make(kind, layers, both, **options)
    x = rng.standard_normal((6, 5, 3))
    for b, n in enumerate(LENGTHS):
        x[n:, b] = np.nan
    reset = rng.random((6, 5)) < 0.3
    said = {"training": True} if noisy else {}
    check_gradients(layer, x, initial(layer, rng), directions=2, lengths=LENGTHS, reset=reset, **said)
    check_gradients(layer, np.nan_to_num(x), None, directions=2, **said)
    if noisy:
        check_gradients(layer, x, None, directions=2, lengths=LENGTHS, training=False)


class TestLengths:
    @pytest.mark.parametrize("dtype", ["float64", "float32"])
    @pytest.mark.parametrize(("kind", "both"), list(itertools.product(KINDS, (False, True))))
    def test_same_bits_alone_and_in_any_batch(self, kind, both, dtype, monkeypatch):
        monkeypatch.setattr(parallel, "SPLIT_FLOPS", 0)  # small as it is, the work is cut into slabs
        rng = np.random.default_rng(0)
        layer = make(kind, 2, both, dtype=dtype)
        x = rng.standard_normal((9, 21, 3)).astype(dtype)
        lengths, h0 = rng.integers(0, 10, 21), initial(layer, rng, 21)
        for b, n in enumerate(lengths):
            x[n:, b] = np.nan
        output, hn = layer(x, h0, lengths=lengths)
        for b, n in enumerate(lengths):
            alone, last = layer(x[:n, b : b + 1], of_row(h0, b))
            assert np.array_equal(output[:n, b : b + 1], alone)
            assert not output[n:, b].any()
            assert same(of_row(hn, b), last)
        threads = elman.get_num_threads()
        try:
            for n in (1, 2, 5):
                elman.set_num_threads(n)
                again, last = layer(x, h0, lengths=lengths)
                assert np.array_equal(again, output)
                assert same(last, hn)
        finally:
            elman.set_num_threads(threads)

    @pytest.mark.parametrize("filling", [np.nan, np.inf, 1e30])
    @pytest.mark.parametrize("kind", KINDS)
    def test_padding_reaches_no_bit(self, kind, filling):
        rng = np.random.default_rng(1)
        net = elman.Network(make(kind, 2, True), elman.MLP(8 if kind == "LSTM-proj" else 14, 5, 2, rng=0))
        clean = rng.standard_normal((6, 5, 3))
        d_output = rng.standard_normal((6, 5, 2))
        dirty, d_dirty = clean.copy(), d_output.copy()
        for b, n in enumerate(LENGTHS):
            clean[n:, b], d_output[n:, b] = 0, 0
            dirty[n:, b], d_dirty[n:, b] = filling, filling
        a, b = (net.trace(x, lengths=LENGTHS) for x in (clean, dirty))
        assert np.array_equal(a.output, b.output)
        assert np.array_equal(net(dirty, lengths=LENGTHS)[0], a.output)
        grads = [net.backward(t, d, need_x=True) for t, d in ((a, d_output), (b, d_dirty))]
        for name in ("theta", "x", "state_norms"):
            assert np.array_equal(getattr(grads[0], name), getattr(grads[1], name))
        assert not grads[1].x[3:, 0].any()
        assert not grads[1].state_norms[:, 3:, 0].any()

    @pytest.mark.parametrize("kind", KINDS)
    def test_the_gradient_of_a_padded_batch_is_the_sum_of_its_sequences(self, kind):
        rng = np.random.default_rng(2)
        layer = make(kind, 2, True)
        x, d = rng.standard_normal((6, 5, 3)), rng.standard_normal((6, 5, layer.output_size))
        whole = layer.backward(layer.trace(x, lengths=LENGTHS), d).theta
        alone = sum(
            layer.backward(layer.trace(x[:n, b : b + 1]), d[:n, b : b + 1]).theta for b, n in enumerate(LENGTHS)
        )  # fmt: skip
        np.testing.assert_allclose(whole, alone, rtol=1e-12, atol=1e-13)

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_list_is_a_padded_batch(self, kind):
        rng = np.random.default_rng(3)
        layer = make(kind, 2, True)
        x = [rng.standard_normal((n, 3)) for n in LENGTHS]
        padded = np.zeros((6, 5, 3))
        for b, row in enumerate(x):
            padded[: len(row), b] = row
        outputs, hn = layer(x)
        expected, last = layer(padded, lengths=LENGTHS)
        assert [len(o) for o in outputs] == LENGTHS.tolist()
        assert all(np.array_equal(o, expected[:n, b]) for b, (o, n) in enumerate(zip(outputs, LENGTHS, strict=True)))
        assert same(hn, last)
        d = [rng.standard_normal(o.shape) for o in outputs]
        padded_d = np.zeros(expected.shape)
        for b, row in enumerate(d):
            padded_d[: len(row), b] = row
        grads = layer.backward(layer.trace(x), d)
        wanted = layer.backward(layer.trace(padded, lengths=LENGTHS), padded_d)
        assert np.array_equal(grads.theta, wanted.theta)
        assert all(np.array_equal(g, wanted.x[: len(g), b]) for b, g in enumerate(grads.x))
        net = elman.Network(layer, elman.Readout(layer.output_size, 2, rng=0))
        assert all(np.array_equal(a, b) for a, b in zip(net(x)[0], net.trace(x).output, strict=True))

    def test_axes(self):
        """batch_first, one sequence and lists say the same."""
        rng = np.random.default_rng(4)
        layer = make("GRU", 2, True)
        first = make("GRU", 2, True, batch_first=True)
        x = rng.standard_normal((6, 5, 3))
        output, hn = layer(x, lengths=LENGTHS)
        swapped, last = first(x.swapaxes(0, 1), lengths=LENGTHS)
        assert np.array_equal(swapped.swapaxes(0, 1), output)
        assert np.array_equal(last, hn)
        one, final = layer(x[:, 0], lengths=3)
        assert np.array_equal(one, output[:, 0])
        assert np.array_equal(final, hn[:, 0])
        reset = rng.random((6, 5)) < 0.4
        a = layer.trace(x, reset=reset)
        b = first.trace(x.swapaxes(0, 1), reset=reset.T)
        assert np.array_equal(a.output, b.output.swapaxes(0, 1))
        assert np.array_equal(layer(x[:, 2], reset=reset[:, 2])[0], a.output[:, 2])
        listed = layer([x[:n, b] for b, n in enumerate(LENGTHS)], reset=[reset[:n, b] for b, n in enumerate(LENGTHS)])
        wanted, _ = layer(x, lengths=LENGTHS, reset=reset)
        assert all(np.array_equal(o, wanted[: len(o), b]) for b, o in enumerate(listed[0]))
        d = rng.standard_normal(output.shape)
        theta = layer.backward(a, d).theta
        np.testing.assert_array_equal(first.backward(b, d.swapaxes(0, 1)).theta, theta)

    @pytest.mark.parametrize("kind", KINDS)
    def test_final_output_is_that_of_both_directions(self, kind):
        rng = np.random.default_rng(5)
        layer = make(kind, 2, True)
        x, h0 = rng.standard_normal((6, 5, 3)), initial(layer, rng)
        trace = layer.trace(x, h0, lengths=LENGTHS)
        R = layer.output_size // 2
        for b, n in enumerate(LENGTHS):
            if n:
                expected = np.append(trace.output[n - 1, b, :R], trace.output[0, b, R:])
            else:
                expected = np.concatenate(tupled(h0)[0][-2:, b])
            assert np.array_equal(trace.final_output[b], expected)
            assert np.array_equal(trace.final_output[b], np.concatenate(tupled(trace.hn)[0][-2:, b]))

    @pytest.mark.parametrize("kind", KINDS)
    def test_states_and_gates_stand_in_the_order_of_the_input(self, kind):
        rng = np.random.default_rng(6)
        layer = make(kind, 1, True)
        x, h0 = rng.standard_normal((6, 5, 3)), initial(layer, rng)
        trace = layer.trace(x, h0, lengths=LENGTHS)
        R = layer.output_size // 2
        forward, backward = trace.states["h_l0"], trace.states["h_l0_reverse"]
        assert forward.shape == backward.shape == (7, 5, R)
        assert np.array_equal(forward[1:], trace.output[..., :R])
        first, second = tupled(h0)[0]
        assert np.array_equal(forward[0], first)
        for b, n in enumerate(LENGTHS):
            assert np.array_equal(backward[:n, b], trace.output[:n, b, R:])
            assert np.array_equal(backward[n, b], second[b])
        one = make(kind)
        one.load_state_dict({k.removesuffix("_reverse"): v for k, v in layer.state_dict().items() if "_reverse" in k})
        mirrored = one.trace(
            x[:3, :1][::-1], of_row(tuple(p[1:] for p in tupled(h0)), 0) if len(tupled(h0)) > 1 else h0[1:, :1]
        )
        for name, gate in trace.gates.items():
            assert gate.shape == (6, 5, 7), name
            alone = layer.trace(x[:3, :1], of_row(h0, 0)).gates[name]
            assert np.array_equal(gate[:3, :1], alone)
            if name.endswith("_reverse"):
                assert np.array_equal(gate[:3, :1], mirrored.gates[name.removesuffix("_reverse")][::-1])
            assert not gate[3:, 0].any()
            with pytest.raises(ValueError, match="read-only"):
                gate[0] = 1

    def test_only_valid_steps_are_computed(self):
        rng = np.random.default_rng(7)
        lengths = rng.integers(0, 50, 40)
        for reverse in (False, True):
            schedule = segmented(50, 40, lengths, None, reverse)
            assert schedule.active.sum() == schedule.n_valid == lengths.sum()
            assert lengths.max() == schedule.T

    @pytest.mark.parametrize(
        ("lengths", "error", "words"),
        [
            ([3, 1, 7, 2, 6], ArgumentError, "0 .. T = 6, .* got 7 at index 2"),
            ([3, -1, 6, 2, 6], ArgumentError, "got -1 at index 1"),
            ([3, 1, 6], ShapeError, r"shape \(B,\) = \(5,\)"),
            ([3.0, 1, 6, 2, 6], DTypeError, "lengths must be integers"),
            (4, ShapeError, r"got \(\)"),
            ([[1], [1, 2]], ShapeError, "lengths must be an array"),
            (np.ma.masked_array([3, 1, 6, 2, 6], [0, 0, 1, 0, 0]), DTypeError, "lengths must not be a masked array"),
        ],
    )
    def test_wrong_lengths_are_refused(self, lengths, error, words):
        layer = make("GRU")
        for call in (layer, layer.trace):
            with pytest.raises(error, match=words):
                call(np.zeros((6, 5, 3)), lengths=lengths)

    def test_a_number_that_is_not_finite_counts_at_valid_steps_only(self):
        layer = make("GRU", batch_first=True)
        x = np.zeros((5, 6, 3))
        x[0, 2, 1] = np.nan
        layer(x, lengths=[2, 6, 6, 6, 6])
        with pytest.raises(ArgumentError, match=r"x must be finite, x\[0, 2, 1\] is nan"):
            layer(x, lengths=[3, 6, 6, 6, 6])

    def test_wrong_lists_are_refused(self):
        layer = make("GRU")
        with pytest.raises(ShapeError, match=r"x\[1\] has shape \(4, 2\)"):
            layer([np.zeros((5, 3)), np.zeros((4, 2))])
        with pytest.raises(DTypeError, match=r"x\[1\] must be an array of real"):
            layer([np.zeros((5, 3)), np.zeros((4, 3), int)])
        with pytest.raises(ArgumentError, match="lengths must be left out"):
            layer([np.zeros((5, 3))], lengths=[5])
        with pytest.raises(ShapeError, match="d_output must be a list of 1 arrays"):
            layer.backward(layer.trace([np.zeros((5, 3))]), np.zeros((5, 7)))

    def test_a_state_that_overflows_is_named_by_the_callers_step(self):
        layer = elman.RNN(1, 2, nonlinearity="identity", bidirectional=True)
        layer.theta[:] = 0
        layer.params["weight_hh_l0_reverse"][:] = 1e200 * np.eye(2)
        layer.params["weight_ih_l0_reverse"][:] = 1e200
        x = np.ones((6, 3, 1))
        with pytest.raises(NonFiniteError, match="rnn_l0_reverse.*step 3 of sample 1") as caught:
            layer(x, lengths=[1, 5, 1])
        assert (caught.value.step, caught.value.sample) == (3, 1)


class TestRestarts:
    @pytest.mark.parametrize(("kind", "learned"), list(itertools.product(KINDS, (False, True))))
    def test_a_restart_is_a_new_sequence(self, kind, learned):
        """Bit for bit what each recording gives alone; the first one goes on from h0."""
        rng = np.random.default_rng(0)
        layer = make(kind, 1, True, learn_initial_state=learned)
        x, h0 = rng.standard_normal((8, 2, 3)), initial(layer, rng, 2)
        reset = np.zeros((8, 2), bool)
        reset[[3, 5], 0] = True
        output, hn = layer(x, h0, reset=reset)
        R = layer.output_size // 2
        fresh, _ = layer(x[3:5, :1])
        assert np.array_equal(output[3:5, :1], fresh)
        first, _ = layer(x[:3, :1], of_row(h0, 0))
        assert np.array_equal(output[:3, :1, :R], first[..., :R])
        assert np.array_equal(output[:3, :1, R:], layer(x[:3, :1])[0][..., R:])
        last, _ = layer(x[5:, :1], of_row(h0, 0))
        assert np.array_equal(output[5:, :1, R:], last[..., R:])
        assert np.array_equal(output[5:, :1, :R], layer(x[5:, :1])[0][..., :R])
        assert np.array_equal(tupled(hn)[0][0, 0], tupled(layer(x[5:, :1])[1])[0][0, 0])
        untouched, _ = layer(x[:, 1:], of_row(h0, 1))
        assert np.array_equal(output[:, 1:], untouched)

    def test_states_begin_where_the_sequence_does(self):
        """Entry 0 is what the first step reads: after a restart at step 0 not h0, but the learned state."""
        layer = make("GRU", 1, True, learn_initial_state=True)
        x, h0 = np.ones((4, 2, 3)), np.full((2, 2, 7), 9.0)
        reset = np.zeros((4, 2), bool)
        reset[[0, 2], 0] = True
        states = layer.trace(x, h0, reset=reset).states
        assert np.array_equal(states["h_l0"][0], [layer.params["h0_l0"], h0[0, 1]])
        assert np.array_equal(states["h_l0_reverse"][4], h0[1])

    @pytest.mark.parametrize("kind", KINDS)
    def test_chunks_with_restarts_go_on(self, kind):
        """A restart at the first step of a chunk forgets the state carried there."""
        rng = np.random.default_rng(1)
        layer = make(kind, 2)
        x, reset = rng.standard_normal((12, 4, 3)), rng.random((12, 4)) < 0.3
        reset[6] = [True, True, False, False]
        output, hn = layer(x, reset=reset)
        a, carried = layer(x[:6], reset=reset[:6])
        b, last = layer(x[6:], carried, reset=reset[6:])
        assert np.array_equal(np.concatenate([a, b]), output)
        assert same(last, hn)

    def test_no_gradient_passes_a_restart(self):
        rng = np.random.default_rng(2)
        layer = make("LSTM")
        x, reset = rng.standard_normal((6, 2, 3)), np.zeros((6, 2), bool)
        reset[4, 0] = True
        d = np.zeros((6, 2, 7))
        d[5] = 1
        h0 = initial(layer, rng, 2)
        grads = layer.backward(layer.trace(x, h0, reset=reset), d)
        assert not grads.x[:4, 0].any()
        assert grads.x[:4, 1].all()
        assert not grads.h0[0][:, 0].any()
        assert grads.state_norms[0, 3, 0] == 0 < grads.state_norms[0, 4, 0]

    @pytest.mark.parametrize(
        ("reset", "error", "words"),
        [
            (np.zeros((5, 6), bool), ShapeError, r"reset must have shape \(T, B\) = \(6, 5\)"),
            (np.zeros((6, 5)), DTypeError, "reset must hold truth values"),
            ([[True], [True, False]], ShapeError, "reset must be an array"),
        ],
    )
    def test_wrong_masks_are_refused(self, reset, error, words):
        with pytest.raises(error, match=words):
            make("GRU")(np.zeros((6, 5, 3)), reset=reset)


class TestNoise:
    def test_it_must_be_said(self):
        for options in ({"recurrent_dropout": 0.2}, {"zoneout": 0.2}):
            layer = make("GRU", **options)
            x = np.ones((5, 4, 3))
            with pytest.raises(ArgumentError, match="training must be said"):
                layer.trace(x)
            with pytest.raises(ArgumentError, match="leave it out, or say training=True"):
                layer.trace(x, training=False, rng=0)
            assert np.array_equal(layer(x)[0], layer.trace(x, training=False).output)
            one, again, other = (layer.trace(x, training=True, rng=seed).output for seed in (0, 0, 1))
            assert np.array_equal(one, again)
            assert not np.array_equal(one, other)
            assert not np.array_equal(one, layer(x)[0])
        plain = make("GRU")
        assert np.array_equal(plain.trace(x).output, plain.trace(x, training=True, rng=3).output)

    def test_dropout_acts_between_layers(self):
        rng = np.random.default_rng(0)
        layer = make("tanh", 2, True, dropout=0.5)
        x = rng.standard_normal((6, 200, 3))
        trace = layer.trace(x, training=True, rng=1)
        p = layer.state_dict()
        below, above = elman.RNN(3, 7, bidirectional=True), elman.RNN(14, 7, bidirectional=True)
        below.load_state_dict({k: v for k, v in p.items() if "_l0" in k})
        above.load_state_dict({k.replace("_l1", "_l0"): v for k, v in p.items() if "_l1" in k})
        hidden = below(x)[0]
        factor = trace.noise.between[0].reshape(6, 200, 14)
        assert set(np.unique(factor)) == {0.0, 2.0}
        assert abs((factor == 0).mean() - 0.5) < 0.02
        np.testing.assert_allclose(trace.output, above(hidden * factor)[0], rtol=1e-12)
        np.testing.assert_allclose(layer(x)[0], above(hidden)[0], rtol=1e-12)

    @pytest.mark.parametrize("kind", KINDS)
    def test_recurrent_dropout_is_one_draw_for_all_steps(self, kind):
        rng = np.random.default_rng(1)
        layer = make(kind, recurrent_dropout=0.4)
        x = rng.standard_normal((6, 4, 3))
        trace = layer.trace(x, training=True, rng=2)
        (factor,) = trace.noise.recurrent
        assert set(np.unique(factor)) <= {0.0, 1 / 0.6}
        assert 0 in factor
        other = make(kind)
        other.load_state_dict({**layer.state_dict(), "weight_hh_l0": layer.params["weight_hh_l0"] * factor})
        assert np.array_equal(other(x)[0], trace.output)
        grads = layer.backward(trace, np.ones(trace.output.shape))
        assert not grads.params["weight_hh_l0"][:, factor == 0].any()

    @pytest.mark.parametrize(("kind", "training"), list(itertools.product(KINDS, (False, True))))
    def test_zoneout_against_its_equation(self, kind, training):
        """Step by step with the plain layer, mixing by hand."""
        rng = np.random.default_rng(2)
        rates = (0.3, 0.6) if kind.startswith("LSTM") else (0.3,)
        layer, plain = make(kind, zoneout=rates), make(kind)
        x, h0 = rng.standard_normal((5, 4, 3)), initial(layer, rng, 4)
        trace = layer.trace(x, h0, training=training, rng=5 if training else None)
        state = tupled(h0)
        for t in range(5):
            _, made = plain(x[t : t + 1], state if len(state) > 1 else state[0])
            mixed = []
            for i, (before, new) in enumerate(zip(state, tupled(made), strict=True)):
                z = trace.noise.zoneout[0].reshape(5, 4, -1, 7)[t, :, i, : new.shape[-1]] if training else rates[i]
                mixed.append(z * before + (1 - z) * new)
            state = tuple(mixed)
            np.testing.assert_allclose(trace.output[t], state[0][0], rtol=1e-13)
        for got, expected in zip(tupled(trace.hn), state, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-13)
        if training:
            assert abs(trace.noise.zoneout[0][:, 0].mean() - 0.3) < 0.15

    def test_zoneout_keeps_exactly(self):
        layer = make("GRU", zoneout=0.5)
        trace = layer.trace(np.random.default_rng(0).standard_normal((4, 3, 3)), training=True, rng=0)
        kept = trace.noise.zoneout[0].reshape(4, 3, 7).astype(bool)
        h = trace.states["h_l0"]
        assert np.array_equal(h[1:][kept], h[:-1][kept])
        assert (h[1:][~kept] != h[:-1][~kept]).all()

    def test_fit_draws_in_training_and_not_in_validation(self):
        rng = np.random.default_rng(3)
        x = rng.standard_normal((8, 24, 3))
        y = x.sum(axis=2, keepdims=True)
        plain = elman.Network(make("LSTM", 2), elman.Readout(7, 1, rng=0))
        losses = {}
        for name, options in (("plain", {}), ("noisy", {"dropout": 0.3, "zoneout": 0.1, "recurrent_dropout": 0.2})):
            net = elman.Network(make("LSTM", 2, **options), elman.Readout(7, 1, rng=0))
            net.load_state_dict(dict(plain.state_dict()))
            history = elman.fit(
                net, x, y, epochs=1, batch_size=24, optimizer=elman.SGD(1e-12), validation=(x, y), progress=False, rng=0
            )  # fmt: skip
            evaluated = float(np.mean((net(x)[0] - y) ** 2))
            losses[name] = history.loss[0], history.validation_loss[0], evaluated
        assert losses["plain"][0] == pytest.approx(losses["plain"][1], rel=1e-9)
        assert losses["noisy"][0] != pytest.approx(losses["noisy"][1], rel=1e-4)
        assert losses["noisy"][1] == pytest.approx(losses["noisy"][2], rel=1e-12)


class TestStacks:
    @pytest.mark.parametrize("zoneout", [0.0, 0.3])
    @pytest.mark.parametrize(("kind", "layers"), list(itertools.product(KINDS, (1, 3))))
    def test_linearization(self, kind, layers, zoneout):
        """jvp and vjp are adjoint, and the Jacobian of the whole state is that of differences."""
        rng = np.random.default_rng(0)
        layer = make(kind, layers, zoneout=zoneout)
        x, h0 = rng.standard_normal((4, 2, 3)), initial(layer, rng, 2)
        lin = layer.linearize(x, h0)
        sizes = layer.states.sizes
        assert lin.state_size == layers * sum(sizes)
        check_adjoint(lin)
        places = [(level, i, j) for level in range(layers) for i, n in enumerate(sizes) for j in range(n)]
        J = lin.jacobian(0, 1)

        def final(place, change):
            level, i, j = place
            parts = [part[:, 1:].copy() for part in tupled(h0)]
            parts[i][level, 0, j] += change
            hn = layer(x[:1, 1:], tuple(parts) if len(parts) > 1 else parts[0])[1]
            return np.concatenate([part[level, 0] for level in range(layers) for part in tupled(hn)])

        for column, place in enumerate(places):
            expected = (final(place, 1e-6) - final(place, -1e-6)) / 2e-6
            np.testing.assert_allclose(J[:, column], expected, atol=1e-8)
        dense = [lin.jacobian(t, 1) for t in range(4)]
        v, u = rng.standard_normal((2, 3, len(places)))
        norms, back = np.empty((4, 2, 3)), np.empty((4, 2, 3))
        zero = np.zeros((3, len(places)))
        lin.jvp(np.stack([zero, v := rng.standard_normal((3, len(places)))]), norms=norms)
        lin.vjp(np.stack([zero, u := rng.standard_normal((3, len(places)))]), norms=back)
        for t in range(4):
            v = v @ dense[t].T
            u = u @ dense[3 - t]
            np.testing.assert_allclose(norms[t, 1], np.linalg.norm(v, axis=1), rtol=1e-11)
            np.testing.assert_allclose(back[t, 1], np.linalg.norm(u, axis=1), rtol=1e-11)

    @pytest.mark.parametrize("zoneout", [0.0, 0.3])
    @pytest.mark.parametrize(("kind", "dtype"), list(itertools.product(KINDS, ("float64", "float32"))))
    def test_streaming_gives_the_same_bits(self, kind, dtype, zoneout):
        rng = np.random.default_rng(1)
        layer = make(kind, 3, zoneout=zoneout, learn_initial_state=True, dtype=dtype)
        x, h0 = rng.standard_normal((6, 2, 3)).astype(dtype), initial(layer, rng, 2)
        for start in (h0, None):
            output, hn = layer(x, start)
            stepper = layer.stepper(2, start)
            for t in range(6):
                if t == 3:
                    stepper = pickle.loads(pickle.dumps(stepper))
                assert np.array_equal(stepper(x[t]), output[t])
            assert same(stepper.state, hn)

    def test_a_failed_step_of_a_stream_changes_nothing(self):
        layer = make("GRU", 3)
        stepper = layer.stepper()
        stepper(np.ones(3))
        before = stepper.state
        with pytest.raises(NonFiniteError, match="gru_l0"):
            stepper(np.full(3, np.nan))
        assert np.array_equal(stepper.state, before)
        assert np.array_equal(stepper(np.ones(3)), layer(np.ones((2, 3)))[0][1])

    def test_two_directions_have_no_stream_and_no_linearization(self):
        layer = make("GRU", 1, True)
        with pytest.raises(ArgumentError, match="cannot stream"):
            layer.stepper()
        with pytest.raises(ArgumentError, match="cannot be linearized"):
            layer.linearize(np.zeros((4, 2, 3)))

    def test_a_stack_is_diagnosed_and_verified(self):
        rng = np.random.default_rng(2)
        layer = elman.LSTM(3, 12, 2, rng=0)
        x = rng.standard_normal((30, 24, 3))
        diagnosis = elman.diagnose(elman.Network(layer, elman.Readout(12, 1, rng=1)), x, rng=0)
        assert diagnosis.loss is not None
        assert diagnosis.verify().agrees
        start = rng.standard_normal((24, 48))
        measured = layer.measure_gradient(x, start)
        lin, u = layer.linearize(x), start
        for k in range(3):
            u = np.stack([row @ lin.jacobian(29 - k, b) for b, row in enumerate(u)])
            np.testing.assert_allclose(measured[k + 1], np.log(np.linalg.norm(u, axis=1)), rtol=1e-10)

    def test_three_layers_of_two_directions_copy_and_pickle(self):
        rng = np.random.default_rng(3)
        layer = make("LSTM-proj", 3, True, zoneout=(0.1, 0.2), learn_initial_state=True)
        x = rng.standard_normal((5, 4, 3))
        expected, _ = layer(x)
        for other in (pickle.loads(pickle.dumps(layer)), copy.deepcopy(layer)):
            assert np.array_equal(other(x)[0], expected)
        assert eval(repr(layer), {"LSTM": elman.LSTM}).params.keys() == layer.params.keys()

    def test_traces_of_other_layers_are_refused(self):
        x = np.zeros((4, 2, 3))
        with pytest.raises(ArgumentError, match=r"2 directions in all\) .* made by gru .* 1 directions"):
            make("GRU", 2).backward(make("GRU").trace(x))
        plain, zoned, other = make("GRU"), make("GRU", zoneout=0.5), make("GRU", zoneout=0.25)
        for layer, trace in (
            (zoned, plain.trace(x)),
            (plain, zoned.trace(x, training=False)),
            (zoned, other.trace(x, training=False)),
        ):
            with pytest.raises(ArgumentError, match="trace must be of this layer.*zoneout"):
                layer.backward(trace)
        with pytest.raises(DTypeError, match="trace must be what this layer's trace"):
            plain.backward(None)
        steps, end = (elman.Network(make("GRU"), elman.Readout(7, 2), at=at) for at in ("steps", "end"))
        for net, trace in ((steps, end.trace(x)), (end, steps.trace(x))):
            with pytest.raises(ArgumentError, match="trace must be of a network that reads at"):
                net.backward(trace, np.zeros(trace.output.shape))
        with pytest.raises(DTypeError, match="this network's trace"):
            steps.backward(steps.layer.trace(x), np.zeros((4, 2, 7)))


class TestInitialStates:
    @pytest.mark.parametrize("kind", KINDS)
    def test_names_and_effect(self, kind):
        layer = make(kind, 2, True, learn_initial_state=True)
        names = [f"{s}0_l{i}{r}" for i in (0, 1) for r in ("", "_reverse") for s in layer.states.names]
        assert [n for n in layer.params if n[1] == "0"] == names
        B, x = 4, np.random.default_rng(0).standard_normal((5, 4, 3))
        directions = [f"_l{i}{r}" for i in (0, 1) for r in ("", "_reverse")]
        given = tuple(
            np.stack([np.tile(layer.params[f"{s}0{d}"], (B, 1)) for d in directions]) for s in layer.states.names
        )
        assert np.array_equal(layer(x)[0], layer(x, given if len(given) > 1 else given[0])[0])
        grads = layer.backward(layer.trace(x), np.ones((5, 4, layer.output_size)))
        for part, s in zip(tupled(grads.h0), layer.states.names, strict=True):
            for row, d in zip(part, directions, strict=True):
                np.testing.assert_allclose(grads.params[f"{s}0{d}"], row.sum(axis=0), rtol=1e-12, atol=1e-14)

    def test_it_starts_at_zero_and_is_learned(self):
        layer = elman.GRU(1, 4, learn_initial_state=True, rng=0)
        assert not layer.params["h0_l0"].any()
        net = elman.Network(layer, elman.Readout(4, 1, rng=0))
        x = np.zeros((3, 8, 1))
        y = np.broadcast_to(np.array([1.0, -1.0, 0.5])[:, None, None], (3, 8, 1)).copy()
        history = elman.fit(net, x, y, epochs=300, optimizer=elman.Adam(3e-2), progress=False, rng=0)
        assert layer.params["h0_l0"].any()
        assert history.loss[-1] < 0.05 * history.loss[0]


class TestKindsOfInput:
    @pytest.mark.parametrize(
        "change",
        [
            lambda x: x.astype(">f8"),
            lambda x: x[::-1][::-1],
            lambda x: np.asfortranarray(x),
            lambda x: np.repeat(x, 2, axis=1)[:, ::2],
            lambda x: np.broadcast_to(x, x.shape),
        ],
        ids=["big-endian", "strides", "fortran", "every second row", "read-only"],
    )
    def test_layouts(self, change):
        layer = make("LSTM", 2, True)
        x = np.random.default_rng(0).standard_normal((6, 5, 3))
        for options in ({}, {"lengths": LENGTHS}):
            expected = layer(x, **options)[0]
            assert np.array_equal(layer(change(x), **options)[0], expected)
            trace = layer.trace(change(x), **options)
            assert np.array_equal(trace.output, expected)
            d = np.random.default_rng(1).standard_normal(expected.shape)
            wanted = layer.backward(layer.trace(x, **options), d)
            assert np.array_equal(layer.backward(trace, change(d)).theta, wanted.theta)

    def test_half_precision(self):
        layer = make("GRU", 2, True, dtype="float32")
        x = np.random.default_rng(0).standard_normal((6, 5, 3)).astype(np.float16)
        assert np.array_equal(layer(x, lengths=LENGTHS)[0], layer(x.astype(np.float32), lengths=LENGTHS)[0])

    @pytest.mark.parametrize(("kind", "shape"), list(itertools.product(KINDS, [(0, 4), (5, 0), (0, 0)])))
    def test_empties(self, kind, shape):
        rng = np.random.default_rng(0)
        layer = make(kind, 2, True)
        x, h0 = np.zeros((*shape, 3)), initial(layer, rng, shape[1])
        for options in ({}, {"lengths": np.zeros(shape[1], int)}, {"reset": np.ones(shape, bool)}):
            output, hn = layer(x, h0, **options)
            assert output.shape == (*shape, layer.output_size)
            assert same(hn, h0)
            grads = layer.backward(layer.trace(x, h0, **options), output, h0)
            assert not grads.theta.any()
            assert same(grads.h0, h0)
        outputs, _ = layer([])
        assert outputs == []
        noisy = make(kind, 2, True, dropout=0.2, zoneout=0.2, recurrent_dropout=0.2, learn_initial_state=True)
        for options in ({}, {"reset": np.ones(shape, bool)}):
            trace = noisy.trace(x, h0, training=True, rng=0, **options)
            assert not noisy.backward(trace, output).params["weight_hh_l0"].any()

    @pytest.mark.parametrize("kind", KINDS)
    def test_sequences_of_no_steps_keep_their_state(self, kind):
        rng = np.random.default_rng(0)
        layer = make(kind, 2, True)
        x, h0 = rng.standard_normal((6, 5, 3)), initial(layer, rng)
        output, hn = layer(x, h0, lengths=LENGTHS)
        assert same(of_row(hn, 1), of_row(h0, 1))
        d_hn = initial(layer, rng)
        grads = layer.backward(layer.trace(x, h0, lengths=LENGTHS), np.ones(output.shape), d_hn)
        assert same(of_row(grads.h0, 1), of_row(d_hn, 1))

    def test_final_states_are_the_callers_own(self):
        layer = make("LSTM", 2, True)
        x = np.random.default_rng(0).standard_normal((6, 5, 3))
        h0 = initial(layer, np.random.default_rng(1))
        for T in (6, 0):
            for hn in (layer(x[:T], h0)[1], layer.trace(x[:T], h0).hn):
                before = [part.copy() for part in hn]
                layer(2 * x, h0)
                layer.trace(2 * x, h0)
                assert same(hn, tuple(before))
                assert not any(np.shares_memory(a, b) for a in hn for b in h0)

    def test_weights_edited_in_place_count_at_once(self):
        layer = make("GRU", 2, True)
        x = np.random.default_rng(0).standard_normal((6, 5, 3))
        before, _ = layer(x)
        layer.params["weight_hh_l1_reverse"][0, 0] += 1
        after, _ = layer(x)
        assert not np.array_equal(before, after)
        layer.params["weight_hh_l1_reverse"][0, 0] -= 1
        np.testing.assert_allclose(layer(x)[0], before, rtol=1e-12)


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        (lambda: elman.LSTM(3, 4, forget_bias="a"), DTypeError, "forget_bias must be a number"),
        (lambda: elman.LSTM(3, 4, forget_bias=np.ones(4)), DTypeError, "forget_bias must be a number"),
        (lambda: elman.LSTM(3, 4, bias=False, forget_bias=2.0), ArgumentError, "forget_bias must be left out"),
        (lambda: elman.LSTM(3, "a", proj_size=2), DTypeError, "hidden_size must be an integer"),
        (lambda: elman.RNN(3, 4, nonlinearity=np.array(["tanh"])), DTypeError, "nonlinearity must be one of"),
        (lambda: elman.GRU(3, 4, reset_after=None), DTypeError, "reset_after must be True or False"),
        (lambda: elman.GRU(3, 4, bidirectional="no"), DTypeError, "bidirectional must be True or False"),
    ],
)
def test_options_of_a_wrong_kind_are_refused(build, error, words):
    with pytest.raises(error, match=words):
        build()


def test_numbers_beyond_float32_are_refused_by_a_stepper():
    stepper = make("GRU", dtype="float32").stepper()
    with pytest.raises(NonFiniteError, match="gru_l0"):
        stepper(np.full(3, 1e300))


def test_lists_of_one_length_are_linearized():
    layer = make("GRU")
    x = [np.ones((5, 3)), np.zeros((5, 3))]
    assert layer.linearize(x).n_steps == 5
    with pytest.raises(ArgumentError, match="several lengths"):
        layer.linearize([np.ones((5, 3)), np.zeros((4, 3))])


@pytest.mark.parametrize(("kind", "zoneout"), list(itertools.product(KINDS, (0.0, 0.3))))
def test_what_each_step_adds_to_the_weights_gradient(kind, zoneout):
    """The term of step t is what is left if only that step's inputs to the recurrent product see a changed W_hh."""
    rng = np.random.default_rng(0)
    layer = make(kind, 2, True, zoneout=zoneout)
    x = rng.standard_normal((5, 3, 3))
    trace = layer.trace(x, training=False)
    d = rng.standard_normal(trace.output.shape)
    norms = layer.weight_norms(trace, d)
    assert norms.shape == (4, 5)
    grads = layer.backward(trace, d)
    total = [np.linalg.norm(grads.params[f"weight_hh{s}"]) for s in ("_l0", "_l0_reverse", "_l1", "_l1_reverse")]
    assert (norms.sum(axis=1) >= np.array(total) * (1 - 1e-12)).all()
    # with one step there is one term
    one = layer.trace(x[:1], initial(layer, rng, 3), training=False)
    of_one = layer.backward(one, d[:1])
    expected = [[np.linalg.norm(of_one.params[f"weight_hh{s}"])] for s in ("_l0", "_l0_reverse", "_l1", "_l1_reverse")]
    np.testing.assert_allclose(layer.weight_norms(one, d[:1]), expected, rtol=1e-12)
    if kind in ("tanh", "relu") and not zoneout:
        single = make(kind)
        trace = single.trace(x)
        d = rng.standard_normal(trace.output.shape)
        h, W = trace.states["h_l0"], single.params["weight_hh_l0"]
        d_h = np.zeros((3, 7))
        for t in reversed(range(5)):
            slope = 1 - h[t + 1] ** 2 if kind == "tanh" else (h[t + 1] > 0).astype(float)
            delta = (d_h + d[t]) * slope
            expected = np.linalg.norm(delta.T @ h[t])
            np.testing.assert_allclose(single.weight_norms(trace, d)[0, t], expected, rtol=1e-12, atol=1e-15)
            d_h = delta @ W
    with pytest.raises(ArgumentError, match="sequences of one length"):
        layer.weight_norms(layer.trace(x, lengths=[5, 4, 5], training=False))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_readout_with_a_bias_gives_zero_in_the_padding(dtype):
    rng = np.random.default_rng(0)
    net = elman.Network(elman.GRU(3, 7, rng=0, dtype=dtype), elman.Readout(7, 2, rng=1, dtype=dtype))
    net.params["readout.bias"][:] = [5.0, -3.0]
    x = rng.standard_normal((6, 5, 3)).astype(dtype)
    for output in (net(x, lengths=LENGTHS)[0], net.trace(x, lengths=LENGTHS).output):
        for b, n in enumerate(LENGTHS):
            assert (output[n:, b] == 0).all()
            assert (output[:n, b] != 0).all()


def test_an_overflow_of_the_readouts_gradient_alone_is_refused():
    """Its weight is 0, so that nothing goes on to the layer; its bias adds up two gradients of 3e38."""
    net = elman.Network(elman.RNN(2, 3, rng=0, dtype="float32"), elman.Readout(3, 1, rng=1, dtype="float32"))
    net.params["readout.weight"][:] = 0
    trace = net.trace(np.ones((4, 1, 2), np.float32))
    d = np.zeros((4, 1, 1), np.float32)
    d[:1] = 3e38
    assert np.isfinite(net.backward(trace, d).theta).all()
    d[1:] = 3e38
    with pytest.raises(NonFiniteError, match="gradient of the readout's parameters overflows") as caught:
        net.backward(trace, d)
    assert (caught.value.what, caught.value.layer) == ("gradient", "readout")


def test_an_overflow_of_the_inputs_gradient_alone_is_refused():
    """At x = h0 = 0 the weights have no gradient and the bias a finite one; dL/dx is 1e300 * 1e100."""
    layer = elman.RNN(2, 3, nonlinearity="identity", bias_init="zeros", rng=0)
    layer.params["weight_ih_l0"][:] = 1e300
    d = np.full((1, 1, 3), 1e100)
    trace = layer.trace(np.zeros((1, 1, 2)))
    assert np.isfinite(layer.backward(trace, d, need_x=False).theta).all()
    with pytest.raises(NonFiniteError, match="gradient of x overflows"):
        layer.backward(trace, d, need_x=True)
    readout = elman.Readout(3, 2, rng=0)
    readout.params["weight"][:] = 1e300
    with pytest.raises(NonFiniteError, match="Readout: the gradient overflows"):
        readout.backward(readout.trace(np.zeros((1, 3))), np.full((1, 2), 1e100))


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_sequence_with_a_restart_at_0_keeps_the_given_state(kind):
    """No step reads the restart: hn is h0 and dL/dh0 is dL/dhn, while a sequence with steps forgets h0."""
    rng = np.random.default_rng(0)
    layer = make(kind)
    x, h0, reset = rng.standard_normal((6, 5, 3)), initial(layer, rng), np.zeros((6, 5), bool)
    reset[0, :3] = True
    assert LENGTHS[:3].tolist() == [3, 0, 6]
    _, hn = layer(x, h0, lengths=LENGTHS, reset=reset)
    d_hn = initial(layer, rng)
    grads = layer.backward(layer.trace(x, h0, lengths=LENGTHS, reset=reset), d_hn=d_hn)
    for last, first, inward, d_first in zip(*map(tupled, (hn, h0, d_hn, grads.h0)), strict=True):
        assert np.array_equal(last[:, 1], first[:, 1])
        assert np.array_equal(d_first[:, 1], inward[:, 1])
        assert (d_first[:, [0, 2]] == 0).all()
        assert (d_first[:, 3:] != 0).any()


@pytest.mark.parametrize("value", [1, 0, "yes", None])
@pytest.mark.parametrize("kind", KINDS)
def test_batch_first_is_true_or_false_and_not_a_number(kind, value):
    with pytest.raises(DTypeError, match="batch_first must be True or False, got"):
        make(kind, batch_first=value)
