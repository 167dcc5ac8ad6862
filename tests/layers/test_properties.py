"""Whatever the sizes, lengths, restarts, windows and chunks: numbers of the twin, and the bits of the plain call."""

from __future__ import annotations

import naive
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import elman

H_MOST, T_MOST, B_MOST = 19, 9, 6
STEPS = {
    "tanh": lambda params, x, h: np.tanh(
        x @ params["weight_ih_l0"].T + params["bias_ih_l0"] + h @ params["weight_hh_l0"].T + params["bias_hh_l0"]
    ),
    "LSTM": naive.lstm_step,
    "GRU": naive.gru_step,
    "GRU-before": naive.gru_reset_before_step,
    "MGU": naive.mgu_step,
}
BUILD = {
    "tanh": elman.RNN,
    "LSTM": elman.LSTM,
    "GRU": elman.GRU,
    "GRU-before": lambda *sizes, **options: elman.GRU(*sizes, reset_after=False, **options),
    "MGU": elman.MGU,
}


@st.composite
def problems(draw, dtypes=("float32", "float64")):
    """A layer with random weights, sequences of several lengths, and where they start anew."""
    kind, dtype = draw(st.sampled_from(sorted(STEPS))), draw(st.sampled_from(dtypes))
    T, B, D = draw(st.integers(0, T_MOST)), draw(st.integers(0, B_MOST)), draw(st.integers(0, 5))
    layer = BUILD[kind](D, draw(st.integers(1, H_MOST)), dtype=dtype, rng=0)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    layer.theta[:] = rng.uniform(-0.8, 0.8, layer.theta.size)
    x = rng.standard_normal((T, B, D)).astype(dtype)
    lengths = np.array(draw(st.lists(st.integers(0, T), min_size=B, max_size=B)), np.intp)
    reset = draw(st.none() | st.just(rng.random((T, B)) < 0.3))
    return kind, layer, x, lengths, reset


def states(hn):
    """The parts of a final state side by side, (B, S)."""
    return np.concatenate([part[0] for part in (hn if isinstance(hn, tuple) else (hn,))], axis=1)


def stepped(kind, layer, x, lengths, reset):
    """Outputs (T, B, H) and final states (B, S) by the twin, one step of one sequence after the other, in float64."""
    params = {name: value.astype(np.float64) for name, value in layer.params.items()}
    H, S = layer.hidden_size, layer.linearize(np.zeros((1, 1, layer.input_size), layer.dtype)).state_size
    output, final = np.zeros((*x.shape[:2], H)), np.zeros((x.shape[1], S))
    for b, n in enumerate(lengths):
        state = np.zeros((1, S))
        for t in range(n):
            if reset is not None and reset[t, b]:
                state = np.zeros((1, S))
            state = STEPS[kind](params, x[t, b : b + 1].astype(np.float64), state)
            output[t, b] = state[0, :H]
        final[b] = state[0]
    return output, final


@given(problems())
def test_outputs_and_final_states_are_the_twins(problem):
    kind, layer, x, lengths, reset = problem
    output, hn = layer(x, lengths=lengths, reset=reset)
    expected, final = stepped(kind, layer, x, lengths, reset)
    atol = 2e-5 if layer.dtype == np.float32 else 1e-12
    np.testing.assert_allclose(output, expected, rtol=0, atol=atol)
    np.testing.assert_allclose(states(hn), final, rtol=0, atol=atol)


@given(problems(), st.data())
def test_chunks_with_carried_state_and_parts_of_a_batch_have_the_same_bits(problem, data):
    _, layer, x, lengths, reset = problem
    T, B = x.shape[:2]
    output, hn = layer(x, lengths=lengths, reset=reset)
    cut, row = data.draw(st.integers(0, T)), data.draw(st.integers(0, B))
    pieces, state = [], None
    for a, b in ((0, cut), (cut, T)):
        piece, state = layer(
            x[a:b], state, lengths=np.clip(lengths - a, 0, b - a), reset=None if reset is None else reset[a:b]
        )
        pieces.append(piece)
    np.testing.assert_array_equal(np.concatenate(pieces), output)
    np.testing.assert_array_equal(states(state), states(hn))
    part, last = layer(x[:, row:], lengths=lengths[row:], reset=None if reset is None else reset[:, row:])
    np.testing.assert_array_equal(part, output[:, row:])
    np.testing.assert_array_equal(states(last), states(hn)[row:])


@given(problems(), st.integers(1, T_MOST))
def test_gradients_do_not_depend_on_padding_or_checkpoints(problem, checkpoint):
    _, layer, x, lengths, reset = problem
    rng = np.random.default_rng(0)
    d_output = rng.standard_normal((*x.shape[:2], layer.hidden_size)).astype(layer.dtype)
    outside = np.arange(x.shape[0])[:, None] >= lengths
    plain = layer.backward(layer.trace(x, lengths=lengths, reset=reset), d_output, need_x=True)
    for array in (x, d_output):
        array[outside] = np.nan
    trace = layer.trace(x, lengths=lengths, reset=reset, checkpoint=checkpoint)
    other = layer.backward(trace, d_output, need_x=True)
    np.testing.assert_array_equal(other.theta, plain.theta)
    np.testing.assert_array_equal(other.x, plain.x)
    assert not other.x[outside].any()


@given(problems(dtypes=("float64",)), st.integers(0, 2**32))
def test_gradients_are_the_twins_differences(problem, seed):
    """Along one random direction of weights and inputs, by central differences of the twin."""
    kind, layer, x, lengths, reset = problem
    rng = np.random.default_rng(seed)
    d_output = rng.standard_normal((*x.shape[:2], layer.hidden_size))
    grads = layer.backward(layer.trace(x, lengths=lengths, reset=reset), d_output, need_x=True)
    theta, direction, d_x = layer.theta.copy(), rng.standard_normal(layer.theta.size), rng.standard_normal(x.shape)

    def loss(step):
        layer.theta[:] = theta + step * direction
        return (d_output * stepped(kind, layer, x + step * d_x, lengths, reset)[0]).sum()

    step = 1e-6
    difference = (loss(step) - loss(-step)) / (2 * step)
    ours = grads.theta @ direction + (grads.x * d_x).sum()
    assert abs(ours - difference) < 1e-8 * (1 + abs(ours) + np.abs(d_output).sum())
