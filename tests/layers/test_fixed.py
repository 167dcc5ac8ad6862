"""Options are what an object was built with: what would compute nothing cannot be assigned."""

from __future__ import annotations

import copy
import inspect
import pickle

import numpy as np
import pytest

import elman
from elman.cells import MGU
from elman.errors import ElmanError, ReadOnlyError
from elman.layers.fixed import Fixed
from elman.layers.recurrent import Recurrent
from elman.training import Optimizer


def network():
    return elman.Network(elman.RNN(3, 4, rng=0), elman.Readout(4, 2, rng=1))


BUILT = {
    "RNN": lambda: elman.RNN(3, 4, 2, dropout=0.1, zoneout=0.1, rng=0),
    "LSTM": lambda: elman.LSTM(3, 4, proj_size=2, rng=0),
    "GRU": lambda: elman.GRU(3, 4, rng=0),
    "MGU": lambda: elman.MGU(3, 4, rng=0),
    "Network": network,
    "Readout": lambda: elman.Readout(4, 2, rng=0),
    "MLP": lambda: elman.MLP(3, 4, 2, rng=0),
    "Stepper": lambda: elman.RNN(3, 4, rng=0).stepper(),
}


def public(made):
    """Every attribute that is no method: what an object shows of itself."""
    names = {name for name in dir(made) if name[0] != "_"}
    return [name for name in names if not callable(getattr(type(made), name, None))]


@pytest.mark.parametrize("kind", BUILT)
def test_no_option_can_be_assigned(kind):
    made = BUILT[kind]()
    shown, names = repr(made), public(made)
    for name in {*names, *inspect.signature(type(made)).parameters} - {"settable"}:
        with pytest.raises(ReadOnlyError, match=rf"^{name} of {kind} "):
            setattr(made, name, getattr(made, name, None))
        with pytest.raises(AttributeError):
            delattr(made, name)
    assert repr(made) == shown


@pytest.mark.parametrize("kind", BUILT)
def test_no_other_name_can_be_assigned(kind):
    made = BUILT[kind]()
    with pytest.raises(ReadOnlyError, match=f"{kind} has no attribute 'batch_sizes', and nothing would read it"):
        made.batch_sizes = 3
    assert not hasattr(made, "batch_sizes")


def test_messages_say_how():
    layer = BUILT["RNN"]()
    with pytest.raises(ReadOnlyError, match=r"RNN\(\.\.\., nonlinearity='relu'\), and .*load_state_dict"):
        layer.nonlinearity = "relu"
    with pytest.raises(ReadOnlyError, match="did you mean dropout"):
        layer.dropuot = 0.5
    for name in ("theta", "params"):
        with pytest.raises(ReadOnlyError, match=rf"{name} of RNN cannot be replaced: write into it"):
            setattr(layer, name, np.zeros(3))
    assert issubclass(ReadOnlyError, ElmanError)


@pytest.mark.parametrize("kind", BUILT)
@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
def test_copies_are_fixed_too(kind, way):
    twin = way(BUILT[kind]())
    with pytest.raises(ReadOnlyError):
        twin.dropout = 0.5


def test_what_takes_effect_can_be_assigned():
    layer, calls = BUILT["GRU"](), []
    original = layer.trace
    layer.trace = lambda *args, **options: calls.append(args) or original(*args, **options)
    layer.linearize(np.zeros((2, 1, 3)))
    assert len(calls) == 1
    del layer.trace
    layer.linearize(np.zeros((2, 1, 3)))
    assert len(calls) == 1


def test_subclasses_of_users():
    class Mine(Recurrent):
        settable = ("note",)

        def __init__(self, *sizes, **options):
            self.early = 1
            super().__init__(MGU, MGU.variants[0], *sizes, **options)
            self.late, self.note, self._calls = 2, "", 0

        def __call__(self, *args, **options):
            self._calls += 1
            return super().__call__(*args, **options)

    class Heir(Mine):
        pass

    for kind in (Mine, Heir):
        layer = kind(3, 4, rng=0)
        layer(np.zeros((2, 1, 3)))
        layer.note = "seen"
        assert (layer._calls, layer.note) == (1, "seen")
        for name in ("early", "late", "hidden_size", "noted"):
            with pytest.raises(ReadOnlyError):
                setattr(layer, name, 3)
        assert copy.deepcopy(layer).note == "seen"


def test_signatures_stay_visible():
    assert list(inspect.signature(elman.Readout).parameters)[:3] == ["hidden_size", "output_size", "bias"]
    assert "nonlinearity" in inspect.signature(elman.RNN).parameters


def test_a_constructor_that_fails_leaves_nothing_fixed():
    class Half(Fixed):
        def __init__(self, good):
            self.good = good
            if not good:
                raise ValueError("half")

    half = object.__new__(Half)
    with pytest.raises(ValueError, match="half"):
        half.__init__(False)
    half.good = True  # still being built
    with pytest.raises(ReadOnlyError):
        Half(True).good = False


class TestOptimizers:
    def test_hyperparameters_take_effect_and_are_checked(self):
        for made, name, value, bad in (
            (elman.SGD(0.1, 0.9), "momentum", 0.5, 1.5),
            (elman.SGD(0.1, 0.9), "nesterov", True, None),
            (elman.Adam(), "betas", (0.5, 0.9), (2.0, 0.9)),
            (elman.Adam(), "eps", 1e-3, -1.0),
            (elman.Adam(), "lr", 0.5, -1.0),
        ):
            if bad is not None:
                before = repr(made)
                with pytest.raises(ElmanError):
                    setattr(made, name, bad)
                assert repr(made) == before
            theta, gradient = np.array([1.0, -2.0]), np.array([0.3, 1.0])
            made.step(theta, gradient)
            settings = {each: getattr(made, each) for each in made.hyperparameters} | {name: value}
            other = type(made)(**settings)
            other.load_state_dict(made.state_dict() | {name: np.array(value)})
            setattr(made, name, value)
            twin = theta.copy()
            made.step(theta, gradient)
            other.step(twin, gradient)
            assert np.array_equal(theta, twin)
            assert getattr(made, name) == value

    def test_what_would_be_ignored_is_refused(self):
        optimizer = elman.Adam()
        for name in ("learning_rate", "weight_decay", "step_count", "slots", "beta"):
            with pytest.raises(ReadOnlyError):
                setattr(optimizer, name, 0.1)
        with pytest.raises(ReadOnlyError, match="did you mean betas"):
            optimizer.beta = (0.5, 0.9)

    def test_an_optimizer_of_a_user(self):
        class Sign(Optimizer):
            hyperparameters = ("lr", "scale")
            slots = ("last",)

            def __init__(self, lr, scale=1.0):
                super().__init__(lr)
                self.scale = scale
                self._calls = 0

            def _compute(self, theta, gradient, state, new_state, new):
                self._calls += 1
                new_state[0][:] = gradient
                np.subtract(theta, self.lr * self.scale * np.sign(gradient), out=new)

        optimizer, theta = Sign(0.5), np.zeros(2)
        optimizer.step(theta, np.array([1.0, -1.0]))
        optimizer.scale = 2.0
        optimizer.step(theta, np.array([1.0, -1.0]))
        assert theta.tolist() == [-1.5, 1.5]
        assert (optimizer._calls, optimizer.step_count) == (2, 2)

    @pytest.mark.parametrize("bad", [1.5, -1, [1], "1"])
    def test_a_count_of_steps_is_an_integer(self, bad):
        optimizer, theta = elman.Adam(), np.ones(3)
        optimizer.step(theta, theta)
        before = optimizer.state_dict()
        with pytest.raises(elman.errors.StateDictError, match="step_count must be an integer"):
            optimizer.load_state_dict(before | {"lr": np.array(0.5), "step_count": np.array(bad)})
        assert all(np.array_equal(before[name], value) for name, value in optimizer.state_dict().items())
