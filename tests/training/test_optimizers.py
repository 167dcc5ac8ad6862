"""Optimizers and clipping: torch's recorded trajectories, transactions, state."""

import json
import math
import pickle
import sys
import tracemalloc
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
from naive import FLUSHES
from numba import config

from elman.errors import ArgumentError, DTypeError, NonFiniteError, ShapeError, StateDictError
from elman.training import SGD, Adam, AdamW, RMSprop, clip_by_global_norm, global_norm

REFERENCE = json.loads((Path(__file__).parents[1] / "data" / "optimizer_reference.json").read_text())
START, CENTRE, CURVATURE = (np.array(REFERENCE[key]) for key in ("start", "centre", "curvature"))
CLASSES = {"SGD": SGD, "Adam": Adam, "AdamW": AdamW, "RMSprop": RMSprop}
MAKERS = [
    lambda: SGD(0.1),
    lambda: SGD(0.1, momentum=0.9),
    lambda: SGD(0.1, momentum=0.9, nesterov=True),
    lambda: Adam(0.05),
    lambda: AdamW(0.05, weight_decay=0.1),
    lambda: RMSprop(0.05, momentum=0.5),
]
OTHERS = {
    SGD: lambda: SGD(3.0),
    Adam: lambda: Adam(3.0, betas=(0.1, 0.2), eps=1.0),
    AdamW: lambda: AdamW(3.0),
    RMSprop: lambda: RMSprop(3.0, 0.1),
}


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
    # near the minimum each step answers the rounding of the one before: adam_other multiplies it by 1e4
    np.testing.assert_allclose(run(optimizer, theta, 90), case["theta_100"], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("key", REFERENCE["trajectories"])
def test_torch_step_by_step_on_random_gradients(key):
    """Gradients of all sizes, so that momentum and means of squares differ from one parameter to the next."""
    torch = pytest.importorskip("torch")
    case, rng = REFERENCE["trajectories"][key], np.random.default_rng(3)
    optimizer, theta = CLASSES[case["class"]](**case["keywords"]), rng.standard_normal(50)
    leaf = torch.tensor(theta, requires_grad=True)
    other = getattr(torch.optim, case["class"])([leaf], **case["keywords"])
    for _ in range(100):
        gradient = rng.standard_normal(50) * 10.0 ** rng.uniform(-4, 4, 50)
        leaf.grad = torch.tensor(gradient)
        optimizer.step(theta, gradient)
        other.step()
        np.testing.assert_allclose(theta, leaf.detach().numpy(), rtol=1e-10, atol=1e-12)


class Twin:
    """AdamW and RMSprop as their papers write them, one array operation a line."""

    @staticmethod
    def adamw(theta, gradients, lr, decay, beta1=0.9, beta2=0.999, eps=1e-8):
        m = v = np.zeros_like(theta)
        for t, g in enumerate(gradients, 1):
            m = beta1 * m + (1 - beta1) * g
            v = beta2 * v + (1 - beta2) * g**2
            theta = theta - lr * (m / (1 - beta1**t) / (np.sqrt(v / (1 - beta2**t)) + eps) + decay * theta)
        return theta

    @staticmethod
    def rmsprop(theta, gradients, lr, alpha, eps, momentum):
        v = b = np.zeros_like(theta)
        for g in gradients:
            v = alpha * v + (1 - alpha) * g**2
            b = momentum * b + g / (np.sqrt(v) + eps)
            theta = theta - lr * b
        return theta


def test_twins_after_100_steps():
    rng = np.random.default_rng(4)
    start, gradients = rng.standard_normal(6), rng.standard_normal((100, 6))
    for optimizer, expected in (
        (AdamW(0.03, weight_decay=0.2), Twin.adamw(start, gradients, 0.03, 0.2)),
        (AdamW(2.0, weight_decay=0.7), Twin.adamw(start, gradients, 2.0, 0.7)),  # takes off more than all of theta
        (RMSprop(0.03, 0.9, 1e-3, 0.6), Twin.rmsprop(start, gradients, 0.03, 0.9, 1e-3, 0.6)),
    ):
        theta = start.copy()
        for gradient in gradients:
            optimizer.step(theta, gradient)
        np.testing.assert_allclose(theta, expected, rtol=1e-11, atol=1e-12)


def test_adamw_without_decay_is_adam_to_the_bit():
    one, other = run(AdamW(0.05, weight_decay=0.0), START.copy(), 20), run(Adam(0.05), START.copy(), 20)
    np.testing.assert_array_equal(one, other)
    assert not np.array_equal(run(AdamW(0.05), START.copy(), 20), other)


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
    other = OTHERS[type(optimizer)]()
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


WRONG_VALUES = [
    ("step_count", -5),
    ("step_count", 2.0),
    ("step_count", True),
    ("step_count", [1]),
    ("step_count", 0),  # with a state that steps have made
    ("step_count", np.uint64(2**63)),
    ("lr", "0.1"),
    ("lr", None),
    ("lr", True),
    ("lr", [0.1, 0.2]),
    ("lr", 1j),
    ("lr", np.inf),
    ("eps", -1e-8),
    ("betas", 0.9),
    ("betas", "ab"),
    ("betas", [[0.9, 0.999]]),
    ("betas", [0.9, None]),
    ("exp_avg", "abcd"),
    ("exp_avg", np.ma.masked_array(np.zeros(4), mask=[1, 0, 0, 0])),
    ("exp_avg_sq", np.array([0.0, 1.0, -1e-9, 0.0])),
]


@pytest.mark.parametrize(("name", "value"), WRONG_VALUES)
def test_a_wrong_value_in_a_saved_state_is_named_and_changes_nothing(name, value):
    optimizer, other = Adam(0.5), Adam(0.25, (0.5, 0.6), 1e-3)
    run(optimizer, START.copy(), 2)
    run(other, START.copy(), 3)
    before = pickle.dumps(other.state_dict())
    with pytest.raises((StateDictError, ArgumentError, DTypeError), match=name):
        other.load_state_dict(optimizer.state_dict() | {name: value})
    assert pickle.dumps(other.state_dict()) == before
    with pytest.raises(DTypeError, match="state must be a mapping.*got a list of 1"):
        other.load_state_dict([("lr", 0.1)])
    with pytest.raises(StateDictError, match="unknown .'7'"):
        other.load_state_dict(optimizer.state_dict() | {7: 0.1})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SGD("0.1"), "lr must be a number, got '0.1'"),
        (lambda: SGD(0.1, momentum=None), "momentum must be a number, got None"),
        (lambda: SGD(0.1, 0.9, nesterov="no"), "nesterov must be True or False, got 'no'"),
        (lambda: Adam(betas=(0.9, "0.99")), r"betas\[1\] must be a number"),
        (lambda: Adam(eps=[1e-8]), "eps must be a number"),
        (lambda: Adam("0.1"), r"lr must be a number, got '0.1' \(str\)"),
        (lambda: AdamW(weight_decay="0.1"), "weight_decay must be a number"),
        (lambda: RMSprop(alpha=None), "alpha must be a number"),
    ],
)
def test_hyperparameters_of_another_type(make, message):
    with pytest.raises(DTypeError, match=message):
        make()


class Interrupting:
    """Raises KeyboardInterrupt at one of the bytecodes that run within ``with``: where a signal may be handled."""

    def __init__(self, at):
        self.at, self.seen = at, 0

    def trace(self, frame, event, argument):
        frame.f_trace_opcodes = True
        if event == "opcode" and frame.f_code is not Interrupting.__exit__.__code__:
            self.seen += 1
            if self.seen == self.at:
                raise KeyboardInterrupt
        return self.trace

    def __enter__(self):
        self.previous = sys.gettrace()
        sys.settrace(self.trace)
        return self

    def __exit__(self, *error):
        sys.settrace(self.previous)


def everywhere(change):
    """Call ``change(interrupting)`` with an interrupt at its first bytecode, at its second, and so on to the last."""
    for at in range(1, 100_000):
        interrupting = Interrupting(at)
        try:
            change(interrupting)
        except KeyboardInterrupt:
            continue
        assert interrupting.seen < at
        return at - 1
    raise AssertionError


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("earlier", [0, 1, 2])
def test_an_interrupt_at_any_point_leaves_a_whole_step_or_none(make, earlier):
    optimizer = make()
    theta = run(optimizer, START.copy(), earlier)
    after, theta_after = deepcopy(optimizer), theta.copy()
    gradient = CURVATURE * (theta - CENTRE)
    after.step(theta_after, gradient)
    both = [(theta.tobytes(), optimizer.step_count), (theta_after.tobytes(), after.step_count)]
    found = set()

    def change(interrupting):
        mine, own = theta.copy(), deepcopy(optimizer)
        try:
            with interrupting:
                own.step(mine, gradient)
        finally:
            found.add((mine.tobytes(), own.step_count))
            went = (mine.tobytes(), own.step_count) == both[1]
            whole = after if went else optimizer
            state = own.state_dict()
            for name in own.slots:  # zeros made for a first step are as good as none
                wanted = whole.state_dict()[name]
                np.testing.assert_array_equal(state[name], wanted if wanted.size else np.zeros_like(state[name]))
            # and it goes on as if nothing had been
            if not went:
                own.step(mine, gradient)
            assert mine.tobytes() == theta_after.tobytes()

    assert everywhere(change) > 100
    assert found == set(both)


def test_an_interrupt_at_any_point_leaves_a_whole_state_dict_loaded_or_none():
    optimizer, other = Adam(0.5), Adam(0.25, (0.5, 0.6), 1e-3)
    run(optimizer, START.copy(), 2)
    run(other, START.copy(), 3)
    both = [pickle.dumps(each.state_dict()) for each in (other, optimizer)]
    found = set()

    def change(interrupting):
        own = deepcopy(other)
        try:
            with interrupting:
                own.load_state_dict(optimizer.state_dict())
        finally:
            found.add(pickle.dumps(own.state_dict()))

    assert everywhere(change) > 100
    assert found == set(both)


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


@pytest.mark.skipif(config.DISABLE_JIT, reason="NumPy's formulas make arrays where compiled ones make none")
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
        (lambda: AdamW(weight_decay=-0.1), "weight_decay"),
        (lambda: RMSprop(alpha=1.0), "alpha"),
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
    fixed = np.zeros(3)
    fixed.flags.writeable = False
    for theta, gradient, words in (
        (np.zeros(3), {"w": np.ones(3)}, "gradient must be one float32 or float64 vector.*grads.theta, got a dict"),
        (np.zeros(3, int), np.ones(3, int), "theta must be .* got ndarray .* int64"),
        (np.zeros(3), np.ma.ones(3), "gradient must be one float32 or float64 vector"),
        (fixed, np.ones(3), "theta must be writable"),
    ):
        with pytest.raises(DTypeError, match=words):
            optimizer.step(theta, gradient)
    with pytest.raises(NonFiniteError, match="theta holds numbers that are not finite"):
        optimizer.step(np.array([0.0, np.nan, 0.0]), np.ones(3))
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
    # the halves of 1e-44 are subnormal and become 0; without the mode they are rounded by a tenth and more
    expected = 0 if scale == 1e-44 and FLUSHES else scale
    assert global_norm(gradient) == pytest.approx(expected, rel=0.2 if scale == 1e-44 else 1e-6, abs=0)


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
