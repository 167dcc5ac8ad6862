"""Metrics, penalties and learning rates: what training is given and records beside the loss."""

import numpy as np
import pytest

import elman
from elman import metrics, schedules
from elman.errors import ArgumentError, DTypeError, NonFiniteError
from elman.training import SGD, Adam, fit

T, N, D, Q = 6, 10, 2, 2


def network(layers=1, at="steps", **options):
    return elman.Network(elman.RNN(D, 5, layers, rng=0, **options), elman.Readout(5, Q, rng=1), at=at)


def data():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(T, N, D))
    return x, x**2


def trained(net, x, y, **options):
    settings = {"optimizer": SGD(0.1), "epochs": 3, "progress": False, "rng": 0, "batch_size": 4, "clip_norm": None}
    return fit(net, x, y, **(settings | options))


def largest(output, target, weight=None):
    return np.abs(output - target).max()


def test_metrics_are_of_all_targets_of_an_epoch():
    (x, y), net = data(), network()
    output = net(x)[0]
    told = []
    history = trained(
        net, x, y, metrics=("rmse", "r2", largest), epochs=1, optimizer=SGD(1e-300), validation=(x[:, :4], y[:, :4]),
        callbacks=[lambda u: told.append(u.metrics)],
    )  # fmt: skip
    flat, wanted = output.reshape(-1, Q), y.reshape(-1, Q)
    assert history.metrics["rmse"] == [pytest.approx(metrics.rmse(flat, wanted), rel=1e-12)]
    assert history.metrics["r2"] == [pytest.approx(metrics.r2(flat, wanted), rel=1e-10)]
    assert history.metrics["largest"] == [np.abs(output - y).max()]
    assert history.metrics["validation_rmse"] == [
        pytest.approx(metrics.rmse(output[:, :4].reshape(-1, Q), y[:, :4].reshape(-1, Q)), rel=1e-12)
    ]
    assert told[:-1] == [{}, {}]
    assert told[-1] == {name: values[0] for name, values in history.metrics.items()}
    with pytest.raises(ArgumentError, match="metric"):
        trained(net, x, y, metrics=("nothing",))
    with pytest.raises(DTypeError, match="must return a number"):
        trained(net, x, y, metrics=(lambda output, target, weight: output,))


def test_metrics_of_classes_at_the_valid_steps():
    (x, _), net = data(), network()
    y = np.random.default_rng(0).integers(0, Q, (T, N))
    lengths = np.random.default_rng(1).integers(1, T + 1, N)
    history = trained(
        net, x, y, loss="cross_entropy", metrics="accuracy", lengths=lengths, epochs=1, optimizer=SGD(1e-300)
    )
    valid = np.arange(T)[:, None] < lengths
    assert history.metrics["accuracy"] == [pytest.approx((net(x)[0].argmax(-1) == y)[valid].mean())]


def test_the_bar_shows_what_is_recorded(capsys):
    (x, y), net = data(), network()
    trained(net, x, y, progress=True, validation=(x, y), metrics=("rmse",), clip_norm=1e-3)
    shown = capsys.readouterr().err
    for part in ("3/3", "loss=", "validation=", "gradient=", "clipped=100%", "rmse="):
        assert part in shown


class Activity:
    """``strength`` times the mean square of the layer's output, and a share of the squares of all parameters."""

    uses_states = True

    def __init__(self, strength, decay=0.0):
        self.strength, self.decay = strength, decay

    def penalty_and_gradient(self, model, trace, d_theta, d_states):
        h = trace.layer.output
        d_states += self.strength * 2 * h / h.size
        d_theta += 2 * self.decay * model.theta
        return self.strength * (h**2).mean() + self.decay * (model.theta**2).sum()


class Decay:
    def __init__(self, decay):
        self.decay = decay

    def penalty_and_gradient(self, model, trace, d_theta, d_states):
        assert d_states is None
        model.parameters.view(d_theta)["layer.weight_hh_l0"][...] += 2 * self.decay * model.params["layer.weight_hh_l0"]
        return self.decay * (model.params["layer.weight_hh_l0"] ** 2).sum()


def objective(net, x, y, activity, decay):
    trace = net.trace(x)
    h = trace.layer.output
    return ((trace.output - y) ** 2).mean() + activity * (h**2).mean() + decay * (net.theta**2).sum()


@pytest.mark.parametrize(("layers", "at"), [(1, "steps"), (2, "steps"), (1, "end")])
@pytest.mark.parametrize("batch_first", [False, True])
def test_penalties_add_their_exact_gradient(layers, at, batch_first):
    (x, y), net = data(), network(layers, at, batch_first=batch_first)
    target = y if at == "steps" else y[-1]
    if batch_first:
        x, target = x.swapaxes(0, 1), target.swapaxes(0, 1) if at == "steps" else target
    start, grads = net.theta.copy(), []
    history = trained(
        net, x, target, epochs=1, batch_size=N, regularizers=[Activity(0.7, 0.02)],
        callbacks=[lambda u: grads.append((u.gradients.theta.copy(), u.loss, u.penalty))],
    )  # fmt: skip
    gradient, loss, penalty = grads[0]
    net.theta[...] = start
    assert loss + penalty == pytest.approx(objective(net, x, target, 0.7, 0.02), rel=1e-12)
    assert history.metrics["penalty"] == [penalty]
    assert history.loss == [loss]
    direction = np.random.default_rng(1).normal(size=start.shape)
    values = []
    for step in (1e-6, -1e-6):
        net.theta[...] = start + step * direction
        values.append(objective(net, x, target, 0.7, 0.02))
    assert gradient @ direction == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-7)


def test_penalties_of_parameters_do_not_depend_on_the_batches():
    x, y = data()
    whole, parts = network(), network()
    a = trained(whole, x, y, batch_size=N, regularizers=[Decay(0.3)])
    b = trained(parts, x, y, batch_size=3, accumulate=4, regularizers=[Decay(0.3)])
    np.testing.assert_allclose(parts.theta, whole.theta, rtol=1e-11)
    np.testing.assert_allclose(a.metrics["penalty"], b.metrics["penalty"], rtol=1e-11)
    plain = network()
    trained(plain, x, y, batch_size=N)
    assert np.linalg.norm(whole.params["layer.weight_hh_l0"]) < np.linalg.norm(plain.params["layer.weight_hh_l0"])


def test_what_is_no_regularizer_is_refused():
    (x, y), net = data(), network()
    with pytest.raises(DTypeError, match="penalty_and_gradient"):
        trained(net, x, y, regularizers=[0.1])
    with pytest.raises(ArgumentError, match="takes no d_states"):
        trained(elman.MLP(D, 4, Q, rng=0), x[0], y[0], regularizers=[Activity(1.0)])
    with pytest.raises(NonFiniteError, match=r"the gradient of layer.weight_hh_l0 is not finite.*epoch 0, update 0"):
        trained(net, x, y, regularizers=[Decay(np.nan)])


def test_a_schedule_gives_the_rate_of_every_update_and_the_rate_is_put_back():
    (x, y), net = data(), network()
    rates, optimizer = [], SGD(0.2)
    schedule = schedules.WarmUp(4, then=schedules.Cosine(3))
    history = trained(
        net, x, y, optimizer=optimizer, schedule=schedule, callbacks=[lambda u: rates.append(u.optimizer.lr)]
    )
    wanted = [schedule.lr(step, step // 3, 0.2) for step in range(9)]
    assert rates == wanted
    assert history.lr == wanted[2::3]
    assert optimizer.lr == 0.2
    by_name = trained(network(), x, y, optimizer=SGD(0.2), schedule="warm-up")
    assert by_name.lr[-1] == 0.2
    with pytest.raises(ArgumentError, match="schedule must be one of"):
        trained(net, x, y, schedule="linear")


def test_a_plateau_is_seen_after_each_epoch():
    (x, y), net = data(), network()
    schedule = schedules.OnPlateau(patience=2, factor=0.5, monitor="loss", min_delta=1e9)
    history = trained(net, x, y, optimizer=Adam(0.1), schedule=schedule, epochs=7)
    assert history.lr == [0.1, 0.1, 0.1, 0.05, 0.05, 0.025, 0.025]


def test_callbacks_are_told_of_beginning_and_end():
    (x, y), net = data(), network()
    calls = []

    class Told:
        def begin(self, info):
            calls.append(("begin", info.epochs, info.model is net, info.history.epochs))

        def __call__(self, update):
            calls.append(update.step)
            return update.step == 4

        def end(self, history, model):
            calls.append(("end", history.stopped, model is net))

    trained(net, x, y, callbacks=[Told()])
    assert calls == [("begin", 3, True, 0), 0, 1, 2, 3, 4, ("end", True, True)]
    with pytest.raises(ArgumentError, match="at the end of an epoch"):
        trained(net, x, y, callbacks=[lambda update: update.trainer_state()])
