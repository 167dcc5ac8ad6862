"""Data that are not what their caller takes them for: warnings, and refusals whose cure works."""

import re
import warnings

import numpy as np
import pytest

import elman
from elman.errors import ArgumentError, DataWarning, DTypeError, NonFiniteError, ShapeError
from elman.training import Adam, fit


def network(d=3, q=1, **options):
    return elman.Network(elman.RNN(d, 4, rng=0, **options), elman.Readout(4, q, rng=1))


def quiet(net, x, y, **options):
    return fit(net, x, y, **({"epochs": 1, "progress": False, "rng": 0} | options))


def normal(*shape):
    return np.random.default_rng(0).normal(size=shape)


def warned(*args, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        quiet(*args, **options)
    return [str(w.message) for w in caught]


def test_sequences_along_the_first_axis_are_warned_of_once():
    x = normal(300, 12, 3)
    with pytest.warns(DataWarning, match=r"12 sequences of 300 steps.*batch_first=True.*simplefilter") as caught:
        quiet(network(), x, x[..., :1], epochs=3)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    # the cures
    assert not warned(network(batch_first=True), x, x[..., :1])
    assert not warned(network(), x.swapaxes(0, 1), x[..., :1].swapaxes(0, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", elman.errors.DataWarning)
        quiet(network(), x, x[..., :1])


def test_what_speaks_against_it_keeps_it_silent():
    x = normal(300, 12, 3)
    long = np.cumsum(normal(300, 12, 3), 0) / 20  # changes little from step to step
    y = x[..., :1]
    assert not warned(network(), long, y)
    assert not warned(network(), x, y, truncation=50)
    assert not warned(network(), x, y, lengths=np.full(12, 300))
    assert not warned(network(), x[:, :1], y[:, :1])  # one sequence
    assert not warned(network(), x[:60], y[:60])
    assert not warned(network(), elman.datasets.windows(normal(400, 3), 300, 10), np.array(normal(300, 11, 1)))


def test_data_far_from_unit_scale_are_warned_of():
    x, y = normal(8, 40, 3), normal(8, 40, 1)
    assert not warned(network(), 5 * x, y - 5)
    for far_x, far_y, name in ((40 * x, y, "x"), (x + 100, y, "x"), (x, 40 * y, "y"), (x, y + 100, "y")):
        (text,) = warned(network(), far_x, far_y, epochs=3)
        assert text.startswith(f"{name} is far from unit scale")
        assert "Scaler" in text
        assert "simplefilter" in text
    one = x.copy()
    one[..., 1] *= 100  # one channel of three
    assert len(warned(network(), one, y)) == 1
    classes = np.random.default_rng(0).integers(0, 30, (8, 40))
    assert not warned(network(q=30), x, classes, loss="cross_entropy")
    assert not warned(network(), (x - (x + 100).mean((0, 1)) + 100) / x.std((0, 1)), y)


def test_recordings_in_an_array_of_objects():
    lists = [normal(n, 3) for n in (4, 7, 5)]
    x = np.empty(3, object)
    x[:] = lists
    with pytest.raises(DTypeError, match=r"list\(x\)") as error:
        quiet(network(), x, normal(3, 1))
    assert "3 sequences" in str(error.value)
    quiet(network(), list(x), normal(3, 1))


@pytest.mark.parametrize(
    ("shape", "cure"),
    [((8, 5, 1, 3), "x.squeeze(2)"), ((8, 5, 2, 3), "x.reshape(8, 5, -1)"), ((1, 8, 5, 3), "x.squeeze(0)")],
)
def test_one_axis_too_many(shape, cure):
    x = normal(*shape)
    with pytest.raises(ShapeError, match=re.escape(cure)):
        quiet(network(), x, normal(8, 5, 1))
    cured = eval(cure, {"x": x})
    quiet(network(cured.shape[-1]), cured, normal(8, 5, 1))


def test_tokens():
    x = np.random.default_rng(0).integers(0, 3, (8, 5))
    with pytest.raises(DTypeError, match=r"one-hot, np.eye\(K\)\[x\]"):
        quiet(network(), x, normal(8, 5, 1))
    with pytest.raises(DTypeError, match=r"np.eye\(K\)\[x\[..., 0\]\]"):
        quiet(network(), x[..., None], normal(8, 5, 1))
    quiet(network(), np.eye(3)[x], normal(8, 5, 1))


@pytest.mark.parametrize("batch_first", [False, True])
def test_nan_as_padding(batch_first):
    x, lengths = normal(8, 5, 3), np.array([8, 3, 8, 1, 5])
    x[np.arange(8)[:, None] >= lengths] = np.nan
    y = normal(8, 5, 1)
    if batch_first:
        x, y = x.swapaxes(0, 1), y.swapaxes(0, 1)
    with pytest.raises(ArgumentError, match="NaN to the end of 3 sequences, as padding does") as error:
        quiet(network(batch_first=batch_first), x, y)
    cure = re.search(r"lengths=(np\S*\))", str(error.value)).group(1)
    got = eval(cure, {"np": np, "x": x})
    np.testing.assert_array_equal(got, lengths)
    quiet(network(batch_first=batch_first), x, y, lengths=got)
    x[0, 0, 0] = np.nan  # a gap elsewhere is no padding
    with pytest.raises(ArgumentError, match=r"x must be finite, x\[0, 0, 0\] is nan"):
        quiet(network(batch_first=batch_first), x, y)


def test_targets_without_their_axis():
    with pytest.raises(ShapeError, match=r"add the axis of channels, y\[..., None\]"):
        quiet(network(), normal(8, 16, 3), normal(16))
    quiet(network(), normal(8, 16, 3), normal(16)[..., None])


def test_an_optimizer_of_a_string():
    with pytest.raises(DTypeError, match=r"lr must be a number, got '0.1' \(str\)"):
        Adam("0.1")


def test_a_gradient_of_ones_own_loss_that_is_not_finite():
    class Rooted:
        """The root of the error: its derivative is infinite at 0."""

        def value_and_gradient(self, output, target):
            error = output - target
            with np.errstate(divide="ignore", invalid="ignore"):
                return np.sqrt(np.abs(error)).mean(), np.sign(error) / np.sqrt(np.abs(error))

    net, x = network(), normal(8, 5, 3)
    net.theta[...] = 0  # an output of exactly 0
    y = np.zeros((8, 5, 1))
    start = net.theta.copy()
    with pytest.raises(
        NonFiniteError, match=r"Rooted.value_and_gradient must return finite.*epoch 0, update 0"
    ) as error:
        quiet(net, x, y, loss=Rooted())
    assert error.value.what == "loss"
    np.testing.assert_array_equal(net.theta, start)


def test_targets_of_sequences_along_the_first_axis_name_batch_first():
    x, y = normal(40, 7, 3), normal(40, 1)
    with pytest.raises(ShapeError, match=r"sequences of 7 steps, build the layer with batch_first=True"):
        quiet(network(), x, y)
    quiet(network(batch_first=True), x, y)
    quiet(network(), x.swapaxes(0, 1), y)
