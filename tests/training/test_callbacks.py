"""Callbacks that keep the best parameters, stop, save, and log."""

import csv
import json
import os

import numpy as np
import pytest

import elman
from elman.errors import ArgumentError, DTypeError, StateDictError, WriteError
from elman.training import Update

RNG = np.random.default_rng(2)
X = RNG.standard_normal((6, 20, 2))
Y = np.cumsum(X[..., :1], axis=0) / 3
HELD_OUT = (X[:, :5], Y[:, :5])


def network():
    return elman.Network(elman.RNN(2, 4, rng=0), elman.Readout(4, 1, rng=1))


def trained(*callbacks, epochs=12, validation=HELD_OUT, lr=0.2, net=None, **options):
    """Train, at a learning rate that makes losses go up and down."""
    net = network() if net is None else net
    history = elman.fit(
        net, X, Y, optimizer=elman.Adam(lr), epochs=epochs, validation=validation, callbacks=callbacks,
        progress=False, rng=0, **options,
    )  # fmt: skip
    return net, history


class Thetas:
    """The parameters after each epoch."""

    def __init__(self):
        self.record = []

    def __call__(self, update):
        if update.epoch_ended:
            self.record.append(update.model.theta.copy())


def update(history, model, epoch, ended=True, **more):
    """An epoch's last update, of which a callback reads little."""
    none = np.zeros(0)
    return Update(
        epoch, 3 * epoch + 2, 0.0, 0.0, model, elman.Adam(), None, none, none, {}, None, none, history, ended, **more
    )


def play(callback, values, model=None, key="validation_loss"):
    """Hand a callback made-up epochs; the epoch it stopped after, or None."""
    history = elman.History(metrics={"validation_r2": []})
    record = history.metrics[key] if key in history.metrics else getattr(history, key)
    model = network() if model is None else model
    for epoch, value in enumerate(values):
        model.theta[:] = epoch
        record.append(value)
        assert not callback(update(history, model, epoch, ended=False))
        if callback(update(history, model, epoch)):
            return epoch
    return None


@pytest.mark.parametrize("monitor", ["validation_loss", "loss"])
def test_keep_best_puts_the_best_epoch_back_bit_for_bit(monitor):
    every, keep = Thetas(), elman.KeepBest(monitor)
    net, history = trained(every, keep)
    losses = getattr(history, monitor)
    best = int(np.argmin(losses))
    assert best < len(losses) - 1  # else the test shows nothing
    assert (keep.epoch, keep.best) == (best, losses[best])
    assert net.theta.tobytes() == every.record[best].tobytes() != every.record[-1].tobytes()


def test_early_stopping_counts_epochs_without_a_better_one():
    assert play(elman.EarlyStopping(2), [5, 4, 3, 3, 3, 1]) == 4
    assert play(elman.EarlyStopping(3), [5, 4, 3, 3, 3, 1]) is None
    assert play(elman.EarlyStopping(2, min_delta=0.5), [5, 4.6, 4.4, 4, 3.95, 3.9]) == 4
    assert play(elman.EarlyStopping(2), [np.nan, np.nan, 1.0]) == 1
    assert play(elman.EarlyStopping(2), [2.0, np.nan, 1.0, 3, 3]) == 4
    assert play(elman.EarlyStopping(2, monitor="validation_r2"), [0.1, 0.3, 0.2, 0.2], key="validation_r2") == 3
    assert play(elman.EarlyStopping(1), [-3.0, -4.0, -3.5]) == 2


def test_early_stopping_ends_a_training_and_restores():
    every, stop = Thetas(), elman.EarlyStopping(patience=2)
    net, history = trained(every, stop, epochs=200)
    assert history.stopped
    assert history.epochs == stop.epoch + 3 == int(np.argmin(history.validation_loss)) + 3
    assert net.theta.tobytes() == every.record[stop.epoch].tobytes()
    every, stop = Thetas(), elman.EarlyStopping(patience=2, restore_best=False)
    net, _ = trained(every, stop, epochs=200)
    assert net.theta.tobytes() == every.record[-1].tobytes() != every.record[stop.epoch].tobytes()


@pytest.mark.parametrize("make", [elman.KeepBest, lambda: elman.EarlyStopping(3)])
def test_the_state_goes_on_where_it_was(make):
    values = [5, 4, 4.5, 4.6, 3, 3.5, 3.5, 3.5, 3.5]
    whole = make()
    stopped = play(whole, values)
    for cut in range(1, 7):
        history, model, first, second = elman.History(), network(), make(), make()
        for epoch, value in enumerate(values):
            if epoch == cut:
                second.load_state_dict(first.state_dict())
            model.theta[:] = epoch
            history.validation_loss.append(value)
            if (first if epoch < cut else second)(update(history, model, epoch)):
                break
        assert (second.epoch, second.best) == (whole.epoch, whole.best)
        np.testing.assert_array_equal(second.theta, whole.theta)
        assert stopped in (None, epoch)


def test_wrong_states_change_nothing():
    keep = elman.KeepBest()
    play(keep, [2.0, 1.0])
    before = repr(keep), keep.theta.tobytes()
    good = keep.state_dict()
    for wrong, error in (
        ({}, StateDictError),
        (good | {"theta": None}, StateDictError),
        (good | {"theta": np.array([np.nan])}, StateDictError),
        (good | {"epoch": "1"}, DTypeError),
        (good | {"best": {"monitor": "loss", "value": 1.0}}, StateDictError),
        (good | {"best": {"monitor": "validation_loss", "value": "1"}}, DTypeError),
    ):
        with pytest.raises(error):
            keep.load_state_dict(wrong)
        assert (repr(keep), keep.theta.tobytes()) == before
    with pytest.raises(StateDictError, match="those of the network"):
        keep.end(elman.History(), elman.Readout(1, 1))


def test_what_is_not_recorded_cannot_be_monitored():
    with pytest.raises(ArgumentError, match=r"monitor='validation_loss' must be .* which are .'loss'.*validation="):
        trained(elman.EarlyStopping(2), validation=None)
    with pytest.raises(ArgumentError, match="monitor='r2' must be .*name it in metrics="):
        trained(elman.KeepBest("r2"))
    for make in (lambda: elman.EarlyStopping("2"), lambda: elman.KeepBest(3), lambda: elman.EarlyStopping(1, 0.0, 1)):
        with pytest.raises(DTypeError):
            make()
    with pytest.raises(ArgumentError, match="patience must be at least 1"):
        elman.EarlyStopping(0)


def rows(path):
    text = path.read_text()
    assert text.endswith("\n")
    return list(csv.DictReader(text.splitlines()))


def test_the_log_is_the_history(tmp_path):
    path = tmp_path / "run.csv"
    path.write_text("what was there")
    _, history = trained(elman.CSVLog(path), epochs=5)
    table = rows(path)
    assert [int(row["epoch"]) for row in table] == list(range(5))
    for name in ("loss", "validation_loss"):
        assert [float(row[name]) for row in table] == getattr(history, name)  # to the bit


def test_a_resumed_log_has_every_epoch_once_and_whole(tmp_path):
    """Killed within a line of epoch 4, and resumed from epoch 2: what the first run had beyond that is written anew."""
    path, model = tmp_path / "run.csv", network()
    log, history = elman.CSVLog(path), elman.History()
    for epoch in range(5):
        history.loss.append(float(epoch))
        log(update(history, model, epoch))
    with path.open("a") as file:
        file.write("5,0.1")
    resumed, log = elman.History.from_dict({"loss": history.loss[:3]}), elman.CSVLog(path)
    for epoch in (3, 4, 5):
        resumed.loss.append(10.0 + epoch)
        if epoch == 4:  # a metric that is recorded from now on
            resumed.metrics["r2"] = []
        if epoch >= 4:
            resumed.metrics["r2"].append(0.5)
        log(update(resumed, model, epoch))
    table = rows(path)
    assert [(int(row["epoch"]), float(row["loss"])) for row in table] == [
        (0, 0.0), (1, 1.0), (2, 2.0), (3, 13.0), (4, 14.0), (5, 15.0)
    ]  # fmt: skip
    assert [row["r2"] for row in table] == ["", "", "", "", "0.5", "0.5"]


def test_a_log_takes_the_same_object_for_two_trainings(tmp_path):
    log = elman.CSVLog(tmp_path / "run.csv")
    trained(log, epochs=3)
    trained(log, epochs=2)
    assert len(rows(tmp_path / "run.csv")) == 2


def test_a_log_on_a_full_disk_says_so(tmp_path, monkeypatch):
    path, history = tmp_path / "run.csv", elman.History(loss=[1.0])
    log = elman.CSVLog(path)
    log(update(history, network(), 0))
    history.loss.append(2.0)
    log(update(history, network(), 1))
    before = path.read_bytes()
    monkeypatch.setattr(os.path, "isfile", lambda _: True)
    path.unlink()
    path.mkdir()
    history.loss.append(3.0)
    with pytest.raises(WriteError, match="could not write"):
        log(update(history, network(), 2))
    assert before.count(b"\n") == 3


def test_paths_are_looked_at_before_the_training(tmp_path):
    for make in (elman.CSVLog, elman.ModelCheckpoint):
        with pytest.raises(FileNotFoundError, match="does not exist"):
            make(tmp_path / "no" / "file")
        with pytest.raises(DTypeError, match="path must be"):
            make(3)


class Saves:
    """In the place of what writes the file: which epochs were saved."""

    def __init__(self, monkeypatch):
        self.epochs, self.calls = [], []
        module = type("module", (), {"save": self.save})
        monkeypatch.setattr("elman.training.records.import_module", lambda name: {"elman.saving": module}[name])

    def save(self, path, net, **parts):
        self.epochs.append(len(parts["history"].validation_loss) - 1)
        self.calls.append((path, net, parts))


def test_a_checkpoint_is_due_every_few_epochs_or_when_it_is_best(tmp_path, monkeypatch):
    values, path = [5, 4, 4.5, 3, 3.5, 2], tmp_path / "run.safetensors"
    for options, expected in (
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"every": 2}, [1, 3, 5]),
        ({"best_only": True}, [0, 1, 3, 5]),
        ({"best_only": True, "every": 3}, [5]),
    ):
        saves = Saves(monkeypatch)
        play(elman.ModelCheckpoint(path, **options), values)
        assert saves.epochs == expected, options


def test_a_checkpoint_holds_what_training_goes_on_from(tmp_path, monkeypatch):
    saves, model, rng = Saves(monkeypatch), network(), np.random.default_rng(4)
    history = elman.History(validation_loss=[1.0])
    checkpoint = elman.ModelCheckpoint(tmp_path / "run.safetensors", best_only=True)
    last = update(history, model, 0, rng=rng, trainer_state=lambda: {"epoch": 1})
    checkpoint(last)
    (path, net, parts), *_ = saves.calls
    assert (path, net) == (str(tmp_path / "run.safetensors"), model)
    assert parts == {"optimizer": last.optimizer, "history": history, "rng": rng, "training": {"epoch": 1}}
    other = elman.ModelCheckpoint(tmp_path / "run.safetensors", best_only=True)
    other.load_state_dict(json.loads(json.dumps(checkpoint.state_dict())))
    history.validation_loss.append(1.5)
    other(update(history, model, 1))
    assert len(saves.calls) == 1  # it knows the best of before
    with pytest.raises(StateDictError, match="must have the key best"):
        other.load_state_dict({})


class Killed(Exception):
    pass


class Kill:
    """Ends a training as a crash would, after the given update."""

    def __init__(self, at):
        self.at = at

    def __call__(self, update):
        if update.step == self.at:
            raise Killed


def everything(folder, at=None, **options):
    """Callbacks and a schedule that all have a state."""
    callbacks = (
        elman.ModelCheckpoint(folder / "run.safetensors", **options),
        elman.KeepBest("validation_rmse"),
        elman.EarlyStopping(30),
        elman.CSVLog(folder / "run.csv"),
        Kill(at),
    )
    schedule = elman.schedules.WarmUp(5, elman.schedules.OnPlateau(1, 0.7))
    return {"callbacks": callbacks, "schedule": schedule, "metrics": ("rmse", "r2"), "progress": False, "rng": 3}


@pytest.mark.parametrize("optimizer", [elman.AdamW, elman.RMSprop, lambda lr: elman.SGD(lr, 0.9, nesterov=True)])
@pytest.mark.parametrize("at", [6, 13, 18])
def test_a_killed_training_goes_on_to_the_same_bits(tmp_path, optimizer, at):
    """Killed within an epoch, two epochs after its last checkpoint perhaps; the log and all states are the same too."""
    data = {"epochs": 9, "batch_size": 7, "validation": HELD_OUT}
    folders = [tmp_path / name for name in ("whole", "killed")]
    for folder in folders:
        folder.mkdir()
    whole, first = network(), network()
    options = everything(folders[0], every=2)
    history = elman.fit(whole, X, Y, optimizer=optimizer(0.05), **data, **options)

    killed = everything(folders[1], at, every=2)
    with pytest.raises(Killed):
        elman.fit(first, X, Y, optimizer=optimizer(0.05), **data, **killed)
    saved = elman.load(folders[1] / "run.safetensors")
    again = everything(folders[1], every=2)
    resumed = elman.fit(saved.net, X, Y, resume=saved, **data, **again)
    assert resumed == history
    assert saved.net.theta.tobytes() == whole.theta.tobytes()
    assert (folders[0] / "run.csv").read_bytes() == (folders[1] / "run.csv").read_bytes()
    for one, other in zip(options["callbacks"][1:3], again["callbacks"][1:3], strict=True):
        assert repr(one) == repr(other)
        assert one.theta.tobytes() == other.theta.tobytes()
    assert options["schedule"].state_dict() == again["schedule"].state_dict()
    assert len(set(history.lr)) > 3  # the schedule did something


def test_the_same_callbacks_can_be_used_for_another_training(tmp_path):
    keep, stop = elman.KeepBest(), elman.EarlyStopping(3)
    save = elman.ModelCheckpoint(tmp_path / "run.safetensors", best_only=True)
    trained(keep, stop, save, epochs=20)
    every = Thetas()
    worse = elman.Network(elman.RNN(2, 4, rng=5), elman.Readout(4, 1, rng=6))
    net, history = trained(every, keep, stop, save, epochs=2, lr=1e-6, net=worse)
    best = int(np.argmin(history.validation_loss))
    assert net.theta.tobytes() == every.record[best].tobytes()
    assert elman.load(save.path).net.theta.tobytes() == every.record[best].tobytes()


def test_a_checkpoint_is_a_model(tmp_path):
    path = tmp_path / "run.safetensors"
    every = Thetas()
    _, history = trained(every, elman.ModelCheckpoint(path, best_only=True))
    best = int(np.argmin(history.validation_loss))
    saved = elman.load(path)
    assert saved.net.theta.tobytes() == every.record[best].tobytes()
    assert saved.history.validation_loss == history.validation_loss[: best + 1]


def test_ctrl_c_restores_the_best(monkeypatch):
    import signal

    every, keep = Thetas(), elman.KeepBest()

    def interrupt(update):
        if update.epoch_ended and update.epoch == 8:
            signal.raise_signal(signal.SIGINT)

    net, history = trained(every, keep, interrupt)
    assert history.interrupted
    assert net.theta.tobytes() == every.record[int(np.argmin(history.validation_loss))].tobytes()
