"""Weights of classes in training, and what else targets may be."""

import numpy as np
import pytest

import elman
from elman.errors import ArgumentError
from elman.losses import CrossEntropy

RNG = np.random.default_rng(8)
X = RNG.normal(size=(7, 16, 2))
CLASSES = RNG.integers(3, size=(7, 16))
LOSS = CrossEntropy([1.0, 5.0, 0.2])


def network(channels=3):
    return elman.Network(elman.RNN(2, 4, rng=0), elman.Readout(4, channels, rng=1))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("batch_size", [1, 3, 16])
def test_the_loss_of_an_epoch_does_not_depend_on_batches(batch_size, last, weighted):
    y = CLASSES[-1] if last else CLASSES
    weight = RNG.uniform(0, 2, y.shape) if weighted else None
    output = network()(X)[0]
    expected, _ = LOSS.value_and_gradient(np.ascontiguousarray(output[-1] if last else output), y, weight)
    held_out = (X, y, None, weight)
    history = elman.fit(network(), X, y, loss=LOSS, sample_weight=weight, validation=held_out, epochs=1,
                        batch_size=batch_size, optimizer=elman.SGD(1e-13), progress=False, rng=0)  # fmt: skip
    assert history.loss[0] == pytest.approx(expected, rel=1e-10)
    assert history.validation_loss[0] == pytest.approx(expected, rel=1e-10)


def test_accumulated_batches_have_the_gradient_of_one():
    trained = []
    for batch_size, accumulate in ((16, 1), (4, 4)):
        net = network()
        elman.fit(net, X, CLASSES, loss=LOSS, epochs=1, batch_size=batch_size, accumulate=accumulate, clip_norm=None,
                  optimizer=elman.SGD(0.1), progress=False, rng=0)  # fmt: skip
        trained.append(net.theta)
    np.testing.assert_allclose(*trained, rtol=1e-12, atol=1e-14)


def test_answers_of_yes_and_no_are_numbers_for_the_loss_that_takes_them():
    y = RNG.random((7, 16, 1)) < 0.5
    theta = []
    for target in (y, y.astype(float)):
        net = network(1)
        elman.fit(net, X, target, loss="binary_cross_entropy", epochs=2, progress=False, rng=0)
        theta.append(net.theta.tobytes())
    assert theta[0] == theta[1]


def test_nan_in_targets_names_both_cures():
    y, lengths = RNG.normal(size=(7, 16, 1)), np.arange(16) % 7 + 1
    y[np.arange(7)[:, None] >= lengths] = np.nan
    message = rf'y\[1, 0, 0\] is nan .{np.isnan(y).sum()} such.*missing="ignore".*lengths='
    with pytest.raises(ArgumentError, match=message):
        elman.fit(network(1), X, y, epochs=1, progress=False, rng=0)
    for cure in ({"missing": "ignore"}, {"lengths": lengths}):
        elman.fit(network(1), X, y, epochs=1, progress=False, rng=0, **cure)
