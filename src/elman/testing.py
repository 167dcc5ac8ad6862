"""Checks for people who add cells or layers: derivatives against differences, and bitwise promises.

Each function returns nothing, and raises AssertionError with what was compared and by how much it differed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .cells import Cell
from .errors import DTypeError, NonFiniteError
from .kernels import parallel
from .kernels.activations import FORMULAS
from .kernels.parallel import get_num_threads, set_num_threads
from .kernels.vector import ArrayOps
from .layers.engine.buffers import Fresh
from .layers.engine.views import state_slots
from .layers.recurrent import Recurrent
from .linearization import Linearization
from .states import mapped, parts
from .validation.arrays import real_numbers
from .validation.rng import generator
from .validation.scalars import number, size
from .validation.words import kind

Array = NDArray[Any]
Step = Callable[[Mapping[str, Array], Array, Array], Array]


def check_adjoint(lin: Linearization, *, vectors: int = 3, rtol: float = 1e-12, rng: Any = 0) -> None:
    r"""Assert that vjp is the transpose of jvp, and that both are the products of :meth:`Linearization.jacobian`.

    For random vectors, :math:`\langle u, J v\rangle = \langle J^T u, v\rangle` over the whole trajectory and over
    windows of one step; J v of one step against the dense Jacobian.

    Parameters
    ----------
    lin : Linearization
        What to check; at least one step.
    vectors : int, default 3
        Vectors K for each sequence.
    rtol : float, default 1e-12
        Largest allowed difference relative to ``|u| |J v|``; about 1e-4 is right for float32.
    rng : None, int or numpy.random.Generator
        Source of the vectors.

    Raises
    ------
    AssertionError
        With the window and the difference.
    """
    rng = generator(rng)
    vectors, rtol = size(vectors, "vectors"), number(rtol, "rtol")
    n, S, T = lin.n_sequences, lin.state_size, lin.n_steps
    for t0, t1 in [(0, T), (0, 1), (T - 1, T), (T // 2, T // 2 + 1)]:
        u, v = rng.standard_normal((2, n, vectors, S)).astype(lin.dtype)
        pushed, pulled = lin.jvp(v, t0, t1).astype(np.float64), lin.vjp(u, t0, t1).astype(np.float64)
        left, right = (u * pushed).sum(-1), (pulled * v).sum(-1)
        scale = np.linalg.norm(u, axis=-1) * np.linalg.norm(pushed, axis=-1) + np.finfo(float).tiny
        worst = float((abs(left - right) / scale).max())
        assert worst <= rtol, f"<u, J v> and <J^T u, v> differ by {worst:.2e} |u| |J v| over the steps [{t0}, {t1})"
        if t1 == t0 + 1:
            dense = np.stack([v[i].astype(np.float64) @ lin.jacobian(t0, i).astype(np.float64).T for i in range(n)])
            _assert_close(pushed, dense, rtol, f"jvp of step {t0} and the dense Jacobian")


def check_gradients(
    model: Any, x: ArrayLike, h0: Any = None, *, directions: int = 4, rtol: float = 1e-7, rng: Any = 0, **options: Any
) -> None:
    """Assert that ``model.backward`` gives the derivatives of ``model.trace``, along random directions.

    The scalar is a random linear function of output and final state; its derivative along random directions of
    parameters, input and initial state is compared with central differences of fourth order.

    Parameters
    ----------
    model : layer, network or MLP of elman, in float64
        What to check.
    x : array_like
        Input, as the model takes it.
    h0 : array_like or tuple of array_like, optional
        Initial state.
    directions : int, default 4
        Number of directions for each kind of argument.
    rtol : float, default 1e-7
        Largest allowed relative difference: what differences in float64 can resolve.
    rng : None, int or numpy.random.Generator
        Source of the directions and of the weights of the scalar.
    **options
        Further arguments of ``model.trace``, such as ``lengths``, ``reset`` or ``training=True``; every training pass
        then draws the same random numbers.

    Raises
    ------
    AssertionError
        With the argument and the difference.
    """
    rng = generator(rng)
    x = real_numbers(x, "x").astype(np.float64)
    if options.get("training"):
        options["rng"] = int(rng.integers(2**32))
    trace = model.trace(x, h0, **options)
    d_output, d_finals = (
        rng.standard_normal(trace.output.shape),
        [rng.standard_normal(a.shape) for a in parts(trace.hn)],
    )

    def scalar() -> float:
        now = model.trace(x, h0, **options)
        finals = sum((d * a).sum() for d, a in zip(d_finals, parts(now.hn), strict=True))
        return float((d_output * now.output).sum() + finals)

    if d_finals:
        d_hn = tuple(d_finals) if len(d_finals) > 1 else d_finals[0]
        grads = model.backward(trace, d_output, d_hn, need_x=True)
    else:
        grads = model.backward(trace, d_output)
    arguments = {"theta": (model.theta, grads.theta), "x": (x, grads.x)}
    if h0 is not None:
        h0 = mapped(lambda part: real_numbers(part, "h0").astype(np.float64), h0)
        arguments |= {f"h0[{i}]": pair for i, pair in enumerate(zip(parts(h0), parts(grads.h0), strict=True))}
    for name, (value, gradient) in arguments.items():
        if not value.size:
            continue
        scale = np.linalg.norm(gradient) + np.finfo(float).tiny
        for _ in range(directions):
            d = rng.standard_normal(value.shape)
            d /= np.linalg.norm(d)
            expected, got = _difference(scalar, value, d), float((gradient * d).sum())
            error = abs(got - expected) / scale
            assert error <= rtol, (
                f"the derivative by {name} is {got:.12g}, differences say {expected:.12g} ({error:.1e})"
            )


def _difference(scalar: Callable[[], float], value: Array, d: Array, h: float = 1e-5) -> float:
    """Central difference of fourth order along d; ``value`` is changed in place and restored.

    The step is short because a relu has a kink, which a long step would often cross.
    """
    start = value.copy()
    at = {}
    for k in (-2, -1, 1, 2):
        value[...] = start + k * h * d
        at[k] = scalar()
    value[...] = start
    return (at[-2] - 8 * at[-1] + 8 * at[1] - at[2]) / (12 * h)


def check_cell(cell: Cell, variant: str | None = None, *, step: Step | None = None, rng: Any = 0) -> None:
    """Assert all that a cell promises (:mod:`elman.cells.cell`).

    Forward is compared with ``step``; Jacobian, tangent and gradients with differences; backward with the transpose of
    tangent; bits alone with those in a batch, in chunks, beside longer sequences, and with one to three threads; also
    checked are the norms that kernels record, the report of a state that is not finite, and what the record says about
    the gates.

    Parameters
    ----------
    cell : Cell
        The record.
    variant : str, optional
        One of ``cell.variants``; all of them by default.
    step : callable, optional
        ``step(params, x, state) -> state``: one step written from the equation in plain NumPy, on arrays x (B, D) and
        state (B, S), with ``params`` under PyTorch's names (suffix ``_l0``).
    rng : None, int or numpy.random.Generator
        Source of weights and inputs.

    Raises
    ------
    AssertionError
        With what failed.
    DTypeError
        If it is not a cell.
    """
    if not isinstance(cell, Cell):
        raise DTypeError(f"cell must be an elman.cells.Cell, such as elman.cells.LSTM, got {kind(cell)}")
    rng = generator(rng)
    with _two_threads():
        for name in cell.variants if variant is None else (variant,):
            for dtype in ("float64", "float32"):
                layer = _layer(cell, name, 5, 19, dtype, rng)
                x = rng.standard_normal((7, 6, 5)).astype(dtype)
                h0 = _state(layer, rng, 6)
                if step is not None:
                    _check_forward(layer, step, x, h0)
                check_adjoint(layer.linearize(x, h0), rtol=1e-12 if dtype == "float64" else 1e-5)
                _check_bits(layer, rng)
                _check_lengths(layer, rng)
            layer = _layer(cell, name, 5, 19, "float64", rng)
            h0 = _state(layer, rng, 6)
            check_gradients(layer, x, h0, rng=rng)
            _check_jacobian(layer, x[:1].astype(np.float64), h0)
            stack = _layer(cell, name, 5, 11, "float64", rng, layers=2)
            check_adjoint(stack.linearize(x))
            _check_norms(layer.linearize(x, h0), rng)
            _check_failure(layer, x)
            _check_gates(layer, x.astype(np.float64))


@contextmanager
def _two_threads() -> Iterator[None]:
    """Split all work into slabs, however small, so that a kernel that ignores where its slab begins is found out."""
    threads, least = get_num_threads(), parallel.SPLIT_FLOPS
    set_num_threads(2)
    parallel.SPLIT_FLOPS = 0
    try:
        yield
    finally:
        set_num_threads(threads)
        parallel.SPLIT_FLOPS = least


def _check_norms(lin: Linearization, rng: np.random.Generator) -> None:
    """Compare the norms that kernels record with those of the vectors that windows of the same length give."""
    n, S, T = lin.n_sequences, lin.state_size, lin.n_steps
    v = rng.standard_normal((n, 2, S))
    pushed, pulled = np.empty((T, n, 2)), np.empty((T, n, 2))
    lin.jvp(v, norms=pushed)
    lin.vjp(v, norms=pulled)
    for t in range(T):
        expected = np.linalg.norm(lin.jvp(v, 0, t + 1), axis=2)
        _assert_close(pushed[t], expected, 1e-12, f"the norms of tangents after step {t} and those of the vectors")
        expected = np.linalg.norm(lin.vjp(v, T - 1 - t, T), axis=2)
        _assert_close(pulled[t], expected, 1e-12, f"the norms of gradients {t + 1} steps back and those of the vectors")


def _check_failure(layer: Recurrent, x: Array) -> None:
    """A state that stops being finite is reported, whichever weight causes it.

    The kernels are given weights that the layer itself would refuse.
    """
    batch = layer.batch(x)
    for view in layer.params.values():
        kept = view.copy()
        for block in np.split(view, layer.stack.layouts[0].n_gates) if len(view) % layer.hidden_size == 0 else [view]:
            block[...] = np.nan
            try:
                layer.stack.forward(layer.params, batch, None, False, None, Fresh(), None)
            except NonFiniteError:
                pass
            else:
                raise AssertionError("forward must return the first step whose state is not finite, and returned -1")
            view[...] = kept


def _check_gates(layer: Recurrent, x: Array) -> None:
    """Check what the record says about its gates, with W_hh = 0: each stored nonlinearity, and what each role does.

    Changes the layer.
    """
    layout = layer.stack.layouts[0]
    layer.params[layout.weight_hh][...], layer.params[layout.bias_hh][...] = 0, 0
    W, bias, activations = layer.params[layout.weight_ih], layer.params[layout.bias_ih], layer.trace(x).gates
    for i, gate in enumerate(layout.cell.gates):
        rows = slice(i * layout.H, (i + 1) * layout.H)
        if gate.nonlinearity is not None and gate.name in layout.cell.stored:
            expected = FORMULAS[gate.nonlinearity][0](ArrayOps(x.dtype), x @ W[rows].T + bias[rows])
            what = f"what is stored as {gate.name} and the {gate.nonlinearity} of its sum"
            _assert_close(activations[gate.name + layout.suffix], expected, 1e-12, what)
        if gate.role is not None:
            before = np.trace(layer.linearize(x).jacobian(0))
            bias[rows] += 1
            rises = bool(np.trace(layer.linearize(x).jacobian(0)) > before)
            bias[rows] -= 1
            assert rises == (gate.role == "keep"), (
                f"a larger {gate.name} carries {'more' if rises else 'less'} of the old state on, which is not to "
                f"{gate.role} it"
            )


def _layer(
    cell: Cell, variant: str, D: int, H: int, dtype: str, rng: np.random.Generator, layers: int = 1
) -> Recurrent:
    """A layer with random weights and biases, none of them zero."""
    layer = Recurrent(cell, variant, D, H, layers, proj_size=H // 2 if cell.projects else 0, dtype=dtype, rng=rng)
    layer.theta[:] = rng.uniform(-0.4, 0.4, layer.theta.size)
    return layer


def _state(layer: Recurrent, rng: np.random.Generator, B: int) -> Any:
    """A random initial state (1, B, H), or a tuple of such."""
    parts = [rng.standard_normal((1, B, size)).astype(layer.dtype) for size in layer.states.sizes]
    return tuple(parts) if len(parts) > 1 else parts[0]


def _check_forward(layer: Recurrent, step: Step, x: Array, h0: Any) -> None:
    """Compare the compiled states with the equation, in float64."""
    params = {k: v.astype(np.float64) for k, v in layer.params.items()}
    state, states = np.concatenate([part[0] for part in parts(h0)], axis=1).astype(np.float64), []
    for x_t in x.astype(np.float64):
        state = step(params, x_t, state)
        states.append(state[:, : layer.output_size])
    rtol = 1e-13 if layer.dtype == np.float64 else 1e-5
    _assert_close(layer(x, h0)[0], np.stack(states), rtol, "the compiled and the plain forward pass")


def _check_jacobian(layer: Recurrent, x: Array, h0: Any) -> None:
    """Compare one step's Jacobian of the whole state with central differences in the initial state."""
    J, h, sizes = layer.linearize(x, h0).jacobian(0, 0), 1e-6, layer.states.sizes
    places = [(i, j) for i, size in enumerate(sizes) for j in range(size)]

    def final(j: int, change: float) -> Array:
        start, (i, unit) = mapped(np.copy, h0), places[j]
        parts(start)[i][0, 0, unit] += change
        hn = layer(x, start)[1]
        return np.concatenate([part[0, 0] for part in parts(hn)])

    for j in range(len(J)):
        column = (final(j, h) - final(j, -h)) / (2 * h)
        _assert_close(J[:, j], column, 1e-7, f"column {j} of the Jacobian and differences")


def _check_bits(layer: Recurrent, rng: np.random.Generator) -> None:
    """Check that no bit differs alone and in any batch, whole and in chunks, with one thread and two."""
    x = rng.standard_normal((6, 33, layer.input_size)).astype(layer.dtype)
    whole, hn = layer(x)
    for B in (1, 2, 3, 4, 5, 7, 33):
        assert np.array_equal(layer(x[:, 33 - B :])[0], whole[:, 33 - B :]), f"the last {B} rows alone give other bits"
    first, carried = layer(x[:4])
    second, last = layer(x[4:], carried)
    assert np.array_equal(np.concatenate([first, second]), whole), "chunks with carried state give other bits"
    pairs = zip(parts(last), parts(hn), strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs), "chunks with carried state end in other bits"
    trace = layer.trace(x)
    assert np.array_equal(trace.output, whole), "trace and call give different bits"
    for n in (1, 3):
        set_num_threads(n)
        assert np.array_equal(layer(x)[0], whole), f"{n} threads give other bits than 2"
    set_num_threads(2)


def _check_lengths(layer: Recurrent, rng: np.random.Generator) -> None:
    """Check sequences of several lengths: each as if alone, and rows beyond a sequence's end stay untouched."""
    x, lengths = rng.standard_normal((6, 9, layer.input_size)).astype(layer.dtype), np.arange(9) % 7
    trace = layer.trace(x, lengths=lengths, buffers=_Poisoned())
    (record,) = trace.records
    for b, n in enumerate(lengths):
        alone = layer(x[:n, b])[0]
        assert np.array_equal(trace.output[:n, b], alone), (
            f"a sequence of {n} steps beside longer ones gives other bits"
        )
    layout = layer.stack.layouts[0]
    beyond = np.arange(record.schedule.T)[:, None] >= record.schedule.lengths
    after = state_slots(layout, record)[1:][beyond]
    assert np.isnan(after).all(), "forward must leave the states of steps beyond active[t] untouched"
    grads = layer.backward(trace, np.ones(trace.output.shape, layer.dtype), buffers=_Poisoned())
    assert np.isfinite(grads.theta).all(), "backward must not read rows beyond active[t]"


class _Poisoned(Fresh):
    """Memory full of NaN."""

    def take(self, name: str, size: int, dtype: np.dtype[Any], *, weights: bool = False) -> Array:
        """A new array."""
        array = super().take(name, size, dtype)
        array[:] = np.nan
        return array


def _assert_close(got: Array, expected: Array, rtol: float, what: str) -> None:
    """Compare two arrays, relative to the largest expected entry."""
    error = float(abs(got - expected).max(initial=0.0) / max(abs(expected).max(initial=0.0), np.finfo(float).tiny))
    assert error <= rtol, f"{what} differ by {error:.2e} of the largest entry, more than {rtol:.0e}"
