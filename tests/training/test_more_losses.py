"""Every loss: torch's numbers where it is installed, closed forms, differences, weights and gaps."""

from __future__ import annotations

import math

import numpy as np
import pytest

import elman
from elman.errors import ArgumentError, DTypeError, ShapeError
from elman.losses import (
    LOSSES,
    NSE,
    BinaryCrossEntropy,
    CrossEntropy,
    Huber,
    MeanAbsoluteError,
    MeanSquaredError,
    Poisson,
    Quantile,
)  # fmt: skip

RNG = np.random.default_rng(11)
Q = 6
KINDS = {
    "mse": MeanSquaredError(),
    "mae": MeanAbsoluteError(),
    "huber": Huber(0.7),
    "quantile": Quantile(0.2),
    "quantiles": Quantile([0.1, 0.5, 0.8]),
    "poisson": Poisson(),
    "rates": Poisson(log_input=False),
    "nse": NSE(np.linspace(0.5, 2.0, Q)),
    "binary": BinaryCrossEntropy(),
    "classes": CrossEntropy(),
    "weighted classes": CrossEntropy(np.arange(1.0, Q + 1)),
}


def draw(name, shape):
    """Outputs and targets."""
    output = RNG.normal(size=(*shape, Q)) * 2
    if "classes" in name:
        return output, RNG.integers(Q, size=shape)
    if name == "quantiles":
        return output, RNG.normal(size=(*shape, 2))
    target = RNG.normal(size=output.shape)
    if name in ("poisson", "rates"):
        return np.exp(output) if name == "rates" else output, np.floor(np.exp(target))
    return output, 1 / (1 + np.exp(-target)) if name == "binary" else target


@pytest.mark.parametrize("shape", [(5,), (4, 5)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", KINDS)
def test_gradients_are_derivatives(name, weighted, shape):
    loss, (output, target) = KINDS[name], draw(name, shape)
    weight = (RNG.uniform(0, 2, shape) * (RNG.random(shape) < 0.7),) if weighted else ()
    direction = RNG.normal(size=output.shape)
    _, gradient = loss.value_and_gradient(output, target, *weight)
    h = 1e-6
    up, down = (loss.value_and_gradient(output + s * h * direction, target, *weight)[0] for s in (1, -1))
    assert (gradient * direction).sum() == pytest.approx((up - down) / (2 * h), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("name", [n for n in KINDS if n != "weighted classes"])
def test_the_weighted_mean_is_that_of_each_position_alone(name):
    loss, (output, target) = KINDS[name], draw(name, (7,))
    weight = RNG.uniform(0, 3, 7)
    alone = [loss.value_and_gradient(output[i : i + 1], target[i : i + 1]) for i in range(7)]
    value, gradient = loss.value_and_gradient(output, target, weight)
    assert value == pytest.approx(np.average([v for v, _ in alone], weights=weight), rel=1e-13)
    each = np.concatenate([g for _, g in alone]) * (weight / weight.sum())[:, None]
    np.testing.assert_allclose(gradient, each, rtol=1e-12, atol=1e-16)
    value, gradient = loss.value_and_gradient(output, target, np.ones(7))
    plain_value, plain_gradient = loss.value_and_gradient(output, target)
    assert value == pytest.approx(plain_value, rel=1e-14)
    np.testing.assert_allclose(gradient, plain_gradient, rtol=1e-13, atol=1e-17)


@pytest.mark.parametrize("name", KINDS)
def test_a_position_without_weight_may_hold_anything(name):
    loss, (output, target) = KINDS[name], draw(name, (4, 3))
    weight = np.ones((4, 3))
    weight[1, 2] = weight[3, 0] = 0
    counted = weight > 0
    expected = loss.value_and_gradient(output[counted], target[counted])
    target[~counted] = -5 if target.dtype.kind == "i" else np.nan
    value, gradient = loss.value_and_gradient(output, target, weight)
    assert value == pytest.approx(expected[0], rel=1e-13)
    np.testing.assert_allclose(gradient[counted], expected[1], rtol=1e-12, atol=1e-16)
    assert not gradient[~counted].any()
    # an output that is not finite is an error everywhere
    output[1, 2, 0] = np.nan
    assert not math.isfinite(loss.value_and_gradient(output, target, weight)[0])


@pytest.mark.parametrize("name", KINDS)
def test_without_any_weight_there_is_no_loss(name):
    loss, (output, target) = KINDS[name], draw(name, (3,))
    value, gradient = loss.value_and_gradient(output, target, np.zeros(3))
    assert value == 0.0
    assert not gradient.any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", KINDS)
def test_dtypes_and_that_nothing_is_changed(name, dtype):
    loss, (output, target) = KINDS[name], draw(name, (5,))
    output = output.astype(dtype)
    before = output.copy(), target.copy()
    value, gradient = loss.value_and_gradient(output, target, np.full(5, 2.0))
    wide_value, wide = loss.value_and_gradient(output.astype(np.float64), target)
    assert gradient.dtype == dtype
    assert value == pytest.approx(wide_value, rel=1e-5)
    np.testing.assert_allclose(gradient, wide, rtol=1e-4, atol=1e-6)
    assert output.tobytes() == before[0].tobytes()
    assert target.tobytes() == before[1].tobytes()


def torch_losses(torch):
    """The same losses of torch, as functions of output and target."""
    f = torch.nn.functional
    return {
        "mse": f.mse_loss,
        "mae": f.l1_loss,
        "huber": lambda o, y: f.huber_loss(o, y, delta=0.7),
        "poisson": f.poisson_nll_loss,
        "rates": lambda o, y: f.poisson_nll_loss(o, y, log_input=False),
        "binary": f.binary_cross_entropy_with_logits,
        "classes": lambda o, y: f.cross_entropy(o.reshape(-1, Q), y.reshape(-1)),
        "weighted classes": lambda o, y: f.cross_entropy(
            o.reshape(-1, Q), y.reshape(-1), weight=torch.arange(1.0, Q + 1, dtype=o.dtype)
        ),
    }


@pytest.mark.parametrize("name", ["mse", "mae", "huber", "poisson", "rates", "binary", "classes", "weighted classes"])
def test_torch(name):
    torch = pytest.importorskip("torch")
    output, target = draw(name, (4, 5))
    o = torch.tensor(output, requires_grad=True)
    expected = torch_losses(torch)[name](o, torch.tensor(target))
    expected.backward()
    value, gradient = KINDS[name].value_and_gradient(output, target)
    assert value == pytest.approx(float(expected.detach()), rel=1e-13)
    np.testing.assert_allclose(gradient, o.grad.numpy(), rtol=1e-12, atol=1e-17)


def test_closed_forms():
    one = np.ones((1, 1))
    assert MeanAbsoluteError().value_and_gradient(3 * one, one)[0] == 2.0
    assert Huber(1.0).value_and_gradient(3 * one, one)[0] == 1.5
    assert Huber(5.0).value_and_gradient(3 * one, one)[0] == 2.0
    assert Quantile(0.9).value_and_gradient(one, 3 * one)[0] == pytest.approx(1.8, rel=1e-15)
    assert Quantile(0.9).value_and_gradient(3 * one, one)[0] == pytest.approx(0.2, rel=1e-14)
    assert Poisson().value_and_gradient(0 * one, 2 * one)[0] == 1.0
    assert BinaryCrossEntropy().value_and_gradient(0 * one, one)[0] == pytest.approx(math.log(2), rel=1e-15)
    y = RNG.normal(size=(50, 2)) * [1.0, 30.0]
    loss = NSE().fitted_to(y)
    np.testing.assert_allclose(loss.std, y.std(axis=0), rtol=1e-13)
    assert loss.value_and_gradient(np.broadcast_to(y.mean(axis=0), y.shape).copy(), y)[0] == pytest.approx(1.0)


def test_the_pinball_loss_is_least_at_the_quantile():
    y = np.sort(RNG.normal(size=(101, 1)), axis=0)
    for level in (0.1, 0.5, 0.9):
        values = [Quantile(level).value_and_gradient(np.full((101, 1), c), y)[0] for c in y[:, 0]]
        assert np.argmin(values) == round(level * 100)


@pytest.mark.parametrize("size", [800.0, -800.0])
def test_logits_of_any_size(size):
    value, gradient = BinaryCrossEntropy().value_and_gradient(np.full((1, 1), size), np.zeros((1, 1)))
    assert value == max(size, 0.0)
    assert gradient[0, 0] == (size > 0)


def test_wrong_options_and_targets_are_told():
    two = np.zeros((4, 2))
    for make, message in (
        (lambda: Huber(0), "delta must be above 0"),
        (lambda: Quantile([0.5, 0.2]), "ascending order"),
        (lambda: Quantile(1.0), "between 0 and 1"),
        (lambda: NSE([1.0, 0.0]), "above 0"),
        (lambda: CrossEntropy([1.0, -1.0]), "at least 0"),
        (lambda: NSE().value_and_gradient(two, two), "NSE\\(std"),
        (lambda: NSE().fitted_to(two), "does not vary"),
        (lambda: NSE().fitted_to(np.full((7, 1), 0.1)), "does not vary"),
        (lambda: Poisson().value_and_gradient(two, two - 1), "counts, at least 0"),
        (lambda: Poisson().value_and_gradient(two, two - 1, [1.0, 0, 0, 0]), "counts, at least 0"),
        (lambda: BinaryCrossEntropy().value_and_gradient(two, two + 2), 'loss="cross_entropy"'),
        (lambda: MeanSquaredError().value_and_gradient(two, two, [1, 1, -1, 1]), "at least 0"),
        (lambda: MeanSquaredError().value_and_gradient(two, two, [1, 1, np.nan, 1]), "must be finite"),
        (lambda: MeanSquaredError().value_and_gradient(two, two, np.full(4, 1e308)), "a finite sum"),
    ):
        with pytest.raises(ArgumentError, match=message):
            make()
    for make, message in (
        (lambda: Quantile([0.1, 0.5, 0.9]).value_and_gradient(two, two), "3 channels, one for each level"),
        (lambda: MeanSquaredError().value_and_gradient(two, two, np.ones(3)), r"its last axis, \(4,\)"),
        (lambda: MeanAbsoluteError().value_and_gradient(two[:, :1], two[:, 0]), r"y\[\.\.\., None\]"),
        (lambda: CrossEntropy().value_and_gradient(two, two.astype(int)), "argmax"),
        (lambda: CrossEntropy([1, 2, 3]).value_and_gradient(two, np.zeros(4, int)), "one for each class"),
    ):
        with pytest.raises(ShapeError, match=message):
            make()
    for make, message in (
        (lambda: CrossEntropy().value_and_gradient(two, two[:, 0]), "integer classes"),
        (lambda: CrossEntropy().value_and_gradient(two, two[:, 0] + np.nan), 'missing="ignore"'),
        (lambda: MeanSquaredError().value_and_gradient(two, two, np.full(4, 1j)), "weight must be made of real"),
        (lambda: Poisson(1), "log_input must be True or False"),
    ):
        with pytest.raises(DTypeError, match=message):
            make()


@pytest.mark.parametrize("classes", [None, np.arange(1.0, Q + 1)])
@pytest.mark.parametrize("weighted", [False, True])
def test_parts_of_a_cross_entropy_make_the_whole_by_their_total_weights(classes, weighted):
    loss, (output, target) = CrossEntropy(classes), draw("classes", (9,))
    weight = RNG.uniform(0.5, 2, 9) if weighted else None
    if weighted:
        weight[4], target[4] = 0, -7
    parts = [slice(0, 2), slice(2, 5), slice(5, 9)]
    some = [None if weight is None else weight[p] for p in parts]
    totals = [loss.total_weight(target[p], w) for p, w in zip(parts, some, strict=True)]
    each = np.ones(9) if weight is None else weight
    of_class = np.ones(9) if classes is None else classes[np.where(each > 0, target, 0)]
    assert sum(totals) == pytest.approx((each * of_class).sum(), rel=1e-14)
    values = [loss.value_and_gradient(output[p], target[p], w)[0] for p, w in zip(parts, some, strict=True)]
    whole, _ = loss.value_and_gradient(output, target, weight)
    assert np.average(values, weights=totals) == pytest.approx(whole, rel=1e-13)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rates_at_and_below_0(dtype):
    """A rate of 0 has torch's finite loss; a negative one is no rate, and says so without a warning."""
    loss, count = Poisson(log_input=False), np.full((1, 1), 3.0)
    value, gradient = loss.value_and_gradient(np.zeros((1, 1), dtype), count)
    assert value == pytest.approx(-3 * math.log(1e-8), rel=1e-6)
    assert gradient[0, 0] == pytest.approx(1 - 3e8, rel=1e-6)
    assert math.isnan(loss.value_and_gradient(np.full((1, 1), -1.0, dtype), count)[0])


def test_counts_are_not_to_be_scaled(recwarn):
    net = elman.Network(elman.RNN(1, 3, rng=0), elman.Readout(3, 1, rng=1))
    x = RNG.normal(size=(6, 4, 1))
    y = RNG.poisson(50, size=x.shape) * 1.0
    elman.fit(net, x, y, loss="poisson", epochs=1, progress=False, rng=0)
    assert not recwarn.list
    elman.fit(net, x, y, loss="mse", epochs=1, progress=False, rng=0)
    assert "y is far from unit scale" in str(recwarn.pop(elman.errors.DataWarning).message)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("last", [False, True])
def test_fit_takes_each_by_name_at_every_step_or_the_last(name, last):
    net = elman.Network(elman.RNN(2, 5, rng=0), elman.Readout(5, 3, rng=1))
    x = RNG.normal(size=(9, 12, 2))
    y = RNG.normal(size=(9, 12, 3))
    kinds = {"cross_entropy": y.argmax(-1), "poisson": np.floor(np.exp(y)), "binary_cross_entropy": (y > 0) * 1.0}
    y = kinds.get(name, y)
    history = elman.fit(net, x, y[-1] if last else y, loss=name, epochs=8, batch_size=4, progress=False, rng=0,
                        optimizer=elman.Adam(1e-2))  # fmt: skip
    assert history.loss[-1] < history.loss[0]


def test_fit_with_several_levels_has_a_channel_for_each():
    net = elman.Network(elman.RNN(1, 4, rng=0), elman.Readout(4, 3, rng=1))
    x = RNG.normal(size=(20, 40, 1))
    y = x + RNG.normal(size=x.shape)
    elman.fit(net, x, y, loss=Quantile([0.1, 0.5, 0.9]), epochs=60, optimizer=elman.Adam(1e-2), progress=False, rng=0)
    below = (y <= net(x)[0]).mean(axis=(0, 1))
    np.testing.assert_allclose(below, [0.1, 0.5, 0.9], atol=0.06)


def test_nse_divides_by_the_deviation_of_the_targets_that_count():
    net = elman.Network(elman.RNN(1, 3, rng=0), elman.Readout(3, 1, rng=1))
    x, y = RNG.normal(size=(2, 15, 6, 1))
    y[4:6, 2] = np.nan
    counted = ~np.isnan(y[..., 0])
    output = net(x)[0][counted]
    history = elman.fit(net, x, y, loss="nse", missing="ignore", epochs=1, batch_size=6, optimizer=elman.SGD(1e-9),
                        progress=False, rng=0)  # fmt: skip
    expected = np.mean((output - y[counted]) ** 2) / y[counted].var()
    assert history.loss[0] == pytest.approx(expected, rel=1e-10)
