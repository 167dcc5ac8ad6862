"""What is kept between calls is never stale, whatever changes the weights."""

import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import elman
from elman.errors import NonFiniteError
from elman.layers.engine import kept
from elman.layers.engine.kept import CHUNK, Kept

LAYERS = {"RNN": elman.RNN, "LSTM": elman.LSTM, "GRU": elman.GRU, "MGU": elman.MGU}


class Counted:
    """Makes copies, and counts them."""

    def __init__(self, theta):
        self.theta, self.times = theta, 0

    def __call__(self):
        self.times += 1
        return self.theta.copy()


def test_made_once_while_nothing_changes():
    theta = np.random.default_rng(0).standard_normal(10)
    make, cache = Counted(theta), Kept()
    first = cache.get(theta, make)
    assert cache.get(theta, make) is first
    assert cache.get(theta.copy(), make) is first  # the numbers count, not where they are
    assert make.times == 1
    theta[3] += 1e-16 + abs(theta[3])
    second = cache.get(theta, make)
    assert make.times == 2
    assert np.array_equal(second, theta)
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("size", [1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 3])
def test_a_change_of_any_number_is_seen(size, dtype):
    theta = np.zeros(size, dtype)
    make, cache = Counted(theta), Kept()
    cache.get(theta, make)
    for i, place in enumerate(sorted({0, size // 2, size - 1, min(CHUNK - 1, size - 1), min(CHUNK, size - 1)})):
        theta[place] = np.nextafter(theta[place], dtype.type(1))
        assert cache.get(theta, make)[place] == theta[place]
        assert make.times == 2 + i


@pytest.mark.parametrize(
    ("before", "after"), [(0.0, -0.0), (-0.0, 0.0), (1.0, np.nan), (np.nan, 1.0), (np.nan, -np.nan), (np.inf, -np.inf)]
)
def test_bits_are_compared_and_not_numbers(before, after, dtype):
    theta = np.array([before], dtype)
    make, cache = Counted(theta), Kept()
    cache.get(theta, make)
    theta[0] = after
    assert cache.get(theta, make).tobytes() == theta.tobytes()
    assert make.times == 2
    cache.get(theta, make)  # a NaN is the same NaN
    assert make.times == 2


def test_nothing_is_kept_of_what_could_not_be_made():
    theta, cache = np.zeros(3), Kept()
    cache.get(theta, Counted(theta))
    theta[0] = 1

    def fails():
        raise MemoryError

    with pytest.raises(MemoryError):
        cache.get(theta, fails)
    make = Counted(theta)
    assert cache.get(theta, make)[0] == 1
    assert make.times == 1


def test_copies_and_pickles_are_empty():
    theta, cache = np.ones(3), Kept()
    cache.get(theta, Counted(theta))
    for other in (copy.copy(cache), copy.deepcopy(cache), pickle.loads(pickle.dumps(cache))):
        make = Counted(theta)
        other.get(theta, make)
        assert make.times == 1


def test_a_change_while_it_is_being_made_is_seen_at_the_next_call():
    theta, cache = np.zeros(4), Kept()

    def slow():
        theta[2] = 5  # somebody else, before the weights are read
        return theta.copy()

    cache.get(theta, slow)
    make = Counted(theta)
    assert np.array_equal(cache.get(theta, make), theta)
    assert make.times == 1


def made(kind, seed=0, **options):
    layer = LAYERS[kind](3, 9, 2, bidirectional=True, rng=seed, **options)
    layer.theta[:] = np.random.default_rng(seed).uniform(-0.5, 0.5, layer.theta.size)
    return layer


def fresh(layer, x):
    """What a layer gives that has never been called."""
    other = copy.deepcopy(layer)
    assert other._kept._snapshot is None
    return other(x)[0]


@pytest.mark.parametrize("kind", LAYERS)
def test_editing_any_parameter_in_place_changes_the_next_call(kind, dtype):
    layer, x = made(kind, dtype=dtype), np.random.default_rng(1).standard_normal((6, 5, 3)).astype(dtype)
    for name, parameter in layer.params.items():
        before = layer(x)[0]
        assert np.array_equal(layer(x)[0], before)
        parameter[tuple(n // 2 for n in parameter.shape)] += 0.5
        after = layer(x)[0]
        assert not np.array_equal(after, before), name
        assert np.array_equal(after, fresh(layer, x)), name


def test_a_sign_of_zero_reaches_the_output(dtype):
    layer, x = elman.RNN(1, 3, nonlinearity="identity", dtype=dtype, rng=0), np.ones((1, 2, 1), dtype)
    for zero in (0.0, -0.0, 0.0):
        layer.theta[:] = zero
        output = layer(x)[0]
        assert (np.signbit(output) == np.signbit(zero)).all()
        assert output.tobytes() == fresh(layer, x).tobytes()


@pytest.mark.parametrize("kind", LAYERS)
def test_a_nan_is_found_and_its_repair_too(kind):
    layer, x = made(kind), np.random.default_rng(1).standard_normal((6, 5, 3))
    right = layer(x)[0]
    for name in ("bias_hh_l1", "weight_ih_l0_reverse", "weight_hh_l1"):
        place = layer.params[name].reshape(-1)[:1]
        kept_value, place[0] = place[0], np.nan
        with pytest.raises(NonFiniteError, match=f"{name} holds numbers that are not finite"):
            layer(x)
        place[0] = kept_value
        assert np.array_equal(layer(x)[0], right)


@pytest.mark.parametrize("kind", LAYERS)
def test_loading_joining_training_and_copying(kind):
    layer, other, x = made(kind), made(kind, 1), np.random.default_rng(1).standard_normal((6, 5, 3))
    first, second = layer(x)[0], other(x)[0]
    assert not np.array_equal(first, second)
    layer.load_state_dict(other.state_dict())
    assert np.array_equal(layer(x)[0], second)

    for name in ("deepcopy", "pickle"):
        twin = copy.deepcopy(layer) if name == "deepcopy" else pickle.loads(pickle.dumps(layer))
        assert np.array_equal(twin(x)[0], second)
        twin.theta[:] *= 0.5
        halved = twin(x)[0]
        assert not np.array_equal(halved, second)
        assert np.array_equal(layer(x)[0], second), "a copy's weights are its own"

    net = elman.Network(layer, elman.Readout(18, 1, rng=0))
    assert np.array_equal(layer(x)[0], second)
    hidden, _ = net(x)
    net.theta[: layer.theta.size] *= 0.5
    assert np.array_equal(layer(x)[0], halved)
    assert not np.array_equal(net(x)[0], hidden)
    assert np.array_equal(net(x)[0], net.readout(halved))

    elman.fit(net, x, x[..., :1], epochs=2, progress=False, rng=0)
    assert not np.array_equal(layer(x)[0], halved)
    assert np.array_equal(layer(x)[0], layer.trace(x).output)  # which packs anew
    again = elman.Network(copy.deepcopy(layer), elman.Readout(18, 1, rng=0))
    assert np.array_equal(again.layer(x)[0], layer(x)[0])


def test_weights_are_packed_once_for_many_calls(monkeypatch):
    layer, x, packed = made("GRU"), np.ones((4, 2, 3)), []
    original = type(layer)._pack
    monkeypatch.setattr(type(layer), "_pack", lambda self: packed.append(1) or original(self))
    for _ in range(5):
        layer(x)
    assert len(packed) == 1
    layer.params["bias_ih_l1"][3] += 1
    for _ in range(5):
        layer(x)
    assert len(packed) == 2


def test_threads_that_call_while_another_edits_get_old_or_new_weights():
    layer, x = made("LSTM"), np.random.default_rng(1).standard_normal((5, 3, 3))
    thetas = [layer.theta.copy(), np.random.default_rng(7).uniform(-0.5, 0.5, layer.theta.size)]
    right = []
    for theta in thetas:
        layer.theta[:] = theta
        right.append(layer(x)[0].tobytes())
    with ThreadPoolExecutor(4) as pool:
        for i in range(30):
            layer.theta[:] = thetas[i % 2]  # no call is under way
            outputs = list(pool.map(lambda _: layer(x)[0].tobytes(), range(8)))
            assert set(outputs) == {right[i % 2]}


def test_a_snapshot_is_replaced_as_a_whole(monkeypatch):
    """Two threads with two vectors on one cache: each gets what was made from its own."""
    monkeypatch.setattr(kept, "CHUNK", 16)
    cache, thetas, wrong = Kept(), [np.full(1000, float(i)) for i in range(3)], []

    def read(theta):
        for _ in range(2000):
            if not np.array_equal(cache.get(theta, theta.copy), theta):
                wrong.append(theta[0])

    threads = [threading.Thread(target=read, args=(theta,)) for theta in thetas]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
