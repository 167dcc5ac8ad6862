"""Metrics: scikit-learn's numbers, closed forms, weights, refusals."""

import math

import numpy as np
import pytest

from elman import metrics
from elman.errors import ArgumentError, DTypeError, ShapeError

RNG = np.random.default_rng(8)
OUTPUT, TARGET = RNG.normal(size=(2, 6, 4, 3))
WEIGHT = RNG.uniform(size=(6, 4))
CLASSES = RNG.integers(0, 3, (6, 4))
REAL = ("mse", "rmse", "mae", "r2", "nse", "correlation")
OF_CLASSES = ("accuracy", "cross_entropy", "perplexity")


def flat(a):
    return a.reshape(-1, a.shape[-1])


@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_scikit_learn(weight):
    sk = pytest.importorskip("sklearn.metrics")
    w = None if weight is None else weight.ravel()
    options = {"sample_weight": w}
    output, target = flat(OUTPUT), flat(TARGET)
    for name, expected in (
        ("mse", sk.mean_squared_error(target, output, **options)),
        ("mae", sk.mean_absolute_error(target, output, **options)),
        ("r2", sk.r2_score(target, output, **options)),
        ("nse", sk.r2_score(target, output, **options)),
        ("rmse", math.sqrt(sk.mean_squared_error(target, output, **options))),
    ):
        assert metrics.METRICS[name](OUTPUT, TARGET, weight) == pytest.approx(expected, rel=1e-12)
    probability = np.exp(output) / np.exp(output).sum(axis=1, keepdims=True)
    nats = sk.log_loss(CLASSES.ravel(), probability, labels=[0, 1, 2], **options)
    assert metrics.cross_entropy(OUTPUT, CLASSES, weight) == pytest.approx(nats, rel=1e-12)
    assert metrics.perplexity(OUTPUT, CLASSES, weight) == pytest.approx(math.exp(nats), rel=1e-12)
    share = sk.accuracy_score(CLASSES.ravel(), output.argmax(axis=1), **options)
    assert metrics.accuracy(OUTPUT, CLASSES, weight) == pytest.approx(share, rel=1e-12)


def test_correlation_is_that_of_numpy():
    expected = np.mean([np.corrcoef(flat(OUTPUT)[:, q], flat(TARGET)[:, q])[0, 1] for q in range(3)])
    assert metrics.correlation(OUTPUT, TARGET) == pytest.approx(expected, rel=1e-12)
    assert metrics.correlation(5 * OUTPUT + 7, OUTPUT) == pytest.approx(1.0, rel=1e-12)


def test_closed_forms():
    target = TARGET
    assert metrics.r2(target, target) == 1.0
    assert metrics.r2(np.broadcast_to(flat(target).mean(axis=0), target.shape), target) == pytest.approx(0, abs=1e-14)
    assert metrics.perplexity(np.zeros((9, 7)), RNG.integers(0, 7, 9)) == pytest.approx(7.0, rel=1e-14)
    assert metrics.perplexity(np.array([[-1e4, 0.0]]), np.array([0])) == math.inf
    assert metrics.mae(np.array([[3.0]]), np.array([[-1.0]])) == 4.0
    assert metrics.accuracy(np.array([[-1.0], [2.0], [3.0]]), np.array([[0], [1], [0]])) == pytest.approx(2 / 3)


@pytest.mark.parametrize("name", REAL + OF_CLASSES)
def test_whole_weights_are_repetitions_and_weight_0_is_not_looked_at(name):
    metric, counts = metrics.METRICS[name], RNG.integers(0, 4, (6, 4))
    target = TARGET if name in REAL else CLASSES
    repeated = metric(*(np.repeat(a.reshape(24, *a.shape[2:]), counts.ravel(), axis=0) for a in (OUTPUT, target)))
    assert metric(OUTPUT, target, counts) == pytest.approx(repeated, rel=1e-12)
    spoilt = target.copy()
    spoilt[counts == 0] = np.nan if name in REAL else -99
    assert metric(OUTPUT, spoilt, counts) == metric(OUTPUT, target, counts)
    assert metric(OUTPUT, target, counts * 1e307) == pytest.approx(repeated, rel=1e-12)
    assert math.isnan(metric(OUTPUT, spoilt, np.zeros((6, 4))))
    assert math.isnan(metric(OUTPUT[:0], target[:0]))


def test_a_constant_channel_has_no_r2():
    target = TARGET.copy()
    target[..., 1] = 0.1
    assert math.isnan(metrics.r2(OUTPUT, target))
    assert math.isnan(metrics.correlation(OUTPUT, target))


def test_float32_is_summed_in_float64():
    output = np.full((100_000, 1), 0.1, np.float32)
    assert metrics.mae(output, np.zeros((100_000, 1))) == pytest.approx(float(np.float32(0.1)), rel=1e-12)


def test_names_and_own_functions():
    def skill(output, target, weight=None):
        return 1.0

    skill.higher_is_better = True
    assert metrics.get_metric("r2") == ("r2", metrics.r2)
    assert metrics.get_metric(skill) == ("skill", skill)
    assert metrics.higher_is_better(skill)
    assert [n for n in metrics.METRICS if metrics.higher_is_better(n)] == ["r2", "nse", "correlation", "accuracy"]
    assert set(metrics.METRICS) == set(REAL + OF_CLASSES)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: metrics.get_metric("auc"), ArgumentError, "metric must be one of 'mse'.*got 'auc'"),
        (lambda: metrics.get_metric(3), DTypeError, "a metric must be a name such as"),
        (lambda: metrics.mse(OUTPUT, TARGET[..., :1]), ShapeError, "target must have the shape of the output"),
        (lambda: metrics.mse(OUTPUT, TARGET * np.nan), ArgumentError, "target .where its weight is positive.* finite"),
        (lambda: metrics.mse(OUTPUT * np.inf, TARGET), ArgumentError, "output must be finite"),
        (lambda: metrics.mse(OUTPUT, TARGET, WEIGHT - 1), ArgumentError, "weight must hold numbers of at least 0"),
        (lambda: metrics.mse(OUTPUT, TARGET, WEIGHT[:2]), ShapeError, "weight must have one number for each position"),
        (lambda: metrics.mse(np.float64(1.0), np.float64(1.0)), ShapeError, "channels on its last axis"),
        (lambda: metrics.accuracy(OUTPUT, CLASSES + 1), ArgumentError, "classes 0 .. 2.*got 3"),
        (lambda: metrics.accuracy(OUTPUT, CLASSES * 1.0), DTypeError, "integer classes"),
        (lambda: metrics.accuracy(OUTPUT, TARGET), ArgumentError, "0 and 1"),
        (lambda: metrics.perplexity(OUTPUT, CLASSES[:3]), ShapeError, "one class for each position"),
    ],
)
def test_refusals(call, error, words):
    with pytest.raises(error, match=words):
        call()
