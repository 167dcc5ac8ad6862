"""Optimizers and clipping: torch's recorded trajectories, transactions, state."""

import json
import math
import pickle
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from elman.errors import ArgumentError, DTypeError, NonFiniteError, ShapeError, StateDictError
from elman.training import SGD, Adam, clip_by_global_norm, global_norm

REFERENCE = json.loads((Path(__file__).parent / "data" / "optimizer_reference.json").read_text())
START, CENTRE, CURVATURE = (np.array(REFERENCE[key]) for key in ("start", "centre", "curvature"))
CLASSES = {"SGD": SGD, "Adam": Adam}
MAKERS = [
    lambda: SGD(0.1),
    lambda: SGD(0.1, momentum=0.9),
    lambda: SGD(0.1, momentum=0.9, nesterov=True),
    lambda: Adam(0.05),
]


def run(optimizer, theta, steps):
    for _ in range(steps):
        optimizer.step(theta, CURVATURE.astype(theta.dtype) * (theta - CENTRE.astype(theta.dtype)))
    return theta


@pytest.mark.parametrize("key", REFERENCE["trajectories"])
def test_torch_trajectories(key):
    case = REFERENCE["trajectories"][key]
    optimizer, theta = CLASSES[case["class"]](**case["keywords"]), START.copy()
    for expected in case["theta"]:
        run(optimizer, theta, 1)
        np.testing.assert_allclose(theta, expected, rtol=1e-12, atol=1e-14)
    assert optimizer.step_count == len(case["theta"]) == 10


@pytest.mark.parametrize("key", REFERENCE["trajectories"])
def test_float32_stays_float32(key):
    case = REFERENCE["trajectories"][key]
    optimizer = CLASSES[case["class"]](**case["keywords"])
    theta = run(optimizer, START.astype(np.float32), 10)
    assert theta.dtype == np.float32
    assert {slot.dtype for name, slot in optimizer.state_dict().items() if slot.ndim and name != "betas"} == {
        theta.dtype
    }
    np.testing.assert_allclose(theta, case["theta"][-1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("copy", ["state_dict", "pickle", "savez"])
def test_saved_state_continues_to_the_same_bits(make, copy, tmp_path):
    optimizer = make()
    theta = run(optimizer, START.copy(), 4)
    other = SGD(3.0) if isinstance(optimizer, SGD) else Adam(3.0, betas=(0.1, 0.2), eps=1.0)
    if copy == "pickle":
        other = pickle.loads(pickle.dumps(optimizer))
    elif copy == "savez":
        np.savez(tmp_path / "state.npz", **optimizer.state_dict())
        with np.load(tmp_path / "state.npz") as saved:
            other.load_state_dict(saved)
    else:
        other.load_state_dict(optimizer.state_dict())
    assert repr(other) == repr(optimizer)
    np.testing.assert_array_equal(run(other, theta.copy(), 6), run(optimizer, theta, 6))
    np.testing.assert_array_equal(theta, run(make(), START.copy(), 10))


def test_loaded_state_is_a_copy():
    optimizer = Adam()
    theta = run(optimizer, START.copy(), 2)
    saved = optimizer.state_dict()
    kept = {name: value.copy() for name, value in saved.items()}
    other = Adam()
    other.load_state_dict(saved)
    run(optimizer, theta.copy(), 3)
    run(other, theta.copy(), 3)
    for name in kept:
        np.testing.assert_array_equal(saved[name], kept[name])


def test_load_state_dict_refuses_what_does_not_fit():
    optimizer = Adam(0.5)
    run(optimizer, START.copy(), 2)
    state = optimizer.state_dict()
    other = Adam(0.25)
    with pytest.raises(StateDictError, match="missing \\['eps'\\], unknown \\['epsilon'\\]"):
        other.load_state_dict({"epsilon" if k == "eps" else k: v for k, v in state.items()})
    with pytest.raises(StateDictError, match="exp_avg_sq must match exp_avg"):
        other.load_state_dict(state | {"exp_avg_sq": np.zeros(3)})
    with pytest.raises(StateDictError, match="exp_avg must be a finite"):
        other.load_state_dict(state | {"exp_avg": np.array([0, 0, 0, np.nan])})
    with pytest.raises(ArgumentError, match="lr"):
        other.load_state_dict(state | {"lr": np.array(-1.0)})
    assert other.lr == 0.25
    assert other.step_count == 0


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, "overflow"])
def test_a_failed_step_changes_nothing(make, dtype, bad):
    optimizer = make()
    theta = run(optimizer, START.astype(dtype), 3)
    kept_theta, kept_state = theta.copy(), optimizer.state_dict()
    gradient = np.ones(4, dtype)
    if bad == "overflow":
        gradient[2] = np.finfo(dtype).max
        optimizer.lr = 1e3
    else:
        gradient[2] = bad
    with pytest.raises(NonFiniteError) as caught:
        optimizer.step(theta, gradient)
    assert caught.value.what == "gradient"
    if bad == "overflow":
        assert "lower lr = 1000" in str(caught.value)
        optimizer.lr = float(kept_state["lr"])
    np.testing.assert_array_equal(theta, kept_theta)
    assert optimizer.state_dict().keys() == kept_state.keys()
    for name, value in optimizer.state_dict().items():
        np.testing.assert_array_equal(value, kept_state[name])


def test_large_finite_gradients_are_applied():
    theta = np.zeros(2, np.float32)
    SGD(1e-30).step(theta, np.full(2, 1e30, np.float32))  # the square overflows float32, the step does not
    np.testing.assert_allclose(theta, -1.0, rtol=1e-6)


@pytest.mark.parametrize("make", MAKERS)
def test_no_arrays_are_allocated_after_the_first_step(make):
    optimizer, theta = make(), np.zeros(100_000)
    gradient = np.ones_like(theta)
    optimizer.step(theta, gradient)
    tracemalloc.start()
    try:
        optimizer.step(theta, gradient)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < theta.nbytes / 10


def test_lr_can_be_assigned_and_is_checked():
    optimizer, theta = SGD(1.0), np.zeros(1)
    optimizer.lr = 0.25
    optimizer.step(theta, np.ones(1))
    assert theta[0] == -0.25
    with pytest.raises(ArgumentError, match="lr must be a positive finite number, got 0"):
        optimizer.lr = 0
    assert optimizer.lr == 0.25


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SGD(-0.1), "lr"),
        (lambda: SGD(math.nan), "lr"),
        (lambda: Adam(math.inf), "lr"),
        (lambda: SGD(0.1, momentum=1.0), "momentum"),
        (lambda: SGD(0.1, nesterov=True), "momentum > 0"),
        (lambda: Adam(betas=(0.9, 1.0)), "betas"),
        (lambda: Adam(betas=(0.9,)), "betas"),
        (lambda: Adam(eps=0.0), "eps"),
    ],
)
def test_hyperparameters_out_of_range(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()


def test_step_refuses_what_does_not_match():
    optimizer = Adam()
    with pytest.raises(ShapeError, match="must match theta"):
        optimizer.step(np.zeros(3), np.zeros(4))
    with pytest.raises(ShapeError, match="must match theta"):
        optimizer.step(np.zeros(3), np.zeros(3, np.float32))
    with pytest.raises(DTypeError, match="one float32 or float64 vector"):
        optimizer.step(np.zeros((3, 1)), np.zeros((3, 1)))
    optimizer.step(np.zeros(3), np.ones(3))
    with pytest.raises(ShapeError, match=r"state of 3 float64 parameters.*make a new Adam"):
        optimizer.step(np.zeros(4), np.ones(4))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_clip(dtype):
    gradient = np.array([3.0, -4.0], dtype)
    assert clip_by_global_norm(gradient, 10.0) == 5.0
    np.testing.assert_array_equal(gradient, [3.0, -4.0])
    assert clip_by_global_norm(gradient, math.inf) == 5.0
    np.testing.assert_array_equal(gradient, [3.0, -4.0])
    assert clip_by_global_norm(gradient, 1.0) == 5.0
    np.testing.assert_allclose(gradient, [0.6, -0.8], rtol=1e-6)
    assert clip_by_global_norm(gradient, 0.0) == pytest.approx(1.0)
    np.testing.assert_array_equal(gradient, 0.0)


@pytest.mark.parametrize("max_norm", [-1.0, math.nan, -math.inf])
def test_clip_refuses_a_norm_that_would_reverse_or_ruin(max_norm):
    gradient = np.ones(3)
    with pytest.raises(ArgumentError, match="max_norm"):
        clip_by_global_norm(gradient, max_norm)
    np.testing.assert_array_equal(gradient, 1.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_clip_does_not_spread_a_nan(bad):
    gradient = np.array([1.0, bad])
    with pytest.raises(NonFiniteError) as caught:
        clip_by_global_norm(gradient, 1.0)
    assert caught.value.what == "gradient"
    np.testing.assert_array_equal(gradient, [1.0, bad])


@pytest.mark.parametrize(
    ("dtype", "scale"), [(np.float32, 1e38), (np.float64, 1e300), (np.float64, 1e-300), (np.float32, 1e-44)]
)
def test_norm_neither_overflows_nor_underflows(dtype, scale):
    gradient = np.full((2, 2), scale, dtype)
    assert global_norm(gradient) == pytest.approx(2 * float(gradient[0, 0]), rel=1e-12, abs=0)
    assert clip_by_global_norm(gradient, scale) == pytest.approx(2 * scale, rel=0.1, abs=0)
    # an entry of 1e-44 is one of a few denormal float32: halves are rounded by a tenth and more
    assert global_norm(gradient) == pytest.approx(scale, rel=0.2 if scale == 1e-44 else 1e-6, abs=0)


def test_norm_of_nothing_zero_and_the_unrepresentable():
    assert global_norm(np.zeros(0)) == 0.0
    assert global_norm(np.zeros(5, np.float32)) == 0.0
    assert global_norm(np.full(4, 1e308)) == math.inf
    assert math.isnan(global_norm(np.array([np.nan, np.inf])))


@pytest.mark.parametrize("scale", [1e-145, 1e-150, 1e-160, 1e-170, 1e-300, 1e160])
def test_a_gradient_is_clipped_at_any_scale(scale):
    """3, 4 is 5: also where the squares are denormal (1e-160), zero (1e-300) or infinite (1e160)."""
    gradient = np.array([3.0, -4.0]) * scale
    assert clip_by_global_norm(gradient, scale) == pytest.approx(5 * scale, rel=1e-14, abs=0)
    np.testing.assert_allclose(gradient, np.array([0.6, -0.8]) * scale, rtol=1e-14)
