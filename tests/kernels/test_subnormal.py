"""Subnormal numbers count as zero, in every operation of compiled code and in nothing of the caller's."""

import hashlib
import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from naive import FLUSHES, flushed_numbers
from numba import config, njit

import elman
from elman.errors import NonFiniteError
from elman.kernels import parallel, subnormal, tile
from elman.kernels.compile import KERNEL, kernel
from elman.kernels.vector import lanes_of
from elman.layers.engine import bptt
from elman.losses import LOSSES
from elman.training import clip_by_global_norm

flushes = pytest.mark.skipif(not FLUSHES, reason="subnormal numbers are numbers here")
compiled = pytest.mark.skipif(config.DISABLE_JIT, reason="nothing is compiled")

SMALL = np.float32(1e-30), np.float32(1e-10)
"""Their product is subnormal."""


def caller_keeps_subnormals():
    """Whether this thread, outside compiled code, computes with subnormal numbers."""
    a, b = (np.full(33, s) for s in SMALL)
    return bool((a * b > 0).all() and (np.full(33, 1e-40, np.float32) * np.float32(4) > 0).all())


@pytest.fixture(autouse=True)
def _nothing_leaks():
    assert caller_keeps_subnormals()
    yield
    assert caller_keeps_subnormals()


def multiply(a, b, out):
    for i in range(a.size):
        out[i] = a[i] * b[i]
    if a[0] > 1:
        return 1
    return 0


# ---- values


def flushed_fma(a, b, c):
    """a * b + c in float64, which holds it exactly for the numbers of these tests, rounded once to float32."""
    a, b, c = (flushed_numbers(x).astype(np.float64) for x in (a, b, c))
    assert np.array_equal((a * b + c) - c, a * b)
    assert np.array_equal((a * b + c) - a * b, c)
    rounded = (a * b + c).astype(np.float32)
    # whether a number is subnormal is said before rounding by some processors and after it by others
    assert not ((np.abs(a * b + c) < 2.0**-126) & (np.abs(rounded) >= 2.0**-126)).any()
    return flushed_numbers(rounded)


@flushes
def test_each_operation_of_a_chain_flushes_what_it_reads_and_what_it_gives():
    rng, K, n = np.random.default_rng(0), 6, 40
    width = 2 * lanes_of(4)

    def numbers(shape, low, high):
        return (
            rng.choice([-1, 1], shape) * np.ldexp(rng.integers(8, 16, shape), rng.integers(low, high, shape))
        ).astype(np.float32)

    A, W, bias = numbers((n, K), -72, -64), numbers((K, width), -72, -64), numbers(width, -136, -129)
    A[0], W[:, 0] = 2.0**-130, 2.0**-140
    assert (np.abs(bias) < 2.0**-126).any()
    P = np.ascontiguousarray(W.reshape(K, -1, lanes_of(4)).swapaxes(0, 1)).reshape(-1)
    C = np.empty(n * width, np.float32)
    tile.affine(A.reshape(-1), K, P, K, 2, bias, C, width, 0, n)
    expected = np.broadcast_to(flushed_numbers(bias), (n, width))
    plain = np.broadcast_to(bias, (n, width)).astype(np.float64)
    for k in range(K):
        expected = flushed_fma(A[:, k, None], W[k], expected)
        plain = plain + A[:, k, None].astype(np.float64) * W[k]
    assert np.array_equal(C.reshape(n, width), expected)
    # and it is another number than one that is flushed at the end
    assert (flushed_numbers(plain.astype(np.float32)) != expected).any()
    assert (expected != 0).any()


@flushes
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_gradient_vanishes_to_zero_and_not_to_a_subnormal_number(dtype):
    layer = elman.RNN(1, 5, nonlinearity="identity", dtype=dtype)
    factor = 2.0**-20 if dtype == "float32" else 2.0**-200
    layer.params["weight_hh_l0"][...] = factor * np.eye(5)
    layer.params["weight_ih_l0"][...] = 1
    trace = layer.trace(np.zeros((12, 1, 1), dtype))
    x = layer.backward(trace, d_hn=np.ones((1, 1, 5), dtype)).x[::-1, 0, 0]
    powers = np.array([5 * np.ldexp(1.0, int(k * np.log2(factor))) for k in range(12)], dtype)
    single = powers / 5
    assert np.array_equal(x, np.where(single < np.finfo(dtype).smallest_normal, 0, powers))
    assert 0 < np.count_nonzero(x) < 12


@flushes
@pytest.mark.parametrize("cell", ["RNN", "LSTM", "GRU", "MGU"])
def test_no_array_holds_a_subnormal_number(cell):
    layer, x, last = vanishing(cell, "float32")
    x[2:] = 0
    trace = layer.trace(x)
    made = layer.backward(trace, last)
    for name, a in {"output": trace.output, "x": made.x, **made.params}.items():
        assert np.array_equal(a, flushed_numbers(np.asarray(a))), name
    assert (np.asarray(made.x) == 0).any()


@flushes
def test_adam_and_momentum_flush_in_every_operation():
    theta, g = np.linspace(-1, 1, 50, dtype=np.float32), np.full(50, 1e-20, np.float32)
    g[::5], g[1::5] = 1e-17, 1e-40
    f, one = flushed_numbers, np.float32
    optimizer, moved = elman.Adam(1e-3), theta.copy()
    optimizer.step(moved, g)
    g = f(g)
    mean, square = f(g * one(1 - 0.9)), f(f(g * g) * one(1 - 0.999))
    root = np.sqrt(1 - 0.999)
    step = f(f(mean / f(np.sqrt(square) + one(1e-8 * root))) * one(1e-3 * root / (1 - 0.9)))
    state = optimizer.state_dict()
    assert np.array_equal(state["exp_avg"], mean)
    assert np.array_equal(state["exp_avg_sq"], square)
    assert (square == 0).any()
    assert (square > 0).any()
    assert np.array_equal(moved, theta - step)
    sgd = elman.SGD(0.1, momentum=0.5)
    sgd.step(moved, np.full(50, 2e-38, np.float32))
    sgd.step(moved, np.zeros(50, np.float32))
    assert (sgd.state_dict()["momentum_buffer"] == 0).all()


@flushes
def test_losses_and_clipping_flush():
    loss = LOSSES["mse"]
    _, d = loss.value_and_gradient(np.full((4, 1), 2e-38, np.float32), np.zeros((4, 1), np.float32))
    assert (d == 0).all()
    logits = np.array([[0.0, -87.0]], np.float32).repeat(4, axis=0)
    _, d = LOSSES["cross_entropy"].value_and_gradient(logits, np.zeros(4, int))
    assert (d[:, 1] == 0).all()
    gradient = np.array([1.0, 2e-38], np.float32)
    assert clip_by_global_norm(gradient, 0.5) == 1.0
    assert gradient.tolist() == [0.5, 0.0]


# ---- the mode


@flushes
def test_a_kernel_of_a_users_own_has_it_and_the_caller_has_not():
    product, out = kernel(multiply), np.empty(3, np.float32)
    a, b = np.array([1e-30, 1e-40, 1e-10], np.float32), np.array([1e-10, 1e5, 1], np.float32)
    assert product(a, b, out) == 0
    assert out.tolist() == [0, 0, np.float32(1e-10)]
    assert caller_keeps_subnormals()
    a[0] = 2  # the other return
    assert product(a, b, out) == 1
    assert out[1] == 0


@flushes
def test_a_kernel_called_by_a_kernel_leaves_the_mode_on():
    inner = kernel(multiply)

    @kernel
    def outer(a, b, out):
        inner(a, b, out)
        out[0] = a[0] * b[0]

    out = np.ones(2, np.float32)
    outer(np.full(2, 1e-30, np.float32), np.full(2, 1e-10, np.float32), out)
    assert out.tolist() == [0, 0]


@compiled
def test_compiled_code_without_it_keeps_subnormals():
    """The tests above would not pass anyway."""
    out = np.empty(3, np.float32)
    njit(error_model="numpy", **KERNEL)(multiply)(np.full(3, SMALL[0]), np.full(3, SMALL[1]), out)
    assert (out > 0).all()


@flushes
def test_the_switch_stands_around_the_call_and_nowhere_else():
    if not subnormal.X86:
        pytest.skip("the instructions of x86")
    product = njit(pipeline_class=subnormal.Flushing, nogil=True, error_model="numpy", **KERNEL)(multiply)
    product(np.zeros(1, np.float32), np.zeros(1, np.float32), np.zeros(1, np.float32))
    text = next(iter(product.inspect_asm().values()))
    parts = re.split(r"\n(?=_ZN\S+:\n)", text)
    counts = {p.split(":")[0].startswith("_ZN7cpython"): len(re.findall("ldmxcsr", p)) for p in parts[1:]}
    assert counts == {False: 0, True: 2}
    wrapper = next(p for p in parts if p.startswith("_ZN7cpython"))
    between = wrapper.split("ldmxcsr")[1]
    assert len(re.findall("call", between)) == 1
    # no arithmetic on either side: what is unpacked is moved and converted
    assert not re.search(r"\tv?(mul|add|sub|div|fmadd\w*|sqrt)[sp][sd]", wrapper)


def test_the_mode_is_the_callers_after_a_status():
    layer = elman.RNN(1, 3, nonlinearity="relu", dtype="float32")
    layer.params["weight_ih_l0"][...] = 1
    layer.params["weight_hh_l0"][...] = 1e30
    with pytest.raises(NonFiniteError):
        layer(np.ones((30, 2, 1), np.float32))
    assert caller_keeps_subnormals()


def test_threads_of_the_pool_keep_their_own_mode():
    layer, x, last = vanishing("GRU", "float32")

    def there(_):
        layer.backward(layer.trace(x), last)
        return caller_keeps_subnormals()

    with ThreadPoolExecutor(3) as pool:
        assert all(pool.map(there, range(6)))
    kept = parallel.run(lambda a, b: (layer(x[:, a:b]), caller_keeps_subnormals())[1], [(0, 2), (2, 4)])
    assert kept == [True, True]


@flushes
def test_numpy_in_the_mode_and_what_it_raises():
    a, b = (np.full(33, s) for s in SMALL)
    assert (subnormal.flushed(np.multiply)(a, b) == 0).all()
    assert caller_keeps_subnormals()

    @subnormal.flushed
    def inner():
        return bool((a * b == 0).all())

    @subnormal.flushed
    def outer():
        return inner(), bool((a * b == 0).all())

    assert outer() == (True, True)

    @subnormal.flushed
    def fails(how):
        """What it says."""
        raise how

    for error in (ValueError("so"), KeyboardInterrupt(), StopIteration()):
        with pytest.raises(type(error)) as caught:
            fails(how=error)
        assert caught.value is error
        assert caller_keeps_subnormals()
    assert fails.__doc__ == "What it says."


def test_numpys_own_settings_work_in_it():
    @subnormal.flushed
    def overflow():
        with np.errstate(over="raise"):
            return np.full(3, 1e38, np.float32) * np.float32(10)

    with pytest.raises(FloatingPointError, match="overflow"):
        overflow()


# ---- same bits


def vanishing(cell, dtype, T=120, B=4, H=9):
    """A layer, an input, and a gradient at the last step that vanishes on its way back."""
    rng = np.random.default_rng(3)
    layer = getattr(elman, cell)(2, H, dtype=dtype, rng=0)
    rate = 2 if dtype == "float32" else 8
    layer.params["weight_hh_l0"][...] *= np.exp(-rate)
    # gates that let e**-rate of the state pass
    keeps = {"LSTM": (slice(H, 2 * H), -rate), "GRU": (slice(H, 2 * H), -rate), "MGU": (slice(0, H), rate)}
    if cell in keeps:
        for name in ("bias_ih_l0", "bias_hh_l0"):
            layer.params[name][keeps[cell][0]] = keeps[cell][1] / 2
    last = np.zeros((T, B, H), dtype)
    last[-1] = rng.standard_normal((B, H))
    return layer, rng.standard_normal((T, B, 2)).astype(dtype), last


def results(layer, x, last, **how):
    trace = layer.trace(x, **how)
    made = layer.backward(trace, last)
    return {"output": trace.output, "x": np.asarray(made.x), "norms": made.state_norms, **made.params}


def digest(arrays):
    return {k: hashlib.sha256(np.ascontiguousarray(a).tobytes()).hexdigest() for k, a in arrays.items()}


CELLS = ["RNN", "LSTM", "GRU", "MGU"]
bits = pytest.mark.skipif(config.DISABLE_JIT, reason="same bits are promised for compiled code")


@bits
@pytest.mark.parametrize("cell", CELLS)
def test_no_bit_depends_on_batch_or_threads(cell, dtype, monkeypatch, restore_threads):
    layer, x, last = vanishing(cell, dtype)
    whole = results(layer, x, last)
    assert (whole["x"] == 0).any()
    for b in range(x.shape[1]):
        alone = results(layer, x[:, b : b + 1], last[:, b : b + 1])
        for name in ("output", "x"):
            assert alone[name].tobytes() == np.ascontiguousarray(whole[name][:, b : b + 1]).tobytes(), (name, b)
        assert alone["norms"].tobytes() == np.ascontiguousarray(whole["norms"][..., b : b + 1]).tobytes()
    monkeypatch.setattr(parallel, "SPLIT_FLOPS", 0)
    elman.set_num_threads(3)
    assert digest(results(layer, x, last)) == digest(whole)


@bits
@pytest.mark.parametrize("cell", CELLS)
def test_no_bit_depends_on_chunks(cell, dtype):
    layer, x, last = vanishing(cell, dtype)
    whole = results(layer, x, last)
    first = layer.trace(x[:70])
    second = layer.trace(x[70:], first.hn)
    back = layer.backward(second, last[70:])
    front = layer.backward(first, d_hn=back.h0)
    assert np.concatenate([front.x, back.x]).tobytes() == whole["x"].tobytes()
    assert np.concatenate([front.state_norms, back.state_norms], axis=1).tobytes() == whole["norms"].tobytes()


@bits
@pytest.mark.ci
def test_no_bit_depends_on_the_length_of_vectors(run_script):
    text = """
        import json, sys
        sys.path[:0] = {paths!r}
        import test_subnormal as t
        made = [t.results(*t.vanishing(cell, dtype)) for cell in t.CELLS for dtype in ("float32", "float64")]
        print(json.dumps([t.digest(each) for each in made]))
    """
    text = text.format(paths=[str(Path(__file__).parent), str(Path(__file__).parents[1])])
    found = [json.loads(run_script(text, ELMAN_VECTOR_BYTES=n)) for n in ("16", "32", "64")]
    assert found[0] == found[1] == found[2]


# ---- windows that no gradient enters


@bits
@pytest.mark.parametrize(
    "how", [{}, {"lengths": [120, 3, 0, 77]}, {"checkpoint": 16}], ids=["dense", "lengths", "again"]
)
@pytest.mark.parametrize("cell", CELLS)
def test_windows_passed_over_change_no_bit(cell, how, dtype, monkeypatch):
    layer, x, last = vanishing(cell, dtype)
    layer = both_ways(layer, cell, dtype) if "lengths" in how else layer
    last = np.concatenate([last, last], axis=2) if "lengths" in how else last
    monkeypatch.setattr(bptt, "WINDOW_BYTES", 0)
    monkeypatch.setattr(bptt, "WINDOW_ROWS", 40)
    monkeypatch.setattr(bptt, "WINDOW_FLOPS", 0)
    passed, over = [], bptt.Descent.over

    def counted(self, *args):
        passed.append(over(self, *args))
        return passed[-1]

    monkeypatch.setattr(bptt.Descent, "over", counted)
    short = results(layer, x, last, **how)
    assert any(passed)
    assert not all(passed)
    monkeypatch.setattr(bptt.Descent, "over", lambda self, *args: False)
    assert digest(results(layer, x, last, **how)) == digest(short)


def both_ways(layer, cell, dtype):
    two = getattr(elman, cell)(2, layer.hidden_size, dtype=dtype, bidirectional=True, rng=0)
    for name in two.params:
        two.params[name][...] = layer.params[name.removesuffix("_reverse")]
    return two


def test_without_a_gradient_nothing_is_swept():
    layer, x, last = vanishing("GRU", "float64")
    made = layer.backward(layer.trace(x), 0 * last)
    assert not made.theta.any()
    assert not made.x.any()
    assert not made.state_norms.any()


# ---- norms of float64 below what squares hold


def test_small_norms_are_those_of_a_scaled_gradient(monkeypatch):
    monkeypatch.setattr(bptt, "WINDOW_BYTES", 0)
    monkeypatch.setattr(bptt, "WINDOW_ROWS", 40)
    layer, x, last = vanishing("LSTM", "float64", T=200)
    trace = layer.trace(x)
    norms = layer.backward(trace, last).state_norms
    up = layer.backward(trace, np.ldexp(last, 490)).state_norms
    small = (norms < 1e-150) & (up > 1e-140)
    assert small.any()
    np.testing.assert_allclose(norms[small], np.ldexp(up[small], -490), rtol=1e-12, atol=0)
    assert (np.diff(np.log(norms[0, norms[0].min(axis=1) > 0]), axis=0) > -60).all()


def test_a_large_gradient_beside_a_small_one(monkeypatch):
    layer, x, last = vanishing("GRU", "float64", T=200)
    trace = layer.trace(x)
    usual = layer.backward(trace, last).state_norms
    last[:, 1] *= 1e200
    beside = layer.backward(trace, last).state_norms
    others = [0, 2, 3]
    assert beside[..., others].tobytes() == usual[..., others].tobytes()
    held = usual[..., 1] > 1e-300
    np.testing.assert_allclose(beside[..., 1][held], 1e200 * usual[..., 1][held], rtol=1e-7, atol=0)
