"""Weights of sequences and steps, and targets with gaps."""

import numpy as np
import pytest

import elman
from elman.errors import ArgumentError, DTypeError, NonFiniteError, ShapeError
from elman.training import SGD, fit

T, N, D, Q = 7, 10, 2, 3


class Squares:
    """The weighted mean of squares, from its definition."""

    takes_weight = True

    def value_and_gradient(self, output, target, weight=None):
        weight = np.ones(output.shape[:-1]) if weight is None else weight
        share = weight / weight.sum()
        difference = np.where(share[..., None] > 0, output - target, 0)
        q = output.shape[-1]
        value = (share[..., None] * difference**2).sum() / q
        return value, (2 / q * share[..., None] * difference).astype(output.dtype)


def network(seed=0, **options):
    return elman.Network(elman.RNN(D, 5, rng=seed, **options), elman.Readout(5, Q, rng=seed + 1))


def data(seed=3):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(T, N, D))
    return x, np.stack([x[..., 0], x[..., 1] ** 2, np.roll(x[..., 0], 1, 0)], -1)


def trained(x, y, *, net=None, **options):
    net = network() if net is None else net
    settings = {"loss": Squares(), "optimizer": SGD(0.1), "epochs": 3, "batch_size": 4, "clip_norm": None, "rng": 0}
    history = fit(net, x, y, progress=False, **(settings | options))
    return net.theta.copy(), history


def test_a_sequence_of_weight_two_counts_as_two():
    x, y = data()
    counts = np.array([1, 2, 1, 3, 1, 1, 2, 1, 1, 1])
    twice = np.repeat(np.arange(N), counts)
    weighted, a = trained(x, y, sample_weight=counts, batch_size=N)
    repeated, b = trained(x[:, twice], y[:, twice], batch_size=len(twice))
    np.testing.assert_allclose(weighted, repeated, rtol=1e-11)
    np.testing.assert_allclose(a.loss, b.loss, rtol=1e-12)
    assert not np.allclose(weighted, trained(x, y, batch_size=N)[0])


@pytest.mark.parametrize("truncation", [None, 3])
@pytest.mark.parametrize("batch_first", [False, True])
def test_gaps_hold_anything_and_equal_weights_of_zero(truncation, batch_first):
    x, y = data()
    weight = np.random.default_rng(0).integers(0, 3, (T, N)).astype(float)
    weight[:, 4] = 0  # a sequence without any target
    with_nan = np.where(weight[..., None] > 0, y, np.nan)
    options = {"truncation": truncation}
    by_weight, a = trained(x, y, sample_weight=weight, **options)
    if batch_first:
        x, with_nan, weight = (v.swapaxes(0, 1) for v in (x, with_nan, weight))
    unread, b = trained(x, with_nan, sample_weight=weight, net=network(batch_first=batch_first), **options)
    if batch_first:  # sums in another order
        np.testing.assert_allclose(unread, by_weight, rtol=1e-12)
    else:
        np.testing.assert_array_equal(unread, by_weight)
        assert a == b
    ones = (weight > 0).astype(float)
    missing, c = trained(x, with_nan, missing="ignore", net=network(batch_first=batch_first), **options)
    zeros, d = trained(x, np.nan_to_num(with_nan), sample_weight=ones, net=network(batch_first=batch_first), **options)
    np.testing.assert_array_equal(missing, zeros)
    assert c == d
    assert np.isfinite(missing).all()


@pytest.mark.parametrize(
    ("batch_size", "truncation", "accumulate"), [(10, None, 1), (3, None, 1), (4, 2, 1), (3, 3, 2)]
)
def test_the_loss_of_an_epoch_is_the_weighted_mean_over_all_targets(batch_size, truncation, accumulate):
    x, y = data()
    weight = np.random.default_rng(1).uniform(size=(T, N))
    weight[2:4] = 0
    net = network()
    square = ((net(x)[0] - y) ** 2).mean(-1)
    _, history = trained(
        x, y, sample_weight=weight, batch_size=batch_size, truncation=truncation, accumulate=accumulate, epochs=1,
        optimizer=SGD(1e-300), validation=(x, y, None, weight**2),
    )  # fmt: skip
    assert history.loss[0] == pytest.approx((weight * square).sum() / weight.sum(), rel=1e-12)
    assert history.validation_loss[0] == pytest.approx((weight**2 * square).sum() / (weight**2).sum(), rel=1e-12)


def test_weights_beyond_the_ends_are_never_read():
    x, y = data()
    lengths = np.array([7, 3, 5, 7, 1, 2, 7, 6, 0, 4])
    weight = np.random.default_rng(1).uniform(0.5, 1, size=(T, N))
    beyond = np.arange(T)[:, None] >= lengths
    theta, _ = trained(x, y, lengths=lengths, sample_weight=np.where(beyond, np.nan, weight))
    other, _ = trained(x, y, sample_weight=np.where(beyond, 0, weight))
    np.testing.assert_allclose(theta, other, rtol=0, atol=0.2)  # other batches: sequences of no steps are left out
    full, _ = trained(x, y, lengths=lengths, sample_weight=np.where(beyond, 0, weight), batch_size=N)
    same, _ = trained(x, y, sample_weight=np.where(beyond, 0, weight), batch_size=N)
    np.testing.assert_allclose(full, same, rtol=1e-11)
    listed = [x[:n, i] for i, n in enumerate(lengths) if n]
    of_lists = trained(
        listed, [y[:n, i] for i, n in enumerate(lengths) if n], batch_size=N,
        sample_weight=[weight[:n, i] for i, n in enumerate(lengths) if n],
    )[0]  # fmt: skip
    np.testing.assert_allclose(of_lists, same, rtol=1e-11)


def test_gaps_in_targets_of_the_last_step():
    x, y = data()
    last = y[-1].copy()
    last[3:6] = np.nan
    keep = np.r_[0:3, 6:N]
    theta, history = trained(x, last, missing="ignore", batch_size=N)
    without, again = trained(x[:, keep], last[keep], batch_size=N)
    np.testing.assert_allclose(theta, without, rtol=1e-11)
    np.testing.assert_allclose(history.loss, again.loss, rtol=1e-12)


def test_a_batch_of_gaps_alone_teaches_nothing_and_the_epoch_still_ends():
    x, y = data()
    gaps = y.copy()
    order = np.random.default_rng(0).permutation(N)
    gaps[:, order[8:]] = np.nan  # the last batch of the first epoch
    seen = []
    _, history = trained(
        x, gaps, missing="ignore", epochs=1, callbacks=[lambda u: seen.append((u.step, u.epoch_ended)) and None]
    )
    assert seen == [(0, False), (1, False), (1, True)]
    assert history.epochs == 1
    assert history.updates == 2


def test_one_sequence_with_weights_of_its_steps():
    x, y = data()
    weight = np.linspace(0, 1, T)
    alone, _ = trained(x[:, 0], y[:, 0], sample_weight=weight)
    as_batch, _ = trained(x[:, :1], y[:, :1], sample_weight=weight[:, None])
    np.testing.assert_array_equal(alone, as_batch)


def test_what_is_refused():
    x, y = data()
    start = network().theta
    net = network()
    gap = y.copy()
    gap[0, 0, 0] = np.nan
    infinite = y.copy()
    infinite[0, 0, 0] = np.inf
    cases = [
        (
            ShapeError,
            r"sample_weight must have shape \(10,\) .*or \(7, 10\).*got \(7,\)",
            {"sample_weight": np.ones(T)},
        ),
        (ShapeError, "swapped", {"sample_weight": np.ones((N, T))}),
        (ArgumentError, r"sample_weight\[1\] is -1", {"sample_weight": np.array([1, -1] * 5)}),
        (ArgumentError, "finite", {"sample_weight": np.full(N, np.nan)}),
        (ArgumentError, "nothing to learn", {"sample_weight": np.zeros(N)}),
        (DTypeError, "sample_weight", {"sample_weight": np.ones(N, complex)}),
        (ArgumentError, "y must be finite", {"y": gap}),
        (ArgumentError, "y must be finite", {"y": infinite, "missing": "ignore"}),
        (ArgumentError, "missing must be one of", {"missing": "drop"}),
        (ArgumentError, "takes_weight = True", {"loss": OnlyValue(), "missing": "ignore"}),
        (ArgumentError, "takes_weight = True", {"loss": OnlyValue(), "sample_weight": np.ones(N)}),
    ]
    for kind, message, change in cases:
        given = {"x": x, "y": y} | change
        with pytest.raises(kind, match=message):
            trained(given.pop("x"), given.pop("y"), net=net, **given)
    np.testing.assert_array_equal(net.theta, start)


def test_a_nan_output_is_an_error_at_weight_zero_too():
    x, y = data()

    class Broken(Squares):
        def value_and_gradient(self, output, target, weight=None):
            return super().value_and_gradient(output * np.nan, target, weight)

    with pytest.raises(NonFiniteError, match="epoch 0, update 0"):
        trained(x, y, loss=Broken(), sample_weight=np.ones(N))


class OnlyValue:
    def value_and_gradient(self, output, target):
        return 0.0, np.zeros_like(output)


@pytest.mark.parametrize("name", ["mse", "cross_entropy"])
def test_weighted_losses_are_the_mean_over_weights(name):
    """Against whole weights, which are repetitions, and differences; what stands at weight 0 does not matter."""
    loss = elman.losses.get_loss(name)
    rng = np.random.default_rng(0)
    output, weight = rng.normal(size=(T, N, Q)), rng.integers(0, 3, (T, N))
    target = rng.normal(size=(T, N, Q)) if name == "mse" else rng.integers(0, Q, (T, N))
    again = np.repeat(output.reshape(-1, Q), weight.reshape(-1), 0)
    wanted = np.repeat(target.reshape(-1, *target.shape[2:]), weight.reshape(-1), 0)
    spoiled = target.copy()
    spoiled[weight == 0] = np.nan if name == "mse" else 99
    value, d_output = loss.value_and_gradient(output, spoiled, weight)
    assert value == pytest.approx(loss.value_and_gradient(again, wanted)[0], rel=1e-12)
    assert not d_output[weight == 0].any()
    direction = rng.normal(size=output.shape)
    ahead, behind = (loss.value_and_gradient(output + s * 1e-6 * direction, spoiled, weight)[0] for s in (1, -1))
    assert (d_output * direction).sum() == pytest.approx((ahead - behind) / 2e-6, rel=1e-7)
    none = loss.value_and_gradient(output, spoiled, 0 * weight)
    assert none[0] == 0
    assert not none[1].any()


def test_classes_with_gaps():
    x, _ = data()
    y = np.random.default_rng(0).integers(0, Q, (T, N))
    gaps = np.random.default_rng(1).random((T, N)) < 0.3
    options = {"loss": "cross_entropy", "metrics": "accuracy"}
    theta, a = trained(x, np.where(gaps, np.nan, y), missing="ignore", **options)
    weighted, b = trained(x, np.where(gaps, -1, y), sample_weight=(~gaps).astype(float), **options)
    np.testing.assert_array_equal(theta, weighted)
    assert a == b
    with pytest.raises(DTypeError, match="integer classes, with NaN in the gaps"):
        trained(x, np.where(gaps, np.nan, y + 0.5), missing="ignore", **options)


class Scaled(Squares):
    """Squares divided by the weighted variance of the training targets."""

    def __init__(self, variance=None):
        self.variance = variance

    def fitted_to(self, target, weight):
        mean = np.average(target, axis=0, weights=weight)
        return Scaled(np.average((target - mean) ** 2, axis=0, weights=weight).mean())

    def value_and_gradient(self, output, target, weight=None):
        value, d_output = super().value_and_gradient(output, target, weight)
        return value / self.variance, d_output / self.variance


@pytest.mark.parametrize("form", ["arrays", "lengths", "batches"])
def test_a_loss_may_be_fitted_to_the_training_targets(form):
    x, y = data()
    weight = np.random.default_rng(0).integers(0, 3, (T, N)).astype(float)
    gaps = np.where(weight[..., None] > 0, y, np.nan)
    lengths = np.array([7, 3, 5, 7, 1, 2, 7, 6, 1, 4])
    counted = weight * (np.arange(T)[:, None] < lengths) if form == "lengths" else weight
    given = {
        "arrays": ((x, gaps), {"sample_weight": weight}),
        "lengths": ((x, gaps), {"sample_weight": weight, "lengths": lengths}),
        "batches": (([(x[:, :4], gaps[:, :4], weight[:, :4]), (x[:, 4:], gaps[:, 4:], weight[:, 4:])], None), {}),
    }[form]
    held = (x[:, :3], 3 * y[:, :3])
    _, fitted = trained(*given[0], loss=Scaled(), validation=held, epochs=1, optimizer=SGD(1e-300), **given[1])
    _, plain = trained(*given[0], loss=Squares(), validation=held, epochs=1, optimizer=SGD(1e-300), **given[1])
    mean = np.average(y, axis=(0, 1), weights=np.repeat(counted[..., None], Q, -1))
    variance = np.average((y - mean) ** 2, axis=(0, 1), weights=np.repeat(counted[..., None], Q, -1)).mean()
    assert fitted.loss[0] == pytest.approx(plain.loss[0] / variance, rel=1e-11)
    assert fitted.validation_loss[0] == pytest.approx(plain.validation_loss[0] / variance, rel=1e-11)
