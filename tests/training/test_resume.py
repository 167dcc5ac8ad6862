"""A training that goes on from the end of any epoch gives the bits of one that was never stopped."""

import copy
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import elman
from elman import schedules
from elman.errors import ArgumentError, DTypeError, StateDictError
from elman.training import SGD, Adam, AdamW, EarlyStopping, History, KeepBest, RMSprop, fit

T, N, D, Q, EPOCHS = 6, 10, 2, 2, 5

NETWORKS = {
    "rnn": lambda: elman.RNN(D, 5, rng=0),
    "gru float32, dropout": lambda: elman.GRU(D, 5, 2, dropout=0.3, rng=0, dtype="float32"),
    "lstm zoneout": lambda: elman.LSTM(D, 5, zoneout=0.2, rng=0),
    "mgu recurrent dropout": lambda: elman.MGU(D, 5, recurrent_dropout=0.2, rng=0),
}
OPTIMIZERS = {
    "sgd": lambda: SGD(0.1, momentum=0.9, nesterov=True),
    "adam": lambda: Adam(0.02),
    "adamw": lambda: AdamW(0.02),
    "rmsprop": lambda: RMSprop(0.01),
}
SCHEDULES = {
    "none": lambda: None,
    "cosine": lambda: schedules.WarmUp(5, then=schedules.Cosine(EPOCHS)),
    "plateau": lambda: schedules.OnPlateau(patience=1, factor=0.7, min_delta=0.05),
}


class Mean:
    """A callback of one's own with a state: it stops at what it has seen."""

    def __init__(self):
        self.losses = []

    def __call__(self, update):
        self.losses.append(update.loss)

    def state_dict(self):
        return {"losses": list(self.losses)}

    def load_state_dict(self, state):
        self.losses = list(state["losses"])


class Keep:
    """Keeps what a file of ModelCheckpoint holds, after each epoch."""

    runs_last = True

    def __init__(self):
        self.saved = []

    def __call__(self, update):
        if update.epoch_ended:
            self.saved.append(copy.deepcopy(SimpleNamespace(
                net=update.model, optimizer=update.optimizer, history=update.history, rng=update.rng,
                training=update.trainer_state(),
            )))  # fmt: skip


def network(kind="rnn"):
    layer = NETWORKS[kind]()
    return elman.Network(layer, elman.Readout(layer.output_size, Q, rng=1, dtype=layer.dtype))


def data():
    x = np.random.default_rng(3).normal(size=(T, N, D))
    return x, x**2


def trained(net, *, callbacks=None, **options):
    x, y = data()
    callbacks = [Keep(), Mean(), KeepBest()] if callbacks is None else callbacks
    settings = {"epochs": EPOCHS, "progress": False, "batch_size": 4, "validation": (x[:, :5], y[:, :5])}
    history = fit(net, x, y, **(settings | options), callbacks=callbacks)
    return net.theta.copy(), history, callbacks


@pytest.mark.parametrize(
    ("cell", "optimizer", "schedule"),
    [
        ("rnn", "sgd", "plateau"),
        ("gru float32, dropout", "adam", "none"),
        ("lstm zoneout", "adamw", "cosine"),
        ("mgu recurrent dropout", "rmsprop", "plateau"),
    ],
)
def test_resumed_from_any_epoch(cell, optimizer, schedule):
    options = {"truncation": (2, 3), "accumulate": 2, "metrics": ("rmse",)}
    theta, history, (keep, mean, best) = trained(
        network(cell), optimizer=OPTIMIZERS[optimizer](), schedule=SCHEDULES[schedule](), rng=7, **options
    )
    assert len(keep.saved) == EPOCHS
    for saved in keep.saved:
        before = copy.deepcopy(saved.__dict__)
        again = OPTIMIZERS[optimizer]()
        net = network(cell)
        net.theta[...] = 0.1
        resumed, record, (_, own, kept) = trained(
            net, optimizer=again, schedule=SCHEDULES[schedule](), resume=saved, rng=None, **options
        )
        np.testing.assert_array_equal(resumed, theta)
        assert record == history
        assert own.losses == mean.losses
        assert kept.epoch == best.epoch
        np.testing.assert_array_equal(kept.theta, best.theta)
        assert again.lr == OPTIMIZERS[optimizer]().lr
        np.testing.assert_equal(saved.training, before["training"])  # what was given is not used up
        np.testing.assert_array_equal(before["net"].theta, saved.net.theta)


def test_resumed_twice_with_the_saved_optimizer_and_a_generator_of_ones_own():
    theta, history, (keep, *_) = trained(network(), optimizer=Adam(0.05), rng=np.random.default_rng(3))
    rng = np.random.default_rng(99)
    _, first, (again, *_) = trained(network(), resume=keep.saved[0], epochs=3, rng=rng)
    assert first.epochs == 3
    assert first.loss == history.loss[:3]
    resumed, record, _ = trained(network(), resume=again.saved[-1])
    np.testing.assert_array_equal(resumed, theta)
    assert record == history
    assert rng.bit_generator.state == again.saved[-1].rng.bit_generator.state


def test_nothing_is_left_to_do_for_a_training_that_is_complete_or_was_stopped():
    theta, history, (keep, *_) = trained(network(), rng=0)
    resumed, record, _ = trained(network(), resume=keep.saved[-1])
    np.testing.assert_array_equal(resumed, theta)
    assert record == history

    def run(**options):
        return trained(network(), callbacks=[EarlyStopping(1, min_delta=1e9), Keep()], epochs=9, **options)

    stopped, history, (_, keep) = run(rng=0)
    assert history.stopped
    assert history.epochs == 2
    for saved in keep.saved:  # the last one was saved by the update that stopped it
        resumed, record, _ = run(resume=saved)
        np.testing.assert_array_equal(resumed, stopped)
        assert record == history


def test_what_is_refused_changes_nothing():
    _, _, (keep, *_) = trained(network(), optimizer=Adam(0.05), rng=0)
    saved = keep.saved[1]

    def other(**change):
        return SimpleNamespace(**(saved.__dict__ | change))

    net = network()
    net.theta[...] = 0.25
    cases = [
        (DTypeError, "resume must be what elman.load returned", {"resume": "run.safetensors"}),
        (ArgumentError, "has no optimizer", {"resume": other(optimizer=None)}),
        (ArgumentError, "has no training", {"resume": other(training={})}),
        (ArgumentError, "format", {"resume": other(training=saved.training | {"format": 99})}),
        (ArgumentError, "one moment", {"resume": other(history=History())}),
        (ArgumentError, "optimizer must be of the kind .* Adam", {"optimizer": SGD(0.1)}),
        (ArgumentError, "rng must be of the kind", {"rng": np.random.Generator(np.random.MT19937(0))}),
        (ArgumentError, "callbacks must be of the kinds", {"callbacks": [Mean()]}),
        (ArgumentError, "schedule must be", {"schedule": schedules.OnPlateau()}),
    ]
    for kind, message, change in cases:
        with pytest.raises(kind, match=message):
            trained(net, **({"resume": saved} | change))
        assert (net.theta == 0.25).all()
    with pytest.raises(StateDictError, match="net must have the parameters of the saved one"):
        trained(elman.Network(elman.RNN(D, 6, rng=0), elman.Readout(6, Q, rng=1)), resume=saved)


KILLED = """
import sys
import numpy as np
import elman
from elman.training import fit

def run(path, resume=None, callback=None):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(6, 40, 2))
    net = elman.Network(elman.GRU(2, 5, zoneout=0.1, rng=0), elman.Readout(5, 2, rng=1))
    callbacks = [elman.EarlyStopping(50), elman.ModelCheckpoint(path)]
    if callback is not None:
        callbacks.append(callback)
    history = fit(
        net, x, x**2, epochs=30, batch_size=4, validation=(x[:, :5], x[:, :5] ** 2), schedule="cosine", rng=5,
        optimizer=elman.AdamW(0.01), metrics=("rmse",), progress=False, callbacks=callbacks, resume=resume,
    )
    return net.theta.copy(), history

def tell(update):
    if update.step % 7 == 0:
        print(update.step, flush=True)

tell.runs_last = True
if __name__ == "__main__":
    run(sys.argv[1], callback=tell)
"""


def test_a_run_that_is_killed_goes_on_to_the_same_bits(tmp_path):
    """Killed at a random moment, perhaps while it writes: the file is that of the end of some epoch, and whole."""
    script, path = tmp_path / "run.py", tmp_path / "run.safetensors"
    script.write_text(KILLED)
    space = {"__name__": "killed"}
    exec(KILLED, space)
    theta, history = space["run"](tmp_path / "whole.safetensors", callback=lambda update: None)
    process = subprocess.Popen([sys.executable, script, path], stdout=subprocess.PIPE, text=True)
    try:
        for _ in range(int(np.random.default_rng().integers(3, 40))):
            process.stdout.readline()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    saved = elman.load(path)
    assert 0 < saved.history.epochs < 30
    resumed, record = space["run"](path, resume=saved, callback=lambda update: None)
    np.testing.assert_array_equal(resumed, theta)
    assert record == history
