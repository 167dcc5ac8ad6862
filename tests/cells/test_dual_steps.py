"""Steps on dual numbers: values are those of the layer, derivatives those of differences."""

from __future__ import annotations

import numpy as np
import pytest

import elman
from elman import cells
from elman.cells.dual_steps import backward_dual, forward_dual, step_of
from elman.layers.engine.buffers import Fresh
from elman.layers.recurrent import Recurrent

CELLS = [
    (cells.ELMAN, "tanh"), (cells.ELMAN, "relu"), (cells.ELMAN, "sigmoid"), (cells.ELMAN, "identity"),
    (cells.LSTM, "lstm"), (cells.LSTM_PROJECTED, "projected"), (cells.GRU, "reset_after"),
    (cells.GRU_RESET_BEFORE, "reset_before"), (cells.MGU, "mgu"),
]  # fmt: skip
N, D, H = 3, 2, 5
STEP = 1e-6


class Steps:
    """One step of a random layer, forwards and backwards."""

    def __init__(self, cell, variant):
        layer = Recurrent(cell, variant, D, H, proj_size=3 if cell.projects else 0, rng=0)
        layer.theta[:] = np.random.default_rng(1).uniform(-0.6, 0.6, layer.theta.size)
        self.layer, self.layout, self.cell = layer, layer.stack.layouts[0], cell
        self.panels = self.layout.panels(layer.params, Fresh())
        self.back = self.layout.pack_state_back(layer.params, Fresh())

    def rows(self, v):
        out = np.zeros(N * self.layout.s_rs)
        self.layout.vector_in(v, out)
        return out

    def forward(self, x, s, v_x, v):
        """Rows of the state before, the state after and the gates, each with its tangent."""
        layout, p = self.layout, self.panels
        out = [self.rows(s), self.rows(v), *(np.zeros(N * layout.s_rs) for _ in range(2))]
        out += [np.zeros(N * layout.g_rs) for _ in range(2)]
        finite = forward_dual(step_of(self.cell.forward))(
            layout.code, N, x.ravel(), v_x.ravel(), D, p.P_ih, p.P_hh, p.bias, *out[:4], layout.s_rs, *out[4:],
            layout.g_rs, D, H, layout.R,
        )  # fmt: skip
        assert finite == 1
        return out

    def backward(self, made, u, w):
        """Both parts of the gradient of the state before, and of delta."""
        layout, (before, v_before, after, v_after, gates, v_gates) = self.layout, made
        u, w, delta, v_delta = self.rows(u), self.rows(w), *(np.zeros(N * layout.d_rs) for _ in range(2))
        backward_dual(step_of(self.cell.backward))(
            layout.code, N, self.back, gates, v_gates, layout.g_rs, before, v_before, after, v_after, layout.s_rs, u, w,
            delta, v_delta, layout.d_rs, np.zeros(N * layout.n_states), H, layout.R,
        )  # fmt: skip
        return u, w, delta, v_delta


@pytest.fixture(params=CELLS, ids=[variant for _, variant in CELLS])
def steps(request):
    return Steps(*request.param)


@pytest.fixture
def drawn(steps):
    rng = np.random.default_rng(2)
    S = steps.layout.state_size
    return [rng.standard_normal((N, n)) for n in (D, S, D, S, S, S)]


def close(value, exact):
    np.testing.assert_allclose(value, exact, rtol=0, atol=3e-9 * max(1.0, np.abs(exact).max(initial=0.0)))


def test_the_value_is_the_layer_s(steps, drawn):
    x, s, v_x, v, *_ = drawn
    after = steps.layout.vector_out(steps.forward(x, s, v_x, v)[2], N)
    sizes = np.cumsum(steps.layout.state_sizes)[:-1]
    h0 = [part[None] for part in np.split(s, sizes, axis=1)]
    _, hn = steps.layer(x[None], h0[0] if len(h0) == 1 else tuple(h0))
    made = np.concatenate([part[0] for part in (hn if isinstance(hn, tuple) else (hn,))], axis=1)
    np.testing.assert_allclose(after, made, rtol=1e-14, atol=1e-15)


def test_forward_derivatives_are_those_of_differences(steps, drawn):
    x, s, v_x, v, *_ = drawn
    out = steps.forward(x, s, v_x, v)
    up, down = (steps.forward(x + e * v_x, s + e * v, v_x, v) for e in (STEP, -STEP))
    for k in (2, 4):
        close((up[k] - down[k]) / (2 * STEP), out[k + 1])


def test_second_derivatives_are_those_of_differences_of_first_ones(steps, drawn):
    x, s, v_x, v, u, w = drawn
    out = steps.backward(steps.forward(x, s, v_x, v), u, w)
    up, down = (
        steps.backward(steps.forward(x + e * v_x, s + e * v, v_x, v), u + e * w, w) for e in (STEP, -STEP)
    )  # fmt: skip
    for k in (0, 2):
        close((up[k] - down[k]) / (2 * STEP), out[k + 1])


def test_the_first_part_is_the_gradient_without_tangents(steps, drawn):
    x, s, v_x, v, u, w = drawn
    made = steps.forward(x, s, v_x, v)
    sizes = np.cumsum(steps.layout.state_sizes)[:-1]
    h0 = [part[None] for part in np.split(s, sizes, axis=1)]
    lin = steps.layer.linearize(x[None], h0[0] if len(h0) == 1 else tuple(h0))
    pulled = steps.layout.vector_out(steps.backward(made, u, w)[0], N)
    np.testing.assert_allclose(pulled, lin.vjp(u[:, None], 0, 1)[:, 0], rtol=1e-12, atol=1e-14)


def test_a_cell_written_as_a_loop_has_no_step():
    assert step_of(lambda *a: None) is None
    assert elman.cells.LSTM.forward is cells.LSTM.forward
