"""The benchmark of predictions measures what it says: closed forms, independent twins, data that are kept apart."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest

import elman
from elman.errors import NonFiniteError

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.commands import gradient_prediction
from benchmarks.prediction import data as prediction_data
from benchmarks.prediction import predictors as prediction_predictors
from benchmarks.prediction import scores as prediction_scores
from benchmarks.prediction import table as prediction_table
from benchmarks.prediction.networks import CELLS, INITS, Snapshot, Spec, full_population, quick_population, snapshots

LINEAR = Spec("linear", "orthogonal 0.9", "iid .3", 8, 30)
RATE = math.log(0.9)


@pytest.fixture(scope="module")
def linear():
    """Record of a network whose gradients shrink by a factor of exactly .9 a step."""
    return prediction_predictors.record(next(snapshots(LINEAR)))


def test_every_predictor_knows_a_scaled_rotation(linear):
    assert linear["truth"]["rate"] == pytest.approx(RATE, abs=1e-12)
    assert linear["loss truth"]["end"] == pytest.approx(30 * RATE, abs=1e-11)
    expected = {
        "log radius of J at rest",
        "log radius of W",
        "log norm of W",
        "mean log Frobenius norm of J",
        "mean field",
    }
    expected |= {"Lyapunov exponent", "log radius of the mean J", "weights", "weights N(0,1)", "forward 16x2"}
    assert set(linear["predictions"]) == expected | {"full 8x1", "full 16x4"}
    for name, figures in linear["predictions"].items():
        assert figures["rate"] == pytest.approx(RATE, abs=1e-10), name
        assert figures["end"] == pytest.approx(30 * RATE, abs=1e-9), name
    for figures in linear["loss predictions"].values():
        assert figures["far"] == pytest.approx(30 * RATE, abs=1e-9)


def test_intervals_without_spread_hold_what_differs_by_rounding(linear):
    for row in linear["intervals"].values():
        assert row == {"end": True, "rate": True, "single": 1.0, "normalised": None}
    assert linear["doubling"] == {"verdict": "stable", "n": 8}
    assert linear["near"]["tried"] == linear["near"]["decided"] == 4
    assert linear["near"]["wrong"] == 0


def test_bounds_are_met_and_counted(linear):
    vectors = 30 * prediction_predictors.MEASURED * prediction_predictors.VECTORS
    assert linear["bounds"] == {"checked": vectors + 2 * 31 * prediction_predictors.VECTORS, "outside": 0}


def test_a_gradient_beyond_its_bound_is_seen():
    snapshot = next(snapshots(Spec("tanh", "gaussian 1.5", "iid 1", 8, 30)))
    data = snapshot.spec.draw(4, np.random.default_rng(0))
    truth = prediction_predictors.measure(snapshot, data, np.random.default_rng(1))
    assert prediction_predictors.bounds(snapshot, data, truth)["outside"] == 0
    truth.random.logs[-1, 0, 0] += 100
    assert prediction_predictors.bounds(snapshot, data, truth)["outside"] == 2  # a priori, and along the trajectory
    truth.random.logs[-1, 0, 0] -= 1000
    assert prediction_predictors.bounds(snapshot, data, truth)["outside"] == 1


def test_measured_gradient_is_that_of_a_plain_chain():
    spec = Spec("tanh", "gaussian 1.5", "order", 6, 20)
    snapshot = next(snapshots(spec))
    data, p = spec.draw(3, np.random.default_rng(0)), snapshot.net.params
    truth = prediction_predictors.measure(snapshot, data, np.random.default_rng(1))
    assert truth.gap < 1e-12
    W, h = p["layer.weight_hh_l0"], np.zeros((3, 6))
    states = [h := np.tanh(x @ p["layer.weight_ih_l0"].T + h @ W.T) for x in data.x]
    logits = h @ p["readout.weight"].T + p["readout.bias"]
    softmax = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    g = (softmax - np.eye(4)[data.y]) @ p["readout.weight"]
    size = [np.linalg.norm(g, axis=1)]
    for state in states[::-1]:
        g = (g * (1 - state**2)) @ W
        size.append(np.linalg.norm(g, axis=1))
    expected = np.log(size / size[0])
    np.testing.assert_allclose(truth.loss.logs[..., 0], expected, rtol=0, atol=1e-11)


def test_recurrent_matrix_is_that_of_the_candidate():
    gru = next(snapshots(Spec("GRU", "gaussian 2", "iid 1", 7, 20)))
    J = gru.net.linearize(np.zeros((1, 1, 3))).jacobian(0)
    np.testing.assert_allclose(J, np.eye(7) / 2 + prediction_predictors.recurrent_matrix(gru) / 4, atol=1e-12)
    lstm = next(snapshots(Spec("LSTM", "gaussian 2", "iid 1", 7, 20, forget_bias=3.0)))
    found = np.linalg.eigvals(lstm.net.linearize(np.zeros((1, 1, 3))).jacobian(0))
    mu = np.linalg.eigvals(prediction_predictors.recurrent_matrix(lstm))
    expected = 1 / (1 + math.exp(-3)) + mu / 4
    for value in expected:
        assert abs(found - value).min() < 1e-6


def test_predictors_never_see_the_measured_sequences(monkeypatch):
    spec = Spec("tanh", "uniform", "AR(1)", 8, 20)
    drawn = []

    def draw(self, n, rng):
        data = original(self, n, rng)
        drawn.append(data.x)
        return data

    original = Spec.draw
    monkeypatch.setattr(Spec, "draw", draw)
    prediction_predictors.record(next(snapshots(spec)))
    assert [x.shape[1] for x in drawn[:2]] == [prediction_predictors.MEASURED, prediction_predictors.POOL]
    every = np.concatenate(drawn, axis=1)[:, :, 0].T
    assert len(np.unique(every, axis=0)) == len(every)


def test_a_stream_that_overflows_has_no_exponent():
    snapshot = next(snapshots(Spec("linear", "gaussian 3", "iid 1", 8, 40)))
    snapshot.net.params["layer.weight_hh_l0"][...] *= 3
    record = prediction_predictors.record(snapshot)
    assert record["predictions"]["Lyapunov exponent"]["rate"] == math.inf
    assert prediction_scores.score([record], "Lyapunov exponent").silent == 1
    assert prediction_scores.score([record], "full 16x4").slope < 0.05


def test_a_dead_gradient_is_told_and_not_scored():
    snapshot = next(snapshots(Spec("relu", "gaussian 1", "iid .3", 8, 20)))
    snapshot.net.params["layer.bias_ih_l0"][...] = -100
    record = prediction_predictors.record(snapshot)
    assert record["dead"] == 1.0
    assert prediction_scores.scored([record]) == []
    assert "1 where the gradient is exactly zero" in prediction_table.population([record])


def of(rate, T=50):
    return prediction_predictors.of_rate(rate, T)


def test_score():
    pairs = [(-0.1, -0.12), (0.0, 0.01), (0.3, 0.05), (-math.inf, -0.2)]
    records = [{"predictions": {"p": of(p)}, "truth": of(t)} for p, t in pairs]
    score = prediction_scores.score(records, "p")
    assert (score.n, score.silent) == (4, 1)
    assert score.slope == pytest.approx((0.02 + 0.01 + 0.25) / 3)
    assert score.slope_p95 == pytest.approx(np.quantile([0.02, 0.01, 0.25], 0.95))
    assert score.decades == pytest.approx(50 * score.slope / math.log(10))
    assert score.verdicts == 0.75  # 15 nats are not 2.5; -inf vanishes as -10 does
    assert prediction_scores.score(records, "q") is None


def test_coverage_and_decisions():
    errors = [0.5, -1.5, 1.0, None]
    rows = [
        {"end": i > 0, "rate": i > 1, "single": 0.9 + i / 100, "normalised": error} for i, error in enumerate(errors)
    ]
    records = [{"intervals": {"p": row}} for row in rows]
    covered = prediction_scores.coverage(records, "p")
    assert (covered.n, covered.end, covered.rate) == (4, 0.75, 0.5)
    assert covered.single == pytest.approx(0.915)
    assert covered.mean == pytest.approx(0.0)
    assert covered.sd == pytest.approx(np.std(errors[:3], ddof=1))
    said = [("vanishing", -0.2), ("vanishing", 0.0), ("undecided", 0.1), ("exploding", 0.2)]
    records = [{"doubling": {"verdict": v, "n": 8 * (i + 1)}, "truth": of(r)} for i, (v, r) in enumerate(said)]
    decisions = prediction_scores.decisions(records)
    assert (decisions.n, decisions.decided, decisions.sequences) == (4, 0.75, 20)
    assert decisions.right == pytest.approx(2 / 3)


def test_initialisations():
    rng, n = np.random.default_rng(0), 64
    sparse = INITS["sparse"]((n, n), rng)
    assert (np.count_nonzero(sparse, axis=1) == 15).all()
    assert abs(np.linalg.eigvals(sparse)).max() == pytest.approx(0.95)
    assert np.linalg.matrix_rank(INITS["low rank"]((n, n), rng)) == n // 8
    spectrum = elman.spectrum(INITS["non-normal"]((n, n), rng))
    assert spectrum.departure_from_normality > 0.5 * np.sqrt(n / 2)
    low = INITS["orthogonal 1.1"]((n, n), rng)
    np.testing.assert_allclose(low @ low.T, 1.21 * np.eye(n), atol=1e-12)


def test_chaotic_series():
    rng = np.random.default_rng(0)
    lorenz, mackey_glass = prediction_data.lorenz(200, 50, rng), prediction_data.mackey_glass(200, 50, rng)
    for series in (lorenz, mackey_glass):
        assert abs(series.mean()) < 0.15
        assert series.std() == pytest.approx(1, abs=0.1)
        gap = abs(series[:, 1:] - series[:, :1]).max(axis=0)
        assert gap.min() > 0.1  # no two trajectories are one
    assert np.sign(lorenz).mean(axis=0).std() > 0.1  # both wings are visited
    x, y = prediction_data.SOURCES["Lorenz"].draw(40, 3, rng)
    np.testing.assert_array_equal(y[: -prediction_data.LEAD], x[prediction_data.LEAD :])


def test_correlated_noise():
    x, _ = prediction_data.SOURCES["AR(1)"].draw(300, 400, np.random.default_rng(0))
    assert x.std() == pytest.approx(1, abs=0.02)
    assert np.mean(x[1:] * x[:-1]) == pytest.approx(prediction_data.AR, abs=0.02)


def test_some_sequences_of_data():
    h = np.arange(5.0).reshape(1, 5, 1)
    data = prediction_data.Data(np.arange(10.0).reshape(2, 5, 1), np.arange(5), (h, -h), False)[1:3]
    np.testing.assert_array_equal(data.x[:, :, 0], [[1, 2], [6, 7]])
    np.testing.assert_array_equal(data.y, [1, 2])
    np.testing.assert_array_equal(data.h0[1][0, :, 0], [-1, -2])
    every = prediction_data.Data(data.x, data.x, None, True)[:1]
    assert every.y.shape == (2, 1, 1)


def test_full_population_is_wide_enough():
    specs = full_population()
    assert len({spec.name for spec in specs}) == len(specs)
    assert len(specs) >= 300
    assert sum(len(spec.phases) - 1 for spec in specs) >= 300
    assert {spec.cell for spec in specs} == set(CELLS)
    for cell in CELLS:
        some = [spec for spec in specs if spec.cell == cell]
        assert {spec.init for spec in some} == set(INITS)
        assert {spec.source for spec in some} == set(prediction_data.SOURCES)
    assert {32, 64, 128, 512} == {spec.N for spec in specs}
    assert {40, 50, 100, 200, 1000} == {spec.T for spec in specs}
    assert {spec.cell for spec in quick_population()} == set(CELLS)


def test_training_gives_three_different_networks():
    start, middle, end = snapshots(Spec("tanh", "orthogonal 1", "adding", 8, 20, updates=48))
    assert [s.phase for s in (start, middle, end)] == ["start", "middle", "end"]
    assert 0 == start.change < middle.change < end.change
    assert end.loss_ratio < 1
    assert not np.array_equal(start.net.theta, end.net.theta)


TRAINED = Spec("tanh", "orthogonal 1", "adding", 8, 20, updates=48)


def test_a_run_goes_on_where_it_stopped(tmp_path, monkeypatch, capsys):
    file = tmp_path / "records.jsonl"

    def interrupt(snapshot):
        if snapshot.phase == "end":
            raise KeyboardInterrupt
        return {"name": snapshot.spec.name, "phase": snapshot.phase}

    monkeypatch.setattr(gradient_prediction, "record", interrupt)
    records = gradient_prediction.run([LINEAR, TRAINED], file, progress=False)
    assert [r["phase"] for r in records] == ["start", "start", "middle"]
    assert "interrupted after 3" in capsys.readouterr().err
    with file.open("a") as stream:
        stream.write('\n{"name": "cut o')
    made = []
    monkeypatch.setattr(
        gradient_prediction, "record", lambda s: made.append(s) or {"name": s.spec.name, "phase": s.phase}
    )
    records = gradient_prediction.run([LINEAR, TRAINED], file, progress=False)
    assert [s.phase for s in made] == ["end"]
    assert len(records) == 4
    assert "cut off" in capsys.readouterr().err
    assert len(gradient_prediction.load(file)) == 4


def test_an_overflow_is_a_result(monkeypatch):
    def explode(spec):
        yield Snapshot(spec, "start", spec.build())
        raise NonFiniteError("the loss is not finite", what="loss")

    monkeypatch.setattr(gradient_prediction, "snapshots", explode)
    monkeypatch.setattr(gradient_prediction, "record", lambda s: {"name": s.spec.name, "phase": s.phase})
    records = gradient_prediction.run([TRAINED], progress=False)
    assert ["failed" in r for r in records] == [False, True, True]
    assert "2 that overflow" in prediction_table.population(records)


def test_report_shows_every_table(linear):
    trained = [prediction_predictors.record(s) for s in snapshots(TRAINED)]
    text = prediction_table.report([linear, *trained])
    assert "- untrained: 2; " in text
    assert "- trained: 2; " in text
    for title in ("Targets", "Predictors and baselines", "Gradient of the loss", "Groups", "Largest errors"):
        assert f"## {title}" in text
    for name in (*prediction_table.PREDICTORS, *prediction_table.BASELINES):
        assert f"| {name} " in text
    json.dumps(trained)


def test_a_broken_bound_ends_the_command(monkeypatch, tmp_path, linear):
    broken = linear | {"bounds": {"checked": 10, "outside": 1}}
    monkeypatch.setattr(sys, "argv", ["gradient_prediction.py", "--output", str(tmp_path / "tables.md")])
    monkeypatch.setattr(gradient_prediction, "run", lambda *_: [linear])
    before = elman.get_num_threads()
    try:
        gradient_prediction.main()
        assert "## Targets" in (tmp_path / "tables.md").read_text()
        monkeypatch.setattr(gradient_prediction, "run", lambda *_: [broken])
        with pytest.raises(SystemExit, match="outside their bounds"):
            gradient_prediction.main()
    finally:
        elman.set_num_threads(before)
