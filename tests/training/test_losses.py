"""Losses: torch's recorded numbers, finite differences, closed forms."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from elman.errors import ArgumentError, DTypeError, ShapeError
from elman.losses import get_loss
from elman.training import CrossEntropy, MeanSquaredError

REFERENCE = json.loads((Path(__file__).parents[1] / "data" / "optimizer_reference.json").read_text())
MSE, CROSS_ENTROPY = MeanSquaredError(), CrossEntropy()
RNG = np.random.default_rng(5)


@pytest.mark.parametrize("name", ["mse", "cross_entropy"])
def test_torch_numbers(name):
    case = REFERENCE[name]
    value, gradient = get_loss(name).value_and_gradient(np.array(case["output"]), np.array(case["target"]))
    assert value == pytest.approx(case["value"], rel=1e-14)
    np.testing.assert_allclose(gradient, case["gradient"], rtol=1e-13, atol=1e-17)


@pytest.mark.parametrize("shape", [(5,), (4, 5), (3, 4, 5)])
@pytest.mark.parametrize("loss", [MSE, CROSS_ENTROPY])
def test_gradient_is_the_derivative(loss, shape):
    output, direction = RNG.normal(size=(2, *shape))
    target = RNG.normal(size=shape) if loss is MSE else RNG.integers(5, size=shape[:-1])
    _, gradient = loss.value_and_gradient(output, target)
    h = 1e-5
    up, down = (loss.value_and_gradient(output + sign * h * direction, target)[0] for sign in (1, -1))
    assert (gradient * direction).sum() == pytest.approx((up - down) / (2 * h), rel=1e-8)


@pytest.mark.parametrize("loss", [MSE, CROSS_ENTROPY])
def test_gradient_has_the_dtype_of_the_output_and_nothing_is_changed(loss):
    output = RNG.normal(size=(3, 4)).astype(np.float32)
    target = RNG.normal(size=(3, 4)) if loss is MSE else RNG.integers(4, size=3).astype(np.uint8)
    before = output.copy(), target.copy()
    value, gradient = loss.value_and_gradient(output, target)
    wide_value, wide_gradient = loss.value_and_gradient(output.astype(np.float64), target)
    assert gradient.dtype == np.float32
    assert wide_gradient.dtype == np.float64
    assert value == pytest.approx(wide_value, rel=1e-6)
    np.testing.assert_allclose(gradient, wide_gradient, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(output, before[0])
    np.testing.assert_array_equal(target, before[1])


def test_mse_of_large_float32_does_not_overflow():
    value, _ = MSE.value_and_gradient(np.full((2, 2), 1e30, np.float32), np.zeros((2, 2), np.float32))
    assert value == pytest.approx(1e60, rel=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cross_entropy_limits_at_huge_logits(dtype):
    output = np.array([[1e4, -1e4, 0.0], [-1e4, 1e4, 0.0], [1e4, 1e4, 1e4]], dtype)
    value, gradient = CROSS_ENTROPY.value_and_gradient(output, np.array([0, 0, 2]))
    assert value == pytest.approx((0 + 2e4 + math.log(3)) / 3, rel=1e-6)
    np.testing.assert_allclose(
        gradient * 3, [[0, 0, 0], [-1, 1, 0], [1 / 3, 1 / 3, -2 / 3]], rtol=1e-6, atol=np.finfo(dtype).eps
    )


def test_cross_entropy_of_equal_logits_is_the_log_of_the_number_of_classes():
    value, _ = CROSS_ENTROPY.value_and_gradient(np.zeros((4, 7, 10)), RNG.integers(10, size=(4, 7)))
    assert value == pytest.approx(math.log(10), rel=1e-14)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("loss", [MSE, CROSS_ENTROPY])
def test_an_output_that_is_not_finite_shows_in_the_value_without_a_warning(loss, bad):
    output = np.zeros((2, 3))
    output[1, 1] = bad
    target = np.zeros((2, 3)) if loss is MSE else np.array([0, 1])
    assert not math.isfinite(loss.value_and_gradient(output, target)[0])


@pytest.mark.parametrize("loss", [MSE, CROSS_ENTROPY])
def test_an_empty_batch_has_loss_zero(loss):
    target = np.zeros((5, 0, 3)) if loss is MSE else np.zeros((5, 0), int)
    value, gradient = loss.value_and_gradient(np.zeros((5, 0, 3)), target)
    assert value == 0.0
    assert gradient.shape == (5, 0, 3)


def test_shapes_are_not_broadcast():
    with pytest.raises(ShapeError, match=r"shape of the output \(8, 1\).*got \(8,\)"):
        MSE.value_and_gradient(np.zeros((8, 1)), np.zeros(8))
    with pytest.raises(ShapeError, match=r"have the shape \(8,\).*got \(8, 1\)"):
        CROSS_ENTROPY.value_and_gradient(np.zeros((8, 3)), np.zeros((8, 1), int))


def test_kinds_of_targets():
    with pytest.raises(DTypeError, match='int64: for classes use loss="cross_entropy"'):
        MSE.value_and_gradient(np.zeros((8, 1)), np.zeros((8, 1), np.int64))
    with pytest.raises(DTypeError, match="argmax"):
        CROSS_ENTROPY.value_and_gradient(np.zeros((8, 3)), np.zeros((8, 3)))


@pytest.mark.parametrize("bad", [-1, 3, -100])
def test_a_class_out_of_range_is_named(bad):
    target = np.zeros((4, 2), int)
    target[2, 1] = bad
    with pytest.raises(ArgumentError, match=rf"classes 0 .. 2, .* 3 channels; y\[2, 1\] is {bad}"):
        CROSS_ENTROPY.value_and_gradient(np.zeros((4, 2, 3)), target)


def test_a_class_beyond_the_range_of_intp_is_named():
    with pytest.raises(ArgumentError, match=r"y\[1\] is 18446744073709551615"):
        CROSS_ENTROPY.value_and_gradient(np.zeros((2, 3)), np.array([0, 2**64 - 1], np.uint64))


def test_get_loss():
    assert get_loss(MSE) is MSE
    with pytest.raises(ArgumentError, match="'mse', .*'cross_entropy', got 'MSE'"):
        get_loss("MSE")
    with pytest.raises(DTypeError, match="value_and_gradient"):
        get_loss(lambda output, target: 0.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_far_and_equal_logits_in_one_batch(dtype):
    """The largest logit is that of each row: one far row may not take the digits of the next, nor underflow it."""
    output = np.array([[1e4, 0.0, -1e4], [0.0, 0.0, 0.0], [-1e4, -1e4, -1e4], [0.0, 1.0, 2.0]], dtype)
    target = np.array([0, 1, 2, 2])
    value, gradient = CROSS_ENTROPY.value_and_gradient(output, target)
    last = np.exp([0.0, 1.0, 2.0])
    assert value == pytest.approx(
        (0 + 2 * math.log(3) + math.log(last.sum()) - 2) / 4, rel=4 * float(np.finfo(dtype).eps)
    )
    third = np.full(3, 1 / 3)
    expected = np.array([[1, 0, 0], third, third, last / last.sum()]) - np.eye(3)[target]
    np.testing.assert_allclose(4 * gradient, expected, rtol=1e-6 if dtype is np.float32 else 1e-13, atol=0)


def test_the_mean_cross_entropy_of_float32_is_summed_in_float64():
    """One loss of 3e7 beside 2^15 of log 2: float32, whose step is 2 there, would lose each of them."""
    n = 2**15
    output = np.zeros((n + 1, 2), np.float32)
    output[0] = [0.0, 3e7]
    value, _ = CROSS_ENTROPY.value_and_gradient(output, np.zeros(n + 1, int))
    assert value == pytest.approx((3e7 + n * math.log(2)) / (n + 1), rel=1e-7)
    wide, _ = CROSS_ENTROPY.value_and_gradient(output.astype(np.float64), np.zeros(n + 1, int))
    assert wide == pytest.approx((3e7 + n * math.log(2)) / (n + 1), rel=1e-14)


@pytest.mark.parametrize("expected", [1e-12, [1e-20, -1e-300], np.array([1e-10])])
def test_tiny_numbers_are_not_compared_with_the_default_abs(expected):
    with pytest.raises(AssertionError, match="say abs"):
        pytest.approx(expected, rel=1e-6)
    assert pytest.approx(expected, rel=1e-6, abs=0) == expected
