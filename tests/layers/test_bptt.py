"""Backpropagation in windows: no window, projection or thread changes a bit; schedules of windows, row by row."""

from __future__ import annotations

import numpy as np
import pytest
from numba import config

import elman
from elman.cells import ELMAN, GRU, GRU_RESET_BEFORE, LSTM, LSTM_PROJECTED, MGU
from elman.kernels import parallel
from elman.layers.engine import bptt, direction
from elman.layers.engine.rows import Rows
from elman.layers.engine.schedule import dense, segmented
from elman.layers.recurrent import Recurrent

pytestmark = pytest.mark.usefixtures("restore_threads")

bits = pytest.mark.skipif(config.DISABLE_JIT, reason="bits are promised for compiled code; NumPy sums in its own order")

CELLS = {
    "RNN": ELMAN,
    "LSTM": LSTM,
    "LSTM projected": LSTM_PROJECTED,
    "GRU": GRU,
    "GRU reset before": GRU_RESET_BEFORE,
    "MGU": MGU,
}

T, B, D, H = 23, 6, 3, 7
LENGTHS = np.array([5, 23, 0, 17, 23, 1])

ONE_STEP, FEW_STEPS = (1, 1, 1), (4096, 8, 1)
"""Windows of one step, and of a few: bytes, rows, and operations for each of several threads."""


def make(cell, D=D, H=H, **options):
    """A layer with random weights and biases, none of them zero."""
    layer = Recurrent(cell, cell.variants[0], D, H, proj_size=3 if cell.projects else 0, **options)
    layer.theta[:] = np.random.default_rng(0).uniform(-0.6, 0.6, layer.theta.size)
    return layer


def set_windows(monkeypatch, size):
    for name, value in zip(("WINDOW_BYTES", "WINDOW_ROWS", "WINDOW_FLOPS"), size, strict=True):
        monkeypatch.setattr(bptt, name, value)


def everything(layer, x, seed=1, need_h0=True, training=None, checkpoint=False, **how):
    """All that a forward and a backward pass give, as bytes by name."""
    rng = np.random.default_rng(seed)
    trace = layer.trace(x, training=training, rng=5 if training else None, checkpoint=checkpoint, **how)
    d_output = rng.standard_normal(trace.output.shape)
    hn = trace.hn if isinstance(trace.hn, tuple) else (trace.hn,)
    d_hn = tuple(rng.standard_normal(h.shape) for h in hn)
    made = layer.backward(trace, d_output, d_hn if len(d_hn) > 1 else d_hn[0])
    h0 = made.h0 if isinstance(made.h0, tuple) else (made.h0,)
    found = {"output": trace.output, "x": made.x, "norms": made.state_norms, **made.params}
    found |= {f"hn{i}": h for i, h in enumerate(hn)} | {f"h0{i}": h for i, h in enumerate(h0)}
    return {name: np.ascontiguousarray(a).tobytes() for name, a in found.items()}


def differing(a, b):
    """Names of what is not the same to the bit."""
    assert a.keys() == b.keys()
    return [name for name in a if a[name] != b[name]]


def sequences(kind, dtype="float64"):
    """Inputs, and how to read them."""
    rng = np.random.default_rng(2)
    x, reset = rng.standard_normal((T, B, D)).astype(dtype), rng.random((T, B)) < 0.15
    return x, {"plain": {}, "lengths": {"lengths": LENGTHS}, "resets": {"lengths": LENGTHS, "reset": reset}}[kind]


# ---- windows


def count_windows(monkeypatch):
    """The list to which each window adds its number of steps."""
    seen, sweep = [], bptt.Descent._sweep

    def counted(self, window, P_back):
        seen.append(window.schedule.T)
        return sweep(self, window, P_back)

    monkeypatch.setattr(bptt.Descent, "_sweep", counted)
    return seen


@bits
@pytest.mark.parametrize("kind", ["plain", "lengths", "resets"])
@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
def test_no_bit_depends_on_the_windows(cell, kind, dtype, monkeypatch):
    layer = make(cell, dtype=dtype, learn_initial_state=True)
    x, how = sequences(kind, dtype)
    seen = count_windows(monkeypatch)
    whole = everything(layer, x, **how)
    steps = seen.copy()
    assert len(steps) == 1
    for size, most in ((ONE_STEP, 1), (FEW_STEPS, steps[0] - 1)):
        seen.clear()
        set_windows(monkeypatch, size)
        assert not differing(everything(layer, x, **how), whole), size
        assert sum(seen) == sum(steps)
        assert max(seen) <= most


@bits
@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
def test_nor_do_two_layers_both_ways_with_noise_on_two_threads(cell, dtype, monkeypatch):
    """Resets and lengths; dropout, recurrent dropout and zoneout; work cut into slabs, windows larger for it or not."""
    noise = {"dropout": 0.2, "recurrent_dropout": 0.1, "zoneout": 0.2}
    layer = make(cell, dtype=dtype, num_layers=2, bidirectional=True, learn_initial_state=True, **noise)
    x, how = sequences("resets", dtype)
    how["training"] = True
    elman.set_num_threads(1)
    whole = everything(layer, x, **how)
    monkeypatch.setattr(parallel, "SPLIT_FLOPS", 1)
    for threads in (1, 2):
        elman.set_num_threads(threads)
        assert len(parallel.slabs(2 * direction.ROWS, direction.ROWS, 1.0)) == threads
        for size in (ONE_STEP, FEW_STEPS, (1, 1, 30_000), (1 << 40, 1 << 40, 1)):
            set_windows(monkeypatch, size)
            assert not differing(everything(layer, x, **how), whole), (threads, size)


@bits
@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
def test_windows_within_pieces_made_again(cell, monkeypatch):
    """Both cuts at once: pieces from checkpoints, and windows that do not divide them."""
    layer = make(cell)
    x, how = sequences("resets")
    whole = everything(layer, x, **how)
    for checkpoint in (1, 4, 7, T, 2 * T):
        for size in (ONE_STEP, FEW_STEPS, (1 << 40, 1 << 40, 1)):
            set_windows(monkeypatch, size)
            assert not differing(everything(layer, x, checkpoint=checkpoint, **how), whole), (checkpoint, size)


@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
def test_a_window_of_a_step_has_the_gradients_of_the_chain_rule(cell, monkeypatch):
    """Bits alone could be equally wrong: differences of the loss along random directions."""
    set_windows(monkeypatch, ONE_STEP)
    x, how = sequences("lengths")
    elman.testing.check_gradients(make(cell, learn_initial_state=True), x[:7], directions=2, lengths=how["lengths"] % 8)


def test_windows_grow_for_threads_and_shrink_for_wide_rows(monkeypatch):
    """As many steps as the bytes hold; no fewer than the rows want, or, for several threads, the operations."""
    layer = make(LSTM)
    d = layer.stack.directions[0]

    def steps(B, threads=1):
        elman.set_num_threads(threads)
        record = layer.trace(np.zeros((1, B, D))).records[0]
        return bptt.Descent(d, layer.params, record, None, None)._steps()

    set_windows(monkeypatch, (0, 12, 0))
    assert [steps(B) for B in (1, 3, 5, 12, 13, 100)] == [12, 4, 2, 1, 1, 1]
    set_windows(monkeypatch, (1 << 20, 0, 0))
    narrow, wide = steps(1), steps(10)
    assert narrow // 10 == wide
    row = (1 << 20) / narrow
    # at least the states, gates, their gradients and x of a row, not much more than these padded to whole vectors
    assert 8 * (2 * H + 4 * H + 4 * H + D) < row < 8 * (2 * (H + 8) * 3 + 4 * (H + 8) * 2 + 4 * (H + 8) * 2 + D)
    set_windows(monkeypatch, (0, 0, 1e6))
    flops = 2 * 4 * H * (2 * H + D)
    assert steps(2) == 1
    assert steps(2, threads=2) == int(1e6 / (2 * flops))


@bits
def test_weight_norms_do_not_depend_on_windows_either(monkeypatch):
    layer = make(GRU)
    x, _ = sequences("plain")
    trace = layer.trace(x)
    d_output = np.random.default_rng(3).standard_normal(trace.output.shape)
    whole = layer.weight_norms(trace, d_output)
    set_windows(monkeypatch, ONE_STEP)
    assert np.array_equal(layer.weight_norms(trace, d_output), whole)


# ---- inputs projected together


@bits
@pytest.mark.parametrize("kind", ["plain", "lengths", "resets"])
@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
def test_projecting_the_inputs_of_several_steps_together_changes_no_bit(cell, rows, kind, dtype, monkeypatch):
    """For fewer rows than a tile takes; with a bias, blocks that x does not feed, and steps that rows have not."""
    x, how = sequences(kind, dtype)
    x = x[:, 1 : 1 + rows]
    if kind == "lengths":
        how["lengths"] = how["lengths"][1 : 1 + rows]
    if kind == "resets":
        # pieces are rows of the kernel: three of them at any number of sequences
        how["reset"] = np.zeros((T, rows), bool)
        how["reset"][[0, *range(9, 9 + 3 - rows)], 0] = True
        how["lengths"] = np.array([T, 11, 4])[:rows]
    layer = make(cell, dtype=dtype, bidirectional=True)
    projected, calls = direction.Direction._projected, []
    monkeypatch.setattr(
        direction.Direction, "_projected", lambda self, *args: calls.append(args[1:3]) or projected(self, *args)
    )
    apart = everything(layer, x, **how)
    assert not calls
    monkeypatch.setattr(direction, "PROJECT_BYTES", 0)
    for together in (4, 5, 8, 64):
        calls.clear()
        monkeypatch.setattr(direction, "PROJECTED_ROWS", together)
        assert not differing(everything(layer, x, **how), apart), together
        assert calls
        assert all(last - first <= together for first, last in calls)


@bits
def test_a_wide_input_is_projected_for_a_single_sequence_and_streams_to_the_same_bits():
    """The real threshold; a stepper sees one step at a time."""
    layer = make(GRU, D=200, H=40, dtype="float32")
    x = np.random.default_rng(4).standard_normal((70, 1, 200)).astype("float32")
    d = layer.stack.directions[0]
    assert d._projected_steps(dense(70, 1, False)) == direction.PROJECTED_ROWS
    assert not d._projected_steps(dense(70, direction.ROWS, False))
    together, hn = layer(x)
    step = layer.stepper(1)
    assert np.array_equal([step(x_t).copy() for x_t in x], together)
    many, _ = layer(np.repeat(x, direction.ROWS, axis=1))
    assert np.array_equal(many[:, 2:3], together)
    assert np.array_equal(hn[0], together[-1])


# ---- schedules of windows


def valid_rows(schedule):
    """For each step of a schedule and each row that has it: (step from the start, row) -> the caller's (step, b)."""
    return {
        (schedule.first + t, b): schedule.caller_place(t, b)
        for t in range(schedule.T)
        for b in range(int(schedule.active[t]))
    }


SCHEDULES = {
    "dense": lambda: dense(9, 3, False),
    "reversed": lambda: dense(9, 3, True),
    "lengths": lambda: segmented(9, 4, np.array([4, 9, 0, 6]), None, False),
    "lengths reversed": lambda: segmented(9, 4, np.array([4, 9, 0, 6]), None, True),
    "resets": lambda: segmented(9, 3, np.array([7, 9, 2]), np.random.default_rng(1).random((9, 3)) < 0.3, False),
    "resets reversed": lambda: segmented(9, 3, None, np.random.default_rng(2).random((9, 3)) < 0.2, True),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_window_has_the_rows_of_its_steps(name):
    """Windows of windows too; every derived quantity against counting."""
    whole = SCHEDULES[name]()
    every = valid_rows(whole)
    assert len(every) == whole.n_valid
    rng = np.random.default_rng(3)
    cuts = [(a, b) for a in range(whole.T) for b in range(a + 1, whole.T + 1)]
    for t0, t1 in cuts:
        window = whole.window(t0, t1)
        inner = sorted(rng.integers(0, t1 - t0 + 1, 2))
        nested = [(window, t0, t1)]
        if inner[0] < inner[1]:
            nested.append((window.window(*inner), t0 + inner[0], t0 + inner[1]))
        for part, a, b in nested:
            assert (part.T, part.B, part.first) == (b - a, whole.B, a)
            here = {place: caller for place, caller in every.items() if a <= place[0] < b}
            assert valid_rows(part) == here
            assert part.n_valid == len(here)
            assert part.full == (len(here) == part.T * part.B)
            assert [int(n) for n in part.lengths] == [sum(r == row for _, r in here) for row in range(whole.B)]


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_window_gathers_scatters_and_compacts_its_own_rows(name):
    whole = SCHEDULES[name]()
    n = 2
    rng = np.random.default_rng(4)
    caller = rng.standard_normal((whole.outer_T * whole.outer_B, n))
    for t0, t1 in ((0, 2), (1, 3), (0, whole.T), (whole.T - 1, whole.T)):
        window = whole.window(t0, t1)
        size, places = window.T * window.B, valid_rows(window)
        expected = np.full((size, n), 7.0)
        for (t, b), (step, sequence) in places.items():
            expected[(t - t0) * whole.B + b] = caller[step * whole.outer_B + sequence]
        valid = [(t - t0) * whole.B + b for t, b in places]
        source = Rows(caller.reshape(-1), n, len(caller))
        if whole.base is None:
            got = window.part(source)
            assert np.array_equal(got.view(n), expected)
        else:
            assert window.part(source) is source
            got = Rows(np.full(size * n, 7.0), n, size)
            window.gather(source, got, n)
            assert np.array_equal(got.view(n), expected)
            back = np.full_like(caller, 5.0)
            window.scatter(got, Rows(back.reshape(-1), n, len(back)), n)
            mine = [step * whole.outer_B + sequence for step, sequence in places.values()]
            assert np.array_equal(back[mine], caller[mine])
            assert (np.delete(back, mine, axis=0) == 5).all()
            window.scatter(
                window.compact(got, n, "rows"), Rows(back.reshape(-1), n, len(back)), n, compact=True, add=True
            )
            assert np.array_equal(back[mine], 2 * caller[mine])
            assert (np.delete(back, mine, axis=0) == 5).all()
        assert np.array_equal(window.compact(got, n, "rows").view(n)[: window.n_valid], expected[sorted(valid)])


def test_the_whole_is_its_own_window():
    schedule = dense(5, 2, True)
    assert schedule.window(0, 5) is schedule
