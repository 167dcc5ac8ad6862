"""JAX: a jitted ``lax.scan`` with the input projected before it, and its ``vjp``."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from ..cases import Array, Case
from .side import Side

UNROLLS = (1, 4)
"""Steps in one turn of the loop, of which the faster is taken."""

SHORT_STEP = 4096
"""Numbers in a state up to which a turn's own cost may count, so that unrolling is tried."""


class Jax(Side):
    """The equations as one writes them in JAX; weights lie transposed, (D, G) and (H, G), so that rows are samples."""

    def __init__(self, threads: int) -> None:
        import jax

        self.jax = jax  # threads follow the cores that the process may use and, in a worker, XLA_FLAGS

    def version(self) -> str:
        return f"jax {self.jax.__version__}"

    def load(self, case: Case) -> None:
        jax = self.jax
        jax.clear_caches()
        jax.config.update("jax_enable_x64", case.x.dtype == np.float64)
        w_ih, w_hh, b_ih, b_hh = case.weights.values()
        # copies of the transposes, as they would have been trained
        weights = {"w_ih": w_ih.T.copy(), "w_hh": w_hh.T.copy(), "b_ih": b_ih, "b_hh": b_hh}
        self.weights, self.x, self.d_output = jax.device_put((weights, case.x, case.d_output))
        self.lengths = None if case.lengths is None else jax.device_put(case.lengths)
        self.cell = STEPS[case.cell]
        self.state = self.zero = self.cell.zero(jax, case.x.shape[1], case.hidden_size, case.x.dtype)
        self.one_step = jax.jit(lambda w, state, x: self.cell.step(jax, w, state, self.cell.project(w, x)))
        self.choose_unroll(case)

    def choose_unroll(self, case: Case) -> None:
        """Compile with each candidate and keep the faster in inference."""
        short = case.x.shape[1] * case.hidden_size <= SHORT_STEP
        times = {}
        for unroll in UNROLLS if short else UNROLLS[:1]:
            self.build(unroll)
            self.forward()
            start = time.perf_counter()
            self.forward()
            times[unroll] = time.perf_counter() - start, self.compiled
        self.compiled = min(times.values(), key=lambda entry: entry[0])[1]

    def build(self, unroll: int) -> None:
        """Both passes, jitted."""
        jax = self.jax

        def run(weights: Any, x: Any, lengths: Any) -> Any:
            return scan(jax, self.cell, weights, x, lengths, self.zero, unroll)

        def both(weights: Any, x: Any, lengths: Any, d_output: Any) -> Any:
            output, pull = jax.vjp(lambda w, x: run(w, x, lengths)[1], weights, x)
            return output, pull(d_output)

        self.compiled = jax.jit(run), jax.jit(both)

    def forward(self) -> Any:
        return self.jax.block_until_ready(self.compiled[0](self.weights, self.x, self.lengths))

    def forward_backward(self) -> Any:
        return self.jax.block_until_ready(self.compiled[1](self.weights, self.x, self.lengths, self.d_output))

    def start_stream(self) -> list[Any]:
        self.state = self.zero
        return list(self.x)

    def step(self, x_t: Any) -> Any:
        self.state = self.jax.block_until_ready(self.one_step(self.weights, self.state, x_t))
        return self.state

    def arrays(self, name: str, result: Any) -> dict[str, Array]:
        if name == "forward":
            states, output = result
            named = {key: state[None] for key, state in zip(("hn", "cn"), states, strict=False)}
        else:
            output, (d, d_x) = result
            d_weights = d["w_ih"].T, d["w_hh"].T, d["b_ih"], d["b_hh"]
            named = {f"d_{key}": value for key, value in zip(self.case.weights, d_weights, strict=True)} | {"d_x": d_x}
        return {key: np.asarray(value) for key, value in ({"output": output} | named).items()}

    def output(self, result: Any) -> Array:
        return np.asarray(result[0])


def scan(jax: Any, cell: Any, weights: Any, x: Any, lengths: Any, zero: Any, unroll: int) -> Any:
    """Final states and output; with lengths, states hold and the output is zero beyond them."""

    def one(state: Any, step: Any) -> Any:
        t, projected = step
        new = cell.step(jax, weights, state, projected)
        if lengths is None:
            return new, new[0]
        valid = (t < lengths)[:, None]
        held = tuple(jax.numpy.where(valid, a, b) for a, b in zip(new, state, strict=True))
        return held, jax.numpy.where(valid, new[0], 0)

    steps = jax.numpy.arange(len(x)), cell.project(weights, x)
    return jax.lax.scan(one, zero, steps, unroll=unroll)


class Rnn:
    """h' = tanh(a) with both biases in the projection."""

    states = 1

    @classmethod
    def zero(cls, jax: Any, *shape_and_dtype: Any) -> Any:
        """Initial states (B, H)."""
        *shape, dtype = shape_and_dtype
        return (jax.numpy.zeros(shape, dtype),) * cls.states

    @staticmethod
    def project(w: Any, x: Any) -> Any:
        """The part of the pre-activations that no state enters."""
        return x @ w["w_ih"] + (w["b_ih"] + w["b_hh"])

    @staticmethod
    def step(jax: Any, w: Any, state: Any, projected: Any) -> Any:
        """States after one step."""
        return (jax.numpy.tanh(projected + state[0] @ w["w_hh"]),)


class Lstm(Rnn):
    """Gates i, f, g, o."""

    states = 2

    @staticmethod
    def step(jax: Any, w: Any, state: Any, projected: Any) -> Any:
        h, c = state
        i, f, g, o = jax.numpy.split(projected + h @ w["w_hh"], 4, axis=-1)
        sigmoid, tanh = jax.nn.sigmoid, jax.numpy.tanh
        c = sigmoid(f) * c + sigmoid(i) * tanh(g)
        return sigmoid(o) * tanh(c), c


class Gru(Rnn):
    """Gates r, z, n; the reset acts after the product, whose bias it scales."""

    @staticmethod
    def project(w: Any, x: Any) -> Any:
        return x @ w["w_ih"] + w["b_ih"]

    @staticmethod
    def step(jax: Any, w: Any, state: Any, projected: Any) -> Any:
        (h,) = state
        r_in, z_in, n_in = jax.numpy.split(projected, 3, axis=-1)
        r_hh, z_hh, n_hh = jax.numpy.split(h @ w["w_hh"] + w["b_hh"], 3, axis=-1)
        r, z = jax.nn.sigmoid(r_in + r_hh), jax.nn.sigmoid(z_in + z_hh)
        n = jax.numpy.tanh(n_in + r * n_hh)
        return ((1 - z) * n + z * h,)


STEPS: dict[str, type[Rnn]] = {"RNN": Rnn, "LSTM": Lstm, "GRU": Gru}
