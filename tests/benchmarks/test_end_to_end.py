"""The comparison of whole trainings: both packages learn the same, and the tables say what the curves say."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest

import elman
from elman.losses import get_loss

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.cases import CELLS
from benchmarks.commands import end_to_end
from benchmarks.end_to_end import problems as end_to_end_problems
from benchmarks.end_to_end import workers as end_to_end_workers
from benchmarks.end_to_end.curves import Agreement, Curve, Reached, agreement, held_out_score
from benchmarks.end_to_end.problems import QUICK, make_problem

pytestmark = pytest.mark.ci


def missing(package):
    return pytest.mark.skipif(importlib.util.find_spec(package) is None, reason=f"{package} is not installed")


needs_torch, needs_sklearn = missing("torch"), missing("sklearn")
problems = pytest.mark.parametrize("name", ["adding", pytest.param("digits", marks=needs_sklearn)])


@pytest.fixture(autouse=True)
def _threads():
    """The sides set the number of threads for themselves."""
    before = elman.get_num_threads()
    yield
    elman.set_num_threads(before)


class Turns:
    """Gives the turn whenever it is asked for, and keeps what it is told."""

    def __init__(self):
        self.told = []

    def recv(self):
        return True

    def send(self, message):
        self.told.append(message)


def train(package, problem):
    """Losses by update, and the evaluations, of a whole training in this process."""
    side, turns = end_to_end_workers.SIDES[package](1), Turns()
    side.load(problem)
    lap = end_to_end_workers.Lap(side, problem, turns)
    lap.go()
    side.train(lap)
    return [loss for stint in turns.told for loss in stint.loss], turns.told


@needs_torch
@problems
@pytest.mark.parametrize("cell", CELLS)
def test_both_packages_learn_the_same(name, cell):
    problem = make_problem(name, cell, "float64", QUICK[name])
    (ours, evaluations), (theirs, others) = train("elman", problem), train("torch", problem)
    assert len(ours) == len(theirs) == QUICK[name].updates
    found = agreement(ours, theirs, 100)
    assert found.first < 1e-14
    assert found.largest < 1e-11
    assert len(set(ours)) == len(ours)  # it does learn
    for a, b in zip(evaluations, others, strict=True):
        assert a.held_out == pytest.approx(b.held_out, rel=1e-11)
        assert a.accuracy == b.accuracy
        assert len(a.seconds) == QUICK[name].every
        assert min(a.seconds) > 0


@needs_torch
def test_other_batches_or_weights_are_a_disagreement():
    problem = make_problem("adding", "GRU", "float64", QUICK["adding"])
    ours, _ = train("elman", problem)
    batches = problem.batches.copy()
    batches[3] = batches[4]
    theirs, _ = train("torch", problem._replace(batches=batches))
    with pytest.raises(end_to_end.Disagreement, match="differ by"):
        end_to_end.check_agreement(agreement(ours, theirs, 100), problem)
    # where only the first loss has to be the same, that is what is looked at
    single = problem._replace(x=problem.x.astype(np.float32))
    end_to_end.check_agreement(agreement(ours, theirs, 100), single)
    weights = problem.weights | {"readout.bias": problem.weights["readout.bias"] + 0.01}
    theirs, _ = train("torch", problem._replace(weights=weights))
    with pytest.raises(end_to_end.Disagreement, match="before any update"):
        end_to_end.check_agreement(agreement(ours, theirs, 100), single)


def test_a_loss_that_is_not_a_number_is_a_disagreement():
    problem = make_problem("adding", "RNN", "float64", QUICK["adding"])
    with pytest.raises(end_to_end.Disagreement):
        end_to_end.check_agreement(agreement([math.nan, 1.0], [1.0, 1.0], 2), problem)


def test_batches_are_those_that_fit_draws():
    settings = QUICK["adding"]
    problem, seen = make_problem("adding", "RNN", "float32", settings), []
    assert problem.batches.shape == (settings.updates, settings.batch_size)
    per_epoch = settings.samples // settings.batch_size
    np.testing.assert_array_equal(np.sort(problem.batches[:per_epoch].ravel()), np.arange(settings.samples))
    assert not np.array_equal(problem.batches[:per_epoch], problem.batches[per_epoch:])
    net = elman.Network(elman.RNN(2, 3, dtype="float32"), elman.Readout(3, 1, dtype="float32"), at="end")
    elman.fit(
        net, problem.x, problem.y, epochs=2, batch_size=settings.batch_size, rng=problem.seed, progress=False,
        callbacks=(lambda update: seen.append(update.samples.copy()),),
    )  # fmt: skip
    np.testing.assert_array_equal(seen, problem.batches)


def test_another_order_in_fit_is_noticed():
    problem = make_problem("adding", "RNN", "float32", QUICK["adding"])
    with pytest.raises(RuntimeError, match="another batch"):
        train("elman", problem._replace(seed=problem.seed + 1))


def test_sizes_that_leave_a_rest_are_refused():
    with pytest.raises(ValueError, match="divide the 10 samples"):
        end_to_end_problems.draw_batches(10, 3, 1, 0)
    with pytest.raises(ValueError, match="multiple of every = 5"):
        make_problem("adding", "RNN", "float32", QUICK["adding"]._replace(updates=12))


@problems
def test_data_are_split_once_and_dtypes_hold_the_same_numbers(name):
    single, double = (make_problem(name, "GRU", dtype, QUICK[name]) for dtype in ("float32", "float64"))
    assert (single.dtype, double.dtype) == ("float32", "float64")
    np.testing.assert_array_equal(single.x, double.x.astype(np.float32))
    np.testing.assert_array_equal(single.batches, double.batches)
    for key, weights in double.weights.items():
        np.testing.assert_array_equal(single.weights[key], weights.astype(np.float32))
    steps = {"adding": 200, "digits": 64}[name]
    assert double.x.shape[:2] == (steps, QUICK[name].samples)
    held = {tuple(sequence) for sequence in double.held_x.reshape(steps, -1, double.sizes[0])[:, :, 0].T}
    assert held.isdisjoint(tuple(sequence) for sequence in double.x[:, :, 0].T)
    assert double.x.min() >= 0
    assert double.x.max() <= 1


def test_time_to_a_loss_is_that_of_the_first_evaluation_below_it():
    # 4 updates of k seconds each in round k, and a loss that halves from evaluation to evaluation
    curve = Curve("x", 1.0, 4, [1.0] * 20, [k for k in range(1, 6) for _ in range(4)], [0.5**k for k in range(1, 6)])
    curve.accuracy = [0.1, 0.2, 0.3, 0.4, 0.5]
    np.testing.assert_array_equal(curve.elapsed, [4, 12, 24, 40, 60])
    assert curve.rounds == [1, 2, 3, 4, 5]
    assert curve.reached(0.2) == Reached(12, 24, 0.3)
    assert curve.reached(0.125) == Reached(16, 40, 0.4)  # strictly below
    assert curve.reached(0.5**5) is None


def test_agreement_of_known_curves():
    n, updates = 200, 30
    theirs = [2.0] * n
    ours = [2.0 * (1 + 1.5e-4 * t) for t in range(n)]
    found = agreement([*ours, 7.0], theirs, updates)  # what only one has does not count
    assert found.first == 0
    assert found.largest == pytest.approx(1.5e-4 * (updates - 1))
    assert found.updates == updates
    assert found.apart == 67  # 67 * 1.5e-4 = .01005
    # running means of 50 lie 24.5 updates after their start, of which there are 151
    assert found.smoothed == pytest.approx(1.5e-4 * (24.5 + 75))
    assert agreement([1.0], [2.0], 9) == Agreement(0.5, 0.5, 1, 0, None)


@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
def test_held_out_score_is_the_loss_that_was_trained(loss):
    rng = np.random.default_rng(0)
    output = 40 * rng.standard_normal((30, 4))
    target = rng.standard_normal((30, 4)) if loss == "mse" else rng.integers(0, 4, 30)
    value, accuracy = held_out_score(output, target, loss)
    assert value == pytest.approx(get_loss(loss).value_and_gradient(output, target)[0], rel=1e-12)
    assert accuracy == (None if loss == "mse" else np.mean(output.argmax(1) == target))


def known_run(name="adding", target=0.2):
    ours = Curve("elman 1", 5.0, 4, [1.0] * 8, [0.001] * 8, [0.3, 0.1], [None, None])
    theirs = Curve("torch 2", 0.5, 4, [1.0] * 8, [0.004] * 8, [0.1, 0.1], [None, None])
    return end_to_end.Run(name, "GRU", "float32", target, ours, theirs, agreement(ours.loss, theirs.loss, 100))


def test_row_of_the_table():
    row = end_to_end.row_of_times(known_run())
    assert row[3:9] == ["0.2", "8 / 4", "- / -", "0.00800", "0.0160", "2.00"]
    assert row[9:12] == ["1.00 (1.00-1.00)", "4.00 (4.00-4.00)", "4.00 (4.00-4.00)"]
    assert row[12:] == ["5.00", "0.500"]
    assert len(row) == len(end_to_end.TIMES)
    assert end_to_end.row_of_times(known_run(target=0.01))[4:9] == ["not reached / not reached", "- / -", "-", "-", "-"]
    classified = known_run()
    classified.ours.accuracy, classified.theirs.accuracy = [0.5, 0.9], [0.875, 0.9]
    assert end_to_end.row_of_times(classified)[5] == "90.0% / 87.5%"
    assert end_to_end.row_of_deviations(known_run())[3:] == ["0.0e+00", "0.0e+00 (8)", "not within 8", "-"]


def test_curves_go_to_json_and_into_a_picture(tmp_path):
    runs = [known_run(), known_run("digits")]
    again = json.loads(json.dumps([run.to_dict() for run in runs]))
    assert Curve(**again[0]["ours"]) == runs[0].ours
    assert Agreement(**again[0]["agreement"]) == runs[0].agreement
    end_to_end.plot(runs, tmp_path / "loss.png")
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")


@needs_torch
def test_two_processes_take_turns(capsys):
    options = end_to_end.arguments(["--quick", "--problem", "adding", "--cell", "RNN"])
    runs, checks = end_to_end.compare(options, None)
    text = end_to_end.report(runs, checks, end_to_end.describe(options, runs))
    assert [run.dtype for run in (*checks, *runs)] == ["float64", "float32"]
    assert checks[0].agreement.largest < 1e-6
    assert checks[0].agreement.updates == QUICK["adding"].updates
    assert runs[0].ours.first > 0
    assert len(runs[0].ours.held_out) == 2
    assert runs[0].ours.version in text
    assert capsys.readouterr().err == "adding, RNN ...\n"


def test_failure_of_a_process_is_told_with_its_traceback():
    problem = make_problem("adding", "RNN", "float32", QUICK["adding"])
    with (
        pytest.raises(RuntimeError, match=r"elman failed:[^$]*another batch"),
        end_to_end.Trainer("elman", 1, None) as trainer,
    ):
        trainer.send(problem._replace(seed=problem.seed + 1))
        trainer.receive()
