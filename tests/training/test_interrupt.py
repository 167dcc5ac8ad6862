"""Ctrl-C: deferred within a training, handlers put back, and what a process says with its exit status."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import elman
from elman import demo
from elman.training.interrupt import DeferredInterrupt


def press():
    signal.raise_signal(signal.SIGINT)


def test_the_first_is_noted_and_the_handler_put_back():
    before = signal.getsignal(signal.SIGINT)
    with DeferredInterrupt() as interrupt:
        assert not interrupt.requested
        press()
        assert interrupt.requested
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_the_second_raises_with_the_handler_back_already():
    """The exception may reach ``__exit__`` in the middle; a third one is for whoever called."""
    before = signal.getsignal(signal.SIGINT)
    interrupt = DeferredInterrupt()
    interrupt.__enter__()
    press()
    with pytest.raises(KeyboardInterrupt):
        press()
    assert signal.getsignal(signal.SIGINT) is before


def test_a_signal_in_the_last_validation_counts():
    """It comes after the last update's look at whether there was one."""
    x, y, updated = np.zeros((3, 4, 2)), np.zeros((4, 1)), []
    net = elman.Network(elman.RNN(2, 3, rng=0), elman.Readout(3, 1, rng=1))

    class Pressing:
        def value_and_gradient(self, output, target):
            if len(updated) == 1:
                press()
            updated.append(output)
            return float(np.mean((output - target) ** 2)), 2 * (output - target) / output.size

    history = elman.fit(net, x, y, epochs=1, validation=(x, y), loss=Pressing(), progress=False)
    assert (history.epochs, history.updates, len(updated)) == (1, 1, 2)
    assert history.interrupted


@pytest.mark.skipif(os.name != "posix", reason="signals between processes")
def test_ctrl_c_while_the_demo_trains_ends_with_130_and_no_picture(tmp_path):
    target = tmp_path / "picture.png"
    process = subprocess.Popen(
        [sys.executable, "-m", "elman", "demo", "--output", str(target)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(elman.__file__).parents[1]), "MPLBACKEND": "Agg"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    watchdog = threading.Timer(240, process.kill)
    watchdog.start()
    try:
        seen = b""
        while b"fit:" not in seen or b"loss=" not in seen:  # the bar of the training, after an epoch
            more = os.read(process.stderr.fileno(), 4096)
            assert more, (process.wait(), seen)
            seen += more
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    finally:
        watchdog.cancel()
        process.kill()
    assert process.returncode == 130, err
    assert err.endswith(b"elman: interrupted\n")
    assert b"Traceback" not in err
    assert b"GRADIENTS BEFORE" not in out
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_training_of_the_demo_is_no_result(monkeypatch):
    monkeypatch.setattr(demo, "EarlyStopping", lambda patience: lambda update: press())
    network = elman.Network(elman.RNN(1, 4, rng=0), elman.Readout(4, 1, rng=1))
    with pytest.raises(KeyboardInterrupt):
        demo.train(network, demo.load(), False, 0)
