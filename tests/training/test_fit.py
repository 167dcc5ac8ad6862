"""fit, on a small Elman network in plain NumPy with its own backpropagation through time."""

import json
import math
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest

import elman
from elman.errors import ArgumentError, DTypeError, NonFiniteError, ShapeError
from elman.testing import check_gradients
from elman.training import SGD, Adam, History, MeanSquaredError, fit, global_norm


class PlainElman:
    """h_t = tanh(W_ih x_t + W_hh h_{t-1} + b), y_t = W_ho h_t + b_o, from the equations."""

    def __init__(self, d, h, q, *, dtype=np.float64, batch_first=False, seed=0):
        shapes = {"weight_ih": (h, d), "weight_hh": (h, h), "bias": (h,), "weight_ho": (q, h), "bias_o": (q,)}
        size = sum(math.prod(shape) for shape in shapes.values())
        self.theta = (np.random.default_rng(seed).normal(size=size) * 0.5 / math.sqrt(h)).astype(dtype)
        self.d_theta = np.zeros_like(self.theta)
        self.params, self.d_params = ({}, {})
        start = 0
        for name, shape in shapes.items():
            stop = start + math.prod(shape)
            self.params[name] = self.theta[start:stop].reshape(shape)
            self.d_params[name] = self.d_theta[start:stop].reshape(shape)
            start = stop
        self.batch_axis, self.time_axis = (0, 1) if batch_first else (1, 0)

    def _time_major(self, a):
        return a.swapaxes(0, 1) if self.time_axis else a

    def trace(self, x, state=None):
        p, x = self.params, self._time_major(x)
        hidden = np.zeros((len(x) + 1, x.shape[1], len(p["bias"])), self.theta.dtype)
        if state is not None:
            hidden[0] = state
        for t in range(len(x)):
            hidden[t + 1] = np.tanh(x[t] @ p["weight_ih"].T + hidden[t] @ p["weight_hh"].T + p["bias"])
        output = hidden[1:] @ p["weight_ho"].T + p["bias_o"]
        return SimpleNamespace(output=self._time_major(output), hn=hidden[-1].copy(), hidden=hidden, x=x)

    def backward(self, trace, d_output):
        p, g, d_output, hidden = self.params, self.d_params, self._time_major(d_output), trace.hidden
        self.d_theta[:] = 0.0
        g["weight_ho"] += np.einsum("tbq,tbh->qh", d_output, hidden[1:])
        g["bias_o"] += d_output.sum((0, 1))
        d_h = np.zeros_like(hidden[0])
        for t in reversed(range(len(trace.x))):
            delta = (d_h + d_output[t] @ p["weight_ho"]) * (1 - hidden[t + 1] ** 2)
            g["weight_ih"] += delta.T @ trace.x[t]
            g["weight_hh"] += delta.T @ hidden[t]
            g["bias"] += delta.sum(0)
            d_h = delta @ p["weight_hh"]
        return SimpleNamespace(theta=self.d_theta)


class PlainLinear:
    """y = W x + b: a model without time."""

    batch_axis, time_axis = 0, None

    def __init__(self, d, q):
        self.theta = np.zeros(q * (d + 1))
        self.params = {"weight": self.theta[: q * d].reshape(q, d), "bias": self.theta[q * d :]}

    def trace(self, x, state=None):
        assert state is None
        return SimpleNamespace(output=x @ self.params["weight"].T + self.params["bias"], hn=None, x=x)

    def backward(self, trace, d_output):
        flat = d_output.reshape(-1, d_output.shape[-1])
        weight = flat.T @ trace.x.reshape(-1, trace.x.shape[-1])
        return SimpleNamespace(theta=np.concatenate([weight.reshape(-1), flat.sum(0)]))


def data(t=7, n=10, d=2, q=3, seed=1):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(t, n, d)), rng.normal(size=(t, n, q))


def quiet(net, x, y, **keywords):
    return fit(net, x, y, **({"progress": False, "rng": 0} | keywords))


def mse_gradient(net, x, y, state=None):
    trace = net.trace(x, state)
    _, d_output = MeanSquaredError().value_and_gradient(trace.output, y)
    return net.backward(trace, d_output).theta.copy(), trace.hn


def test_the_plain_network_is_differentiated_rightly():
    net, (x, y) = PlainElman(2, 5, 3), data()
    gradient, _ = mse_gradient(net, x, y)
    direction, start = np.random.default_rng(2).normal(size=net.theta.size), net.theta.copy()
    losses = []
    for h in (1e-5, -1e-5):
        net.theta[:] = start + h * direction
        losses.append(((net.trace(x).output - y) ** 2).mean())
    assert gradient @ direction == pytest.approx((losses[0] - losses[1]) / 2e-5, rel=1e-7)


def test_one_update_is_the_update_by_hand():
    net, (x, y) = PlainElman(2, 5, 3), data()
    start, (gradient, _) = net.theta.copy(), mse_gradient(net, x, y)
    history = quiet(net, x, y, optimizer=SGD(0.1), epochs=1, clip_norm=None)
    np.testing.assert_allclose(net.theta, start - 0.1 * gradient, rtol=1e-13, atol=1e-15)
    assert history.gradient_norm == [pytest.approx(global_norm(gradient), rel=1e-13)]
    assert history.loss == [pytest.approx(((PlainElman(2, 5, 3).trace(x).output - y) ** 2).mean(), rel=1e-13)]


def test_clipping_scales_the_update():
    nets, (x, y) = [PlainElman(2, 5, 3) for _ in range(3)], data()
    start = nets[0].theta.copy()
    whole, clipped, untouched = (
        quiet(net, x, 5 * y, optimizer=SGD(0.1), epochs=1, clip_norm=clip)
        for net, clip in zip(nets, (None, 0.25, 1e9), strict=True)
    )
    (norm,) = whole.gradient_norm
    assert norm > 0.25
    np.testing.assert_allclose(nets[1].theta - start, (nets[0].theta - start) * 0.25 / norm, rtol=1e-9, atol=1e-15)
    np.testing.assert_array_equal(nets[2].theta, nets[0].theta)
    assert (whole.clipped_fraction, clipped.clipped_fraction, untouched.clipped_fraction) == (0.0, 1.0, 0.0)


def test_forecast_of_an_autoregression_reaches_the_innovation_variance():
    """x_t = 1.6 x_{t-1} - .8 x_{t-2} + e: no forecast has a smaller expected squared error than var e."""
    rng = np.random.default_rng(3)
    noise = 0.1 * rng.normal(size=(52, 48))
    series = np.zeros((52, 48))  # starts at rest, as the network does
    for t in range(2, 52):
        series[t] = 1.6 * series[t - 1] - 0.8 * series[t - 2] + noise[t]
    x, y, innovation = series[1:-1, :, None], series[2:, :, None], noise[2:]
    net = PlainElman(1, 8, 1)
    history = quiet(
        net, x[:, :32], y[:, :32], optimizer=Adam(0.01), epochs=150, batch_size=8, validation=(x[:, 32:], y[:, 32:])
    )
    floor = (innovation[:, 32:] ** 2).mean()
    assert history.validation_loss[0] > 3 * floor
    assert 0.95 * floor < history.validation_loss[-1] < 1.15 * floor
    assert history.epochs == 150
    assert history.updates == 600


def test_classes_at_the_last_step_are_learned():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(6, 200, 1))
    y = (x[1, :, 0] > 0).astype(np.uint8)  # four steps ago
    net = PlainElman(1, 8, 2)
    fit_data, held_out = (x[:, :150], y[:150]), (x[:, 150:], y[150:])
    history = quiet(net, *fit_data, loss="cross_entropy", optimizer=Adam(0.01), epochs=120, validation=held_out)
    assert history.validation_loss[0] == pytest.approx(math.log(2), abs=0.1)
    accuracy = (net.trace(held_out[0]).output[-1].argmax(-1) == held_out[1]).mean()
    assert accuracy > 0.9


def test_classes_at_every_step():
    x, _ = data()
    y = np.random.default_rng(5).integers(3, size=x.shape[:2])
    history = quiet(PlainElman(2, 5, 3), x, y, loss="cross_entropy", epochs=3)
    assert history.loss[-1] < history.loss[0]


def test_a_model_without_time_finds_the_least_squares_solution():
    rng = np.random.default_rng(6)
    x, net = rng.normal(size=(40, 3)), PlainLinear(3, 2)
    y = rng.normal(size=(40, 2))
    quiet(net, x, y, optimizer=SGD(0.2, momentum=0.8), epochs=400, batch_size=40, clip_norm=None)
    expected = np.linalg.lstsq(np.c_[x, np.ones(40)], y, rcond=None)[0]
    np.testing.assert_allclose(np.c_[net.params["weight"], net.params["bias"]], expected.T, atol=1e-9)


def test_a_loss_of_ones_own():
    class Absolute:
        def value_and_gradient(self, output, target):
            return float(np.abs(output - target).mean()), np.sign(output - target) / output.size

    net, x = PlainLinear(1, 1), np.ones((101, 1))
    y = np.random.default_rng(7).exponential(size=(101, 1))
    quiet(net, x, y, loss=Absolute(), optimizer=SGD(0.002), epochs=1000, batch_size=101)
    assert net.theta.sum() == pytest.approx(np.median(y), abs=0.03)
    assert abs(y.mean() - np.median(y)) > 0.1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_same_seed_gives_the_same_bits(dtype):
    x, y = data()
    runs = []
    for rng in (11, 11, np.random.default_rng(11), 12):
        net = PlainElman(2, 5, 3, dtype=dtype)
        runs.append((quiet(net, x, y, epochs=4, batch_size=3, rng=rng), net.theta))
        assert net.theta.dtype == dtype
    for history, theta in runs[1:3]:
        assert history == runs[0][0]
        np.testing.assert_array_equal(theta, runs[0][1])
    assert runs[3][0] != runs[0][0]


def test_every_sample_is_seen_once_an_epoch_in_a_new_order():
    seen = []
    x, y = data(n=10)
    quiet(PlainElman(2, 5, 3), x, y, epochs=3, batch_size=4, callbacks=[lambda u: seen.append(u.samples.copy())])
    assert [len(samples) for samples in seen] == [4, 4, 2] * 3
    orders = [np.concatenate(seen[i : i + 3]).tolist() for i in (0, 3, 6)]
    assert [sorted(order) for order in orders] == [list(range(10))] * 3
    assert len({tuple(order) for order in orders}) == 3


@pytest.mark.parametrize("batch_size", [1, 3, 7, 10, 99])
@pytest.mark.parametrize("truncation", [None, 1, 3, 50])
def test_the_loss_of_an_epoch_does_not_depend_on_the_split(batch_size, truncation):
    x, y = data()
    net = PlainElman(2, 5, 3)
    expected = ((net.trace(x).output - y) ** 2).mean()
    history = quiet(
        net, x, y, optimizer=SGD(1e-30), epochs=2, batch_size=batch_size, truncation=truncation, validation=(x, y)
    )
    np.testing.assert_allclose(history.loss + history.validation_loss, expected, rtol=1e-12)


def test_truncation_beyond_the_end_is_the_whole_sequence():
    x, y = data(t=7)
    thetas = {}
    for truncation in (None, 7, 100, 6):
        net = PlainElman(2, 5, 3)
        quiet(net, x, y, epochs=3, batch_size=4, truncation=truncation)
        thetas[truncation] = net.theta
    np.testing.assert_array_equal(thetas[7], thetas[None])
    np.testing.assert_array_equal(thetas[100], thetas[None])
    assert np.abs(thetas[6] - thetas[None]).max() > 1e-4


def test_truncation_updates_at_every_window_and_carries_the_state():
    (x, y), net, twin = data(t=7), PlainElman(2, 5, 3), PlainElman(2, 5, 3)
    history = quiet(net, x, y, optimizer=SGD(0.1), epochs=1, clip_norm=None, truncation=3)
    assert history.updates == 3
    state = None
    for window in (slice(0, 3), slice(3, 6), slice(6, 7)):
        gradient, state = mse_gradient(twin, x[window], y[window], state)
        twin.theta -= 0.1 * gradient
    np.testing.assert_allclose(net.theta, twin.theta, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("truncation", [None, 3])
def test_a_target_at_the_last_step_updates_once(truncation, batch_first):
    (x, y), twin = data(t=7), PlainElman(2, 5, 3)
    net = PlainElman(2, 5, 3, batch_first=batch_first)
    history = quiet(
        net,
        x.swapaxes(0, 1) if batch_first else x,
        y[-1],
        optimizer=SGD(0.1),
        epochs=1,
        clip_norm=None,
        truncation=truncation,
    )
    assert history.updates == 1
    state = None if truncation is None else twin.trace(x[:6]).hn
    trace = twin.trace(x if truncation is None else x[6:], state)
    d_output = np.zeros_like(trace.output)
    d_output[-1] = 2 * (trace.output[-1] - y[-1]) / y[-1].size
    assert history.loss == [pytest.approx(((trace.output[-1] - y[-1]) ** 2).mean(), rel=1e-12)]
    twin.theta -= 0.1 * twin.backward(trace, d_output).theta
    np.testing.assert_allclose(net.theta, twin.theta, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("truncation", [None, 3])
@pytest.mark.parametrize("last_step", [False, True])
def test_batch_first_gives_the_same_bits(truncation, last_step):
    x, y = data()
    nets = PlainElman(2, 5, 3), PlainElman(2, 5, 3, batch_first=True)
    targets = (y[-1], y[-1]) if last_step else (y, y.swapaxes(0, 1))
    inputs = x, x.swapaxes(0, 1)
    histories = [
        quiet(
            net,
            inputs[i],
            targets[i],
            epochs=3,
            batch_size=4,
            truncation=truncation,
            validation=(inputs[i], targets[i]),
        )
        for i, net in enumerate(nets)
    ]
    np.testing.assert_allclose(nets[1].theta, nets[0].theta, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(histories[1].loss, histories[0].loss, rtol=1e-12)
    np.testing.assert_allclose(histories[1].validation_loss, histories[0].validation_loss, rtol=1e-12)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
@pytest.mark.parametrize("last_step", [False, True])
def test_one_sequence_needs_no_batch_axis(batch_first, loss, last_step):
    x, y = data(n=1)
    if loss == "cross_entropy":
        y = y.argmax(-1)
    y = y[-1] if last_step else y
    with_axis, without = PlainElman(2, 5, 3), PlainElman(2, 5, 3, batch_first=batch_first)
    quiet(with_axis, x, y, loss=loss, epochs=3, truncation=3)
    quiet(without, x[:, 0], y[0] if last_step else y[:, 0], loss=loss, epochs=3, truncation=3)
    np.testing.assert_allclose(without.theta, with_axis.theta, rtol=1e-12, atol=1e-14)


def test_strides_byte_order_and_read_only_data_make_no_difference():
    x, y = data()
    odd_x = np.zeros((7, 20, 4), ">f8")[:, ::-2, 1::2]
    odd_x[:] = x
    odd_y = np.asfortranarray(y)
    odd_x.flags.writeable = odd_y.flags.writeable = False
    nets = PlainElman(2, 5, 3), PlainElman(2, 5, 3)
    quiet(nets[0], x, y, epochs=2, batch_size=3)
    quiet(nets[1], odd_x, odd_y, epochs=2, batch_size=3)
    np.testing.assert_array_equal(nets[1].theta, nets[0].theta)
    np.testing.assert_array_equal(odd_x, x)


def test_an_optimizer_continues_where_it_stopped():
    x, y = data()
    whole, parts, optimizer = PlainElman(2, 5, 3), PlainElman(2, 5, 3), Adam(0.01)
    quiet(whole, x, y, optimizer=Adam(0.01), epochs=5)
    quiet(parts, x, y, optimizer=optimizer, epochs=2)
    quiet(parts, x, y, optimizer=optimizer, epochs=3)
    np.testing.assert_allclose(parts.theta, whole.theta, rtol=1e-10)  # one batch: only the order of its sum differs


def test_validation_is_the_loss_after_the_epoch():
    x, y = data()
    net, (held_x, held_y) = PlainElman(2, 5, 3), data(t=9, n=5, seed=8)
    expected = []

    def measure(update):
        if update.epoch_ended:
            expected.append(((net.trace(held_x).output - held_y) ** 2).mean())

    history = quiet(net, x, y, epochs=3, batch_size=4, validation=(held_x, held_y), callbacks=[measure])
    np.testing.assert_allclose(history.validation_loss, expected, rtol=1e-12)
    assert len(set(expected)) == 3


def test_what_a_callback_is_told():
    (x, y), net, optimizer, updates = data(), PlainElman(2, 5, 3), SGD(0.1), []

    def check(update):
        assert update.model is net
        assert update.optimizer is optimizer
        window = slice(0, 4) if update.state is None else slice(4, 7)
        np.testing.assert_array_equal(update.x, x[window, update.samples])
        np.testing.assert_array_equal(update.y, y[window, update.samples])
        assert global_norm(update.gradients.theta) == pytest.approx(min(0.2, update.gradient_norm), rel=1e-12)
        assert update.history.gradient_norm[-1] == update.gradient_norm
        assert len(update.history.loss) == update.epoch + update.epoch_ended
        updates.append((update.epoch, update.step, update.epoch_ended))
        with pytest.raises(AttributeError):
            update.loss = 0.0

    quiet(net, x, y, optimizer=optimizer, epochs=2, batch_size=6, truncation=4, clip_norm=0.2, callbacks=(check,))
    assert updates == [(i // 4, i, i % 4 == 3) for i in range(8)]


def test_a_callback_can_change_the_learning_rate():
    (x, y), net = data(), PlainElman(2, 5, 3)
    thetas = []

    def freeze(update):
        thetas.append(net.theta.copy())
        update.optimizer.lr = 1e-30

    quiet(net, x, y, optimizer=SGD(0.1), epochs=2, callbacks=[freeze])
    np.testing.assert_array_equal(thetas[1], thetas[0])


def test_a_callback_can_stop():
    x, y = data()
    calls = []
    history = quiet(
        PlainElman(2, 5, 3),
        x,
        y,
        epochs=9,
        batch_size=5,
        callbacks=[lambda u: u.step == 4, lambda u: calls.append(u.step)],
    )
    assert history.stopped
    assert not history.interrupted
    assert (history.epochs, history.updates) == (2, 5)
    assert calls == [0, 1, 2, 3, 4]
    assert "ended by a callback after 2 complete epochs" in str(history)


def test_stopping_at_the_end_of_an_epoch_keeps_its_losses():
    x, y = data()
    stop = [lambda u: u.epoch_ended and u.history.validation_loss[-1] > 0]
    history = quiet(PlainElman(2, 5, 3), x, y, epochs=9, batch_size=5, validation=(x, y), callbacks=stop)
    assert (len(history.loss), len(history.validation_loss), history.updates) == (1, 1, 2)


def test_ctrl_c_finishes_the_step_and_returns_the_history():
    (x, y), net = data(), PlainElman(2, 5, 3)
    handler = signal.getsignal(signal.SIGINT)

    def interrupt(update):
        if update.step == 3:
            signal.raise_signal(signal.SIGINT)

    history = quiet(net, x, y, epochs=50, batch_size=5, callbacks=[interrupt])
    assert history.interrupted
    assert not history.stopped
    assert (history.epochs, history.updates) == (2, 4)
    assert "ended by Ctrl-C" in str(history)
    assert signal.getsignal(signal.SIGINT) is handler
    twin = PlainElman(2, 5, 3)
    quiet(twin, x, y, epochs=2, batch_size=5)
    np.testing.assert_array_equal(net.theta, twin.theta)


def test_ctrl_c_within_a_step_lets_it_finish():
    (x, y), net = data(), PlainElman(2, 5, 3)
    backward = net.backward

    def interrupted_backward(trace, d_output):
        signal.raise_signal(signal.SIGINT)
        return backward(trace, d_output)

    net.backward = interrupted_backward
    start = net.theta.copy()
    history = quiet(net, x, y, epochs=50, batch_size=5)
    assert history.interrupted
    assert history.updates == 1
    assert np.abs(net.theta - start).max() > 1e-4


def test_a_second_ctrl_c_raises():
    x, y = data()
    handler = signal.getsignal(signal.SIGINT)

    def interrupt_twice(update):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        quiet(PlainElman(2, 5, 3), x, y, callbacks=[interrupt_twice])
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_nested_fit_takes_the_interrupt_for_itself():
    x, y = data()
    inner = []

    def train_another(update):
        interrupt = [lambda u: signal.raise_signal(signal.SIGINT)]
        inner.append(quiet(PlainElman(2, 5, 3), x, y, epochs=5, callbacks=interrupt))

    outer = quiet(PlainElman(2, 5, 3), x, y, epochs=2, callbacks=[train_another])
    assert [history.interrupted for history in inner] == [True, True]
    assert not outer.interrupted
    assert outer.epochs == 2


def test_fit_runs_in_another_thread():
    x, y = data()
    histories = []
    handler = signal.getsignal(signal.SIGINT)
    seen = [lambda u: histories.append(signal.getsignal(signal.SIGINT) is handler)]
    thread = threading.Thread(
        target=lambda: histories.append(quiet(PlainElman(2, 5, 3), x, y, epochs=2, callbacks=seen))
    )
    thread.start()
    thread.join()
    assert histories[:2] == [True, True]
    assert histories[2].epochs == 2


@pytest.mark.parametrize("make", [lambda: Adam(0.01), lambda: SGD(0.01, momentum=0.9)])
@pytest.mark.parametrize("what", ["loss", "gradient", "update"])
def test_a_failed_step_leaves_the_last_complete_one(make, what):
    (x, y), net, optimizer = data(), PlainElman(2, 5, 3), make()
    trace, backward = net.trace, net.backward
    calls = {"n": 0}

    def poisoned_trace(x, state=None):
        result = trace(x, state)
        calls["n"] += x.shape[1] > 0
        if what == "loss" and calls["n"] == 4:
            result.output[5:, 2, 1] = np.nan
        return result

    def poisoned_backward(trace, d_output):
        result = backward(trace, d_output)
        if calls["n"] == 4 and what != "loss":
            net.d_params["bias"][1] = np.nan if what == "gradient" else 1e308
            net.d_params["weight_ho"][0, 0] = net.d_params["bias"][1]
            optimizer.lr = 0.01 if what == "gradient" else 1e5
        return result

    net.trace, net.backward = poisoned_trace, poisoned_backward
    order = []
    record = [lambda u: order.append(u.samples.copy())]
    with pytest.raises(NonFiniteError, match="in epoch 1, update 3") as caught:
        quiet(net, x, y, optimizer=optimizer, epochs=5, batch_size=4, clip_norm=None, callbacks=record)
    twin, twin_optimizer = PlainElman(2, 5, 3), make()
    chosen = []
    stop = [lambda u: chosen.append(u.samples.copy()) or u.step == 2]
    quiet(twin, x, y, optimizer=twin_optimizer, epochs=5, batch_size=4, clip_norm=None, callbacks=stop)
    np.testing.assert_array_equal(net.theta, twin.theta)
    optimizer.lr = 0.01
    for name, value in twin_optimizer.state_dict().items():
        np.testing.assert_array_equal(optimizer.state_dict()[name], value)
    error = caught.value
    assert error.what == ("loss" if what == "loss" else "gradient")
    if what == "loss":
        rng = np.random.default_rng(0)
        rng.permutation(10)
        assert (error.step, error.sample) == (5, rng.permutation(10)[2])
        assert f"step 5 of the data; sample {error.sample} of the data" in str(error)
    elif what == "gradient":
        assert "the gradient of bias is not finite" in str(error)


def test_a_gradient_whose_norm_overflows_is_not_applied():
    (x, y), net = data(), PlainElman(2, 5, 3)
    net.backward = lambda trace, d_output: SimpleNamespace(theta=np.full_like(net.theta, 1e308))
    start = net.theta.copy()
    with pytest.raises(NonFiniteError, match=r"norm of the gradient is inf, with entries up to 1e\+308"):
        quiet(net, x, y)
    np.testing.assert_array_equal(net.theta, start)


def test_an_error_of_the_model_is_placed_in_the_data():
    (x, y), net = data(), PlainElman(2, 5, 3)
    trace = net.trace

    def failing(x, state=None):
        if state is not None:
            raise NonFiniteError("h of rnn_l0 is nan", layer="rnn_l0", gate="h", step=1, sample=2)
        return trace(x, state)

    net.trace = failing
    with pytest.raises(NonFiniteError, match=r"h of rnn_l0 is nan \(in epoch 0, update 1; step 4 of") as caught:
        quiet(net, x, y, batch_size=4, truncation=3)
    error = caught.value
    assert (error.what, error.layer, error.gate, error.step) == ("state", "rnn_l0", "h", 4)
    assert error.sample == np.random.default_rng(0).permutation(10)[2]


def test_a_validation_loss_that_is_not_finite_is_an_error():
    x, y = data()
    with pytest.raises(
        NonFiniteError, match=r"the loss is inf: the output, up to .*, is too large.*validation after epoch 0"
    ):
        quiet(PlainElman(2, 5, 3), x, y, validation=(x, 1e200 * y))


def test_nothing_is_trained_by_a_call_that_is_refused():
    (x, y), net = data(), PlainElman(2, 5, 3)
    start, bad = net.theta.copy(), x.copy()
    bad[3, 4, 1] = np.nan
    t_by_n = y[..., 0]
    cases = [
        (ArgumentError, r"x must be finite, x\[3, 4, 1\]", {"x": bad}),
        (ArgumentError, r"y must be finite", {"y": np.where(y > 2, np.inf, y)}),
        (DTypeError, "x must be an array of real", {"x": np.ones((7, 10, 2), int)}),
        (DTypeError, "x must be one array, got a list", {"x": list(x)}),
        (ShapeError, r"x must have shape \(T, N, D\)", {"x": x[..., None]}),
        (ShapeError, r"x must have shape \(T, N, D\)", {"x": x[0, 0]}),
        (ShapeError, "at least one sample and step", {"x": x[:0]}),
        (ShapeError, "at least one sample and step", {"x": x[:, :0]}),
        (ShapeError, r"\(7, 10, 3\) \(a target at every step\) or \(10, 3\).*got \(6, 10, 3\)", {"y": y[1:]}),
        (ShapeError, "axes of time and batch are swapped", {"y": y.swapaxes(0, 1)}),
        (ShapeError, r"y\[..., None\]", {"y": t_by_n}),
        (ShapeError, r"shape of the output \(7, 10, 3\)", {"y": y[..., :2]}),
        (DTypeError, "cross_entropy", {"y": np.ones((7, 10, 3), int)}),
        (DTypeError, "integer classes", {"y": t_by_n, "loss": "cross_entropy"}),
        (ArgumentError, r"y\[0, 0\] is 3", {"y": np.full((7, 10), 3), "loss": "cross_entropy"}),
        (ShapeError, r"validation y must have shape", {"validation": (x, y[:, :4])}),
        (DTypeError, r"validation must be \(x, y\) or", {"validation": x}),
        (ArgumentError, "loss must be one of", {"loss": "l2"}),
        (DTypeError, "optimizer", {"optimizer": 1e-3}),
        (DTypeError, "callbacks must be a sequence", {"callbacks": print}),
        (DTypeError, "epochs must be an integer", {"epochs": 2.0}),
        (ArgumentError, "epochs must be at least 1", {"epochs": 0}),
        (ArgumentError, "batch_size must be at least 1", {"batch_size": 0}),
        (ArgumentError, "truncation must be at least 1", {"truncation": 0}),
        (ArgumentError, "clip_norm must be positive, or None", {"clip_norm": 0.0}),
        (ArgumentError, "clip_norm", {"clip_norm": -1.0}),
        (ArgumentError, "clip_norm", {"clip_norm": math.nan}),
        (DTypeError, r"dict lacks \['theta'", {"net": {}}),
    ]
    for kind, message, change in cases:
        arguments = {"net": net, "x": x, "y": y} | change
        with pytest.raises(kind, match=message):
            quiet(**arguments)
    np.testing.assert_array_equal(net.theta, start)
    with pytest.raises(ArgumentError, match="truncation cuts time"):
        quiet(PlainLinear(2, 3), x[0], y[0], truncation=3)


def test_one_sequence_is_refused_in_its_own_shape():
    x, y = data(n=1)
    with pytest.raises(
        ShapeError, match=r"shape \(7, 3\) .* or \(3,\) \(at the last step only\), got \(7,\): add the axis"
    ):
        quiet(PlainElman(2, 5, 3), x[:, 0], y[:, 0, 0])


def test_a_wrong_number_of_features_is_refused_by_the_model_in_the_shape_of_the_data():
    class Checked(PlainElman):
        def trace(self, x, state=None):
            if x.shape[-1] != 2:
                raise ShapeError(f"x must have 2 features, got {x.shape}")
            return super().trace(x, state)

    x, y = data()
    with pytest.raises(ShapeError, match=r"got \(7, 10, 1\)"):
        quiet(Checked(2, 5, 3), x[..., :1], y)


def test_history_prints_and_converts():
    x, y = data()
    history = quiet(PlainElman(2, 5, 3), x, y, epochs=3, batch_size=4, validation=(x, y))
    text = str(history)
    assert "3 epochs, 9 updates" in text
    assert f"{history.loss[0]:.4g} -> {history.loss[-1]:.4g}" in text
    assert "validation loss" in text
    assert "clipped to 1 in" in text
    assert repr(history).startswith("History(epochs=3, updates=9, loss=")
    record = json.loads(json.dumps(history.to_dict()))
    assert record["loss"] == history.loss
    assert record["gradient_norm"] == history.gradient_norm
    assert record["seconds"] > 0
    assert str(History()) == "Training: 0 epochs, 0 updates in 0 s"


def test_progress_bar(capsys):
    x, y = data()
    fit(PlainElman(2, 5, 3), x, y, epochs=3, validation=(x, y), rng=0)
    captured = capsys.readouterr()
    assert "3/3" in captured.err
    assert "loss=" in captured.err
    assert "validation=" in captured.err
    quiet(PlainElman(2, 5, 3), x, y, epochs=3)
    assert capsys.readouterr() == ("", "")


def test_importing_training_does_not_import_tqdm_or_matplotlib():
    code = "import sys, elman.training; print(*(m in sys.modules for m in ('tqdm', 'matplotlib', 'scipy.stats')))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["False"] * 3


class TestLengths:
    """Padding holds NaN; the loss counts valid steps alone."""

    @staticmethod
    def data(batch_first=False):
        rng = np.random.default_rng(5)
        lengths = np.array([7, 0, 3, 9, 1, 9, 4, 6])
        x = rng.standard_normal((9, 8, 2))
        y = np.cumsum(x, axis=0)
        for b, n in enumerate(lengths):
            x[n:, b], y[n:, b] = np.nan, np.nan
        return (x.swapaxes(0, 1), y.swapaxes(0, 1), lengths) if batch_first else (x, y, lengths)

    @staticmethod
    def network(**options):
        return elman.Network(elman.GRU(2, 6, rng=0, **options), elman.Readout(6, 2, rng=1))

    def test_the_loss_is_the_mean_over_valid_steps(self):
        x, y, lengths = self.data()
        for batch_size in (8, 3, 1):
            net = self.network()
            history = elman.fit(
                net, x, y, lengths=lengths, validation=(x, y, lengths), optimizer=elman.SGD(1e-14), epochs=1,
                batch_size=batch_size, progress=False, rng=0,
            )  # fmt: skip
            squares = [(net(x[:n, b])[0] - y[:n, b]) ** 2 for b, n in enumerate(lengths)]
            expected = np.concatenate(squares).mean()
            assert history.loss[0] == pytest.approx(expected, rel=1e-9)
            assert history.validation_loss[0] == pytest.approx(expected, rel=1e-9)

    @pytest.mark.parametrize("truncation", [None, 4])
    def test_lists_and_orders_of_axes_train_alike(self, truncation):
        thetas = []
        for batch_first, listed in ((False, False), (True, False), (False, True), (True, True)):
            x, y, lengths = self.data(batch_first)
            net = self.network(batch_first=batch_first)
            options = {"lengths": lengths}
            if listed:
                rows = [(x[b] if batch_first else x[:, b], y[b] if batch_first else y[:, b]) for b in range(8)]
                x, y = ([r[i][:n] for r, n in zip(rows, lengths, strict=True)] for i in (0, 1))
                options = {}
            elman.fit(
                net, x, y, epochs=3, batch_size=3, truncation=truncation, progress=False, rng=0, **options
            )  # fmt: skip
            thetas.append(net.theta.copy())
        for theta in thetas[1:]:
            np.testing.assert_allclose(theta, thetas[0], rtol=1e-9, atol=1e-12)

    @pytest.mark.parametrize("truncation", [None, 4])
    def test_a_target_for_the_last_step_belongs_to_the_last_valid_one(self, truncation):
        x, y, lengths = self.data()
        target = np.array([y[n - 1, b] if n else [0.0, 0.0] for b, n in enumerate(lengths)])
        net = self.network()
        history = elman.fit(
            net, x, target, lengths=lengths, optimizer=elman.SGD(1e-14), epochs=1, truncation=truncation,
            progress=False, rng=0,
        )  # fmt: skip
        rows = [b for b in range(8) if lengths[b]]
        expected = np.mean([(net(x[: lengths[b], b])[0][-1] - target[b]) ** 2 for b in rows])
        assert history.loss[0] == pytest.approx(expected, rel=1e-9)

    def test_last_step_targets_in_two_batches_are_the_loop_by_hand(self):
        """Two steps of SGD: each batch averages over its sequences that have a last step, one at a time here."""

        class Noting(MeanSquaredError):
            seen: list = []  # noqa: RUF012 - one object

            def value_and_gradient(self, output, target):
                self.seen.append((output.copy(), target.copy()))
                return super().value_and_gradient(output, target)

        x, _, lengths = self.data()
        target = np.random.default_rng(1).standard_normal((8, 2))
        net, by_hand, loss = self.network(), self.network(), Noting()
        history = elman.fit(
            net, x, target, lengths=lengths, optimizer=elman.SGD(0.1), loss=loss, epochs=1, batch_size=4,
            clip_norm=None, progress=False, rng=0,
        )  # fmt: skip
        batches = [[int(np.flatnonzero(target[:, 0] == row[0])[0]) for row in kept] for _, kept in loss.seen]
        assert sorted(map(len, batches)) == [3, 4]
        assert sorted(b for batch in batches for b in batch) == [b for b in range(8) if lengths[b]]
        squares = 0.0
        for batch in batches:
            d_theta = np.zeros_like(by_hand.theta)
            for b in batch:
                trace = by_hand.trace(x[: lengths[b], b])
                error, d = trace.output[-1] - target[b], np.zeros_like(trace.output)
                squares += (error**2).sum()
                d[-1] = 2 * error / (2 * len(batch))
                d_theta += by_hand.backward(trace, d).theta
            by_hand.theta[:] -= 0.1 * d_theta
        np.testing.assert_allclose(net.theta, by_hand.theta, rtol=1e-11, atol=1e-14)
        assert history.loss[0] == pytest.approx(squares / 14, rel=1e-12)

    def test_classes_of_several_lengths(self):
        rng = np.random.default_rng(0)
        x = [rng.standard_normal((n, 2)) for n in (4, 9, 2, 7)]
        y = [(row[:, 0] > 0).astype(int) for row in x]
        net = self.network()
        history = elman.fit(
            net, x, y, loss="cross_entropy", epochs=80, optimizer=elman.Adam(2e-2), progress=False, rng=0
        )  # fmt: skip
        assert history.loss[-1] < 0.5 * history.loss[0]

    def test_restarts(self):
        """One row of two recordings trains as the two rows do."""
        rng = np.random.default_rng(1)
        x = rng.standard_normal((10, 1, 2))
        y, reset = np.cumsum(x, axis=0), np.zeros((10, 1), bool)
        reset[5] = True
        a, b = self.network(), self.network()
        elman.fit(a, x, y, reset=reset, epochs=3, progress=False, rng=0)
        elman.fit(
            b, np.concatenate([x[:5], x[5:]], axis=1), np.concatenate([y[:5], y[5:]], axis=1), epochs=3, batch_size=2,
            progress=False, rng=0,
        )  # fmt: skip
        np.testing.assert_allclose(a.theta, b.theta, rtol=1e-10)

    def test_a_bidirectional_network_reads_whole_sequences(self):
        """Which half of the sequence held the pulse: only the end of both directions knows."""
        rng = np.random.default_rng(2)
        lengths = rng.integers(3, 12, 80)
        x = rng.standard_normal((12, 80, 2)) * 0.1
        at = (rng.random(80) * lengths).astype(int)
        x[at, np.arange(80), 0] = 3
        y = (at >= lengths / 2).astype(int)
        net = elman.Network(elman.LSTM(2, 8, bidirectional=True, rng=0), elman.Readout(16, 2, rng=1), at="end")
        check_gradients(net, x, lengths=lengths)
        history = elman.fit(
            net, x, y, lengths=lengths, loss="cross_entropy", epochs=60, optimizer=elman.Adam(1e-2),
            validation=(x, y, lengths), progress=False, rng=0,
        )  # fmt: skip
        assert history.loss[-1] < 0.35 * history.loss[0]
        output, _ = net(x, lengths=lengths)
        assert output.shape == (80, 2)
        assert np.array_equal(output, net.trace(x, lengths=lengths).output)
        assert net(x[: lengths[3], 3])[0] == pytest.approx(output[3], rel=1e-12)

    def test_what_cannot_be_cut_is_refused(self):
        x, y, lengths = self.data()
        both = elman.Network(elman.GRU(2, 6, bidirectional=True), elman.Readout(12, 2))
        with pytest.raises(ArgumentError, match="truncation must be None for a bidirectional"):
            elman.fit(both, x, y, lengths=lengths, truncation=3)
        end = elman.Network(elman.GRU(2, 6), elman.Readout(6, 2), at="end")
        with pytest.raises(ArgumentError, match="truncation must be None for a network that reads the end"):
            elman.fit(end, x, np.zeros((8, 2)), lengths=lengths, truncation=3)
        with pytest.raises(ArgumentError, match="lengths must be left out: the trace of PlainElman"):
            elman.fit(PlainElman(2, 5, 3), *data(), lengths=np.ones(10, int))
        with pytest.raises(ArgumentError, match="got 10 at index 3"):
            elman.fit(self.network(), x, y, lengths=np.array([7, 0, 3, 10, 1, 9, 4, 6]))
        with pytest.raises(ArgumentError, match="x must be finite"):
            elman.fit(self.network(), x, y, lengths=np.array([8, 0, 3, 9, 1, 9, 4, 6]))
        with pytest.raises(ShapeError, match="a list of targets for every step"):
            elman.fit(self.network(), [x[:3, 0]], [y[:2, 0]])

    @pytest.mark.parametrize("part", ["x", "y"])
    def test_masked_arrays_are_refused(self, part):
        x, y = np.ones((5, 4, 2)), np.ones((5, 4, 2))
        given = {"x": x, "y": y} | {part: np.ma.masked_array(x, np.zeros(x.shape))}
        with pytest.raises(DTypeError, match=f"{part} must not be a masked array"):
            elman.fit(self.network(), given["x"], given["y"])

    def test_nothing_to_learn_from_is_refused(self):
        x = np.ones((5, 4, 2))
        with pytest.raises(ArgumentError, match="lengths must leave a step"):
            elman.fit(self.network(), x, x, lengths=[0, 0, 0, 0])
        with pytest.raises(ArgumentError, match="validation lengths must leave a step"):
            elman.fit(self.network(), x, x, validation=(x, x, [0, 0, 0, 0]))

    def test_targets_of_a_list_must_agree(self):
        x = [np.ones((3, 2)), np.ones((2, 2))]
        with pytest.raises(ShapeError, match=r"y\[1\] must agree with y\[0\]"):
            elman.fit(self.network(), x, [np.ones((3, 2)), np.ones((2, 1))])
        with pytest.raises(ArgumentError, match="reset must be left out for a list"):
            elman.fit(self.network(), x, x, reset=[np.zeros(3, bool), np.zeros(2, bool)])

    def test_a_callback_can_run_the_window_again(self):
        x, y, lengths = self.data()
        net, seen = self.network(), []

        def again(update):
            valid = np.arange(9)[:, None] < update.options["lengths"]
            output = net.trace(update.x, update.state, **update.options).output
            seen.append(output[valid].shape == update.y.shape)

        elman.fit(net, x, y, lengths=lengths, epochs=1, batch_size=3, callbacks=(again,), progress=False, rng=0)
        assert all(seen)
        assert len(seen) == 3
