"""Wrong targets: each message names a cure, and the cure works."""

import re

import numpy as np
import pytest

import elman
from elman.errors import DTypeError, ShapeError
from elman.targets import positions

RNG = np.random.default_rng(3)
X = RNG.normal(size=(7, 16, 2))
CLASSES = RNG.integers(3, size=(7, 16))
ONE_HOT = np.eye(3)[CLASSES]
NUMBERS = RNG.normal(size=(7, 16, 3))


def network(channels):
    return elman.Network(elman.RNN(2, 4, rng=0), elman.Readout(4, channels, rng=1))


def trained(y, loss, channels):
    elman.fit(network(channels), X, y, loss=loss, epochs=1, progress=False, rng=0)


def diagnosed(y, loss, channels):
    elman.diagnose(network(channels), X, y, rng=0, **({} if loss == "mse" else {"loss": loss}))


WRONG = {
    "column of classes": (CLASSES[..., None], "cross_entropy", 3),
    "column of classes at the end": (CLASSES[-1, :, None], "cross_entropy", 3),
    "one-hot": (ONE_HOT, "cross_entropy", 3),
    "one-hot integers": (ONE_HOT.astype(int), "cross_entropy", 3),
    "one-hot at the end": (ONE_HOT[-1], "cross_entropy", 3),
    "numbers at the end": (NUMBERS[-1, :, 0], "mse", 1),
    "numbers at every step": (NUMBERS[..., 0], "mae", 1),
    "an axis of length 1": (NUMBERS[..., None, :], "mse", 3),
    "an axis of length 1 before": (NUMBERS[None, -1], "huber", 3),
    "two axes of channels": (RNG.normal(size=(7, 16, 2, 2)), "mse", 4),
}


@pytest.mark.parametrize("use", [trained, diagnosed])
@pytest.mark.parametrize("case", WRONG)
def test_the_cure_for_a_wrong_shape_works(case, use):
    y, loss, channels = WRONG[case]
    with pytest.raises(ShapeError) as error:
        use(y, loss, channels)
    cure = re.search(r"(y(\.\w+\([-\d, ]+\)|\[\.\.\., None\]))", str(error.value)).group(1)
    use(eval(cure, {"y": y}), loss, channels)


@pytest.mark.parametrize("use", [trained, diagnosed])
@pytest.mark.parametrize("last", [False, True])
def test_classes_without_a_loss_name_it(use, last):
    y = CLASSES[-1] if last else CLASSES
    with pytest.raises(ShapeError, match=r'for classes give loss="cross_entropy"') as error:
        use(y, "mse", 3)
    # with three channels, numbers instead of classes need another network
    assert (use is trained) == ("[..., None], for a network of 1 output channel in the place of 3" in str(error.value))
    use(y, "cross_entropy", 3)
    with pytest.raises(DTypeError, match=r'for classes use loss="cross_entropy".*y.astype\(float\)'):
        use(y[..., None], "mse", 1)
    use(y[..., None].astype(float), "mse", 1)


@pytest.mark.parametrize("use", [trained, diagnosed])
def test_labels_that_are_floating_point_numbers(use):
    y = CLASSES.astype(float)
    with pytest.raises(DTypeError, match=r"pass y.astype\(int\)"):
        use(y, "cross_entropy", 3)
    use(y.astype(int), "cross_entropy", 3)


def test_numbers_for_classes_name_another_loss():
    with pytest.raises(ShapeError, match=r'for real numbers give another loss, such as loss="mse"'):
        trained(NUMBERS, "cross_entropy", 5)


def test_nothing_is_said_where_nothing_is_known():
    for shape, axes, channels in (((4, 9), 1, 2), ((7, 16, 5, 2), 1, 3), ((7, 16, 1, 1), 0, 2), ((9,), 0, 2)):
        with pytest.raises(ShapeError) as error:
            positions(shape, "y", (7, 16), (16,), axes, channels)
        assert str(error.value).endswith(f"got {shape}")
