"""Slabs over threads: how work is cut, what happens to results and exceptions, and that no bit depends on it."""

from __future__ import annotations

import itertools
import threading
import time

import numpy as np
import pytest
from numba import config

import elman
from elman.kernels import parallel
from elman.kernels.parallel import SPLIT_FLOPS, run, slabs
from elman.kernels.vector import lanes_of

pytestmark = pytest.mark.usefixtures("restore_threads")

T, B, D, H = 200, 33, 17, 64
"""An RNN whose every pass is large enough to be split."""


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("unit", [1, 3, 4])
def test_slabs_cover_the_range_in_multiples_of_the_unit(threads, unit):
    elman.set_num_threads(threads)
    for n, flops in itertools.product(
        [0, 1, 2, 3, 4, 5, 8, 12, 31, 32, 33, 1000],
        [0.0, SPLIT_FLOPS - 1.0, SPLIT_FLOPS * 1.0, SPLIT_FLOPS * 1.6, 1e12],
    ):
        cut = slabs(n, unit, flops)
        assert [i for a, b in cut for i in range(a, b)] == list(range(n))
        assert all(a < b for a, b in cut)
        assert all((b - a) % unit == 0 for a, b in cut[:-1])
        most = -(-n // unit)
        # each thread has half of SPLIT_FLOPS or more to do
        assert len(cut) == min(most, threads, max(1, int(flops / (SPLIT_FLOPS / 2))))
        # no slab has two units more than another
        sizes = [-(-(b - a) // unit) for a, b in cut]
        assert not sizes or max(sizes) - min(sizes) <= 1


def test_of_rows_of_several_costs_only_the_work_there_is_counts():
    """One long sequence among short ones is nearly all the work, and one thread's."""
    elman.set_num_threads(2)
    padded = 20.0 * SPLIT_FLOPS
    assert slabs(64, 4, padded, [1000] * 64) == [(0, 32), (32, 64)]
    assert slabs(64, 4, padded, [1000] + [1] * 63) == [(0, 64)]
    assert slabs(64, 4, padded, [1000] * 32 + [0] * 32) == [(0, 16), (16, 64)]
    assert slabs(64, 4, padded, [0] * 64) == [(0, 64)]
    # 16 sequences of full length are four times as much work as pays, and what is not the longest slab pays too
    assert len(slabs(64, 4, padded, [1000] * 16 + [1] * 48)) == 2
    # as much in all, but nothing that a second thread could take off the first
    assert slabs(8, 4, padded / 8, [1000] * 4 + [1] * 4) == [(0, 8)]


def test_a_small_layer_never_wakes_the_pool(run_script):
    script = """
        import numpy as np, elman
        from elman.kernels import parallel
        elman.set_num_threads(8)
        layer = elman.LSTM(8, 32, rng=0)
        lengths = np.r_[300, np.ones(63, int)]
        for x, options in ((np.zeros((50, 4, 8)), {}), (np.zeros((300, 64, 8)), {"lengths": lengths})):
            trace = layer.trace(x, **options)
            layer.backward(trace, np.ones_like(trace.output))
            layer(x, **options)
        print(parallel._pool)
        layer.backward(layer.trace(np.zeros((300, 64, 8))), np.ones((300, 64, 32)))
        print(parallel._pool is None)
    """
    assert run_script(script).split() == ["None", "False"]


def test_results_come_in_order_and_the_first_slab_stays_here():
    elman.set_num_threads(3)
    ranges = [(0, 4), (4, 8), (8, 12), (12, 14)]

    def work(a, b):
        time.sleep(0.002 * (20 - b))
        return a, b, threading.current_thread()

    results = run(work, ranges)
    assert [r[:2] for r in results] == ranges
    assert results[0][2] is threading.current_thread()
    assert all(r[2] is not threading.current_thread() for r in results[1:])
    assert run(work, []) == []
    assert run(work, [(0, 3)])[0][2] is threading.current_thread()


@pytest.mark.parametrize("failing", [0, 1, 3])
def test_an_exception_arrives_after_all_others_have_ended(failing):
    elman.set_num_threads(4)
    ended = []

    def work(a, b):
        if a == failing:
            raise ZeroDivisionError(a)
        time.sleep(0.1)
        ended.append(a)

    with pytest.raises(ZeroDivisionError, match=str(failing)):
        run(work, [(i, i + 1) for i in range(4)])
    assert sorted(ended) == [i for i in range(4) if i != failing]
    # and the pool is as good as before
    assert run(lambda a, b: a + b, [(0, 1), (1, 2)]) == [1, 3]


@pytest.mark.parametrize("failing", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_on_the_calling_thread_waits_too(failing):
    elman.set_num_threads(2)
    ended = []

    def work(a, b):
        if a == 0:
            raise failing
        time.sleep(0.1)
        ended.append(a)

    with pytest.raises(failing):
        run(work, [(0, 1), (1, 2)])
    assert ended == [1]


@pytest.mark.parametrize("n", [0, -1, 1.0, "2", None, True, np.nan])
def test_a_number_of_threads_that_is_none_is_refused(n):
    before = elman.get_num_threads()
    with pytest.raises(ValueError, match=r"integer of at least 1"):
        elman.set_num_threads(n)
    assert elman.get_num_threads() == before


def test_the_number_of_threads_is_what_was_set():
    for n in (1, 2, 5):
        elman.set_num_threads(n)
        assert elman.get_num_threads() == n


def test_work_after_the_pool_was_shut_down_is_done_here():
    """What set_num_threads on another thread, or the interpreter's exit, may do between two submissions."""
    elman.set_num_threads(2)
    run(lambda a, b: None, [(0, 1), (1, 2)])
    parallel._pool.shutdown()
    assert run(lambda a, b: (a, b), [(0, 1), (1, 2), (2, 3)]) == [(0, 1), (1, 2), (2, 3)]


def problem(dtype, seed=0):
    """A layer with random biases, its input, initial state and gradients."""
    rng = np.random.default_rng(seed)
    layer = elman.RNN(D, H, dtype=dtype, bias_init="uniform", rng=rng)
    x, h0 = rng.normal(size=(T, B, D)).astype(dtype), rng.normal(size=(1, B, H)).astype(dtype)
    d_output, d_hn = rng.normal(size=(T, B, H)).astype(dtype), rng.normal(size=(1, B, H)).astype(dtype)
    return layer, x, h0, d_output, d_hn


def passes(layer, x, h0, d_output, d_hn):
    """Bytes of everything that a forward and a backward pass give, and of a tangent product."""
    output, hn = layer(x, h0)
    trace = layer.trace(x, h0)
    grads = layer.backward(trace, d_output, d_hn)
    v = layer.linearize(x, h0).jvp(d_hn[0])
    arrays = [output, hn, trace.output, trace.hn, grads.theta, grads.x, grads.h0, grads.state_norms, v]
    assert all(np.isfinite(a).all() for a in arrays)
    return [np.ascontiguousarray(a).tobytes() for a in arrays]


@pytest.mark.skipif(config.DISABLE_JIT, reason="bits are promised for compiled code")
def test_one_thread_and_many_give_the_same_bits(dtype, monkeypatch):
    cuts = []
    cut = parallel.slabs
    monkeypatch.setattr(parallel, "slabs", lambda *a: cuts.append(cut(*a)) or cuts[-1])
    given = problem(dtype)
    elman.set_num_threads(1)
    alone = passes(*given)
    assert {len(c) for c in cuts} == {1}
    vectors = H // lanes_of(dtype.itemsize)
    for threads in (2, 3, 7):
        cuts.clear()
        elman.set_num_threads(threads)
        assert passes(*given) == alone
        # the sweeps and the gradient of the input were all split; the columns of the weight gradient may be few
        columns = [c for c in cuts if c[-1][1] == vectors]
        assert {len(c) for c in cuts if c not in columns} <= set(range(2, threads + 1))
        assert {len(c) for c in columns} == {min(threads, -(-vectors // parallel.COLUMNS))}


@pytest.mark.skipif(config.DISABLE_JIT, reason="takes minutes, and without the JIT one thread runs at a time")
def test_concurrent_calls_from_several_threads(dtype):
    elman.set_num_threads(2)
    count = 6
    given = [problem(dtype, seed) for seed in range(count)]
    expected = [passes(*g) for g in given]
    found = [[] for _ in range(count)]
    start = threading.Barrier(count)

    def call(i):
        start.wait(30)
        for _ in range(4):
            found[i].append(passes(*given[i]))

    threads = [threading.Thread(target=call, args=(i,), daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        # the pool is taken away under their feet: nothing may be lost
        elman.set_num_threads(1)
        elman.set_num_threads(3)
        time.sleep(0.005)
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    for want, got in zip(expected, found, strict=True):
        assert got == [want] * 4


FORKED = """
    import os, signal, sys, threading, warnings
    import numpy as np
    import elman
    from elman.kernels import parallel

    warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads alive is what is tested here
    elman.set_num_threads(2)
    layer = elman.RNN(17, 64, rng=0)
    x = np.random.default_rng(1).normal(size=(60, 33, 17))
    def both():
        trace = layer.trace(x)
        return layer(x)[0].tobytes(), layer.backward(trace, np.ones_like(trace.output)).theta.tobytes()
    expected = both()
    assert parallel._pool is not None
    if {locked}:
        # another thread holds the lock at the moment of the fork
        held, release = threading.Event(), threading.Event()
        def hold():
            with parallel._lock:
                held.set()
                release.wait()
        threading.Thread(target=hold, daemon=True).start()
        held.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        same = both() == expected
        grown = parallel._pool is not None
        os._exit(0 if same and grown else 3)
    if {locked}:
        release.set()
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    assert both() == expected
    print("same in parent and child")
"""


@pytest.mark.skipif(not hasattr(parallel.os, "fork"), reason="no fork on this platform")
@pytest.mark.parametrize("locked", [False, True])
def test_a_forked_child_makes_its_own_threads(locked, run_script):
    assert "same in parent and child" in run_script(FORKED.format(locked=locked), timeout=120)


def test_the_interpreter_exits_while_the_pool_is_idle(run_script):
    script = """
        import elman
        from elman.kernels import parallel
        elman.set_num_threads(4)
        print(parallel.run(lambda a, b: a, [(0, 1), (1, 2), (2, 3)]))
    """
    assert run_script(script, timeout=60).strip() == "[0, 1, 2]"
