"""Forecasts: what is known when, baselines in closed form, networks step by step, scores and intervals."""

from __future__ import annotations

import json

import numpy as np
import pytest

import elman
from elman import forecast
from elman.errors import ArgumentError, DTypeError, ShapeError
from elman.forecast import Autoregression, Scaler

RNG = np.random.default_rng(6)
SERIES = RNG.standard_normal((60, 2))


def test_a_split_keeps_the_gap_out_of_both():
    parts = forecast.split(SERIES, test=10, gap=3)
    assert np.array_equal(parts.past, SERIES[:47])
    assert np.array_equal(parts.test, SERIES[50:])
    assert parts.start == 50
    assert np.shares_memory(parts.past, SERIES)
    assert len(forecast.split(SERIES[:, 0], test=0.25).test) == 15
    for options, message in (({"test": 60}, "leave a past"), ({"test": 1.5}, "share"), ({"test": 5, "gap": -1}, "gap")):
        with pytest.raises(ArgumentError, match=message):
            forecast.split(SERIES, **options)
    with pytest.raises(ShapeError, match=r"\(n,\) or \(n, D\)"):
        forecast.split(np.zeros((2, 3, 4)), test=1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_scaler_knows_the_past_alone_and_comes_back(dtype):
    data = (SERIES * [2.0, 50.0] + [1.0, -300.0]).astype(dtype)
    past = data[:40].copy()
    past[3, 0] = np.nan
    scaler = Scaler().fit(past)
    np.testing.assert_allclose(scaler.mean, np.nanmean(past.astype(float), axis=0), rtol=1e-13)
    np.testing.assert_allclose(scaler.deviation, np.nanstd(past.astype(float), axis=0), rtol=1e-13)
    z = scaler.transform(data)
    assert z.dtype == dtype
    np.testing.assert_allclose(scaler.inverse(z), data, rtol=1e-5 if dtype == np.float32 else 1e-13)
    again = Scaler.from_dict(json.loads(json.dumps(scaler.to_dict())))
    assert np.array_equal(again.transform(data), z)
    assert Scaler.from_dict(Scaler().to_dict()).mean is None
    constant = Scaler().fit(np.full(5, 3.0))
    assert constant.transform([3.0, 4.0]).tolist() == [0.0, 1.0]
    windows = Scaler().fit(np.broadcast_to(data[:, None], (60, 4, 2)))
    np.testing.assert_allclose(windows.mean, data.astype(float).mean(axis=0), rtol=1e-12)


def test_a_scaler_is_saved_beside_a_network(tmp_path):
    net, scaler = elman.Network(elman.RNN(2, 3, rng=0), elman.Readout(3, 2, rng=0)), Scaler().fit(SERIES)
    elman.save(tmp_path / "m.safetensors", net, scaler=scaler)
    loaded = elman.load(tmp_path / "m.safetensors").scaler
    assert np.array_equal(loaded.transform(SERIES), scaler.transform(SERIES))


def test_scalers_refuse_what_they_do_not_know():
    with pytest.raises(ArgumentError, match="fitted on the past first"):
        Scaler().transform(SERIES)
    with pytest.raises(ShapeError, match="2 channels"):
        Scaler().fit(SERIES).transform(SERIES[:, :1])
    with pytest.raises(ArgumentError, match="finite"):
        Scaler().fit([np.nan, np.nan])
    with pytest.raises(DTypeError):
        Scaler().fit(["a"])


def test_baselines_are_what_they_say():
    origins = np.array([5, 12, 60])
    last = forecast.persistence(SERIES, origins, 3)
    assert last.shape == (3, 3, 2)
    for i, o in enumerate(origins):
        assert (last[i] == SERIES[o - 1]).all()
    wave = np.tile(np.arange(5.0), 12)
    assert np.array_equal(
        forecast.seasonal(wave, [10, 13], 12, 5)[..., 0], [[(o + k) % 5 for k in range(12)] for o in (10, 13)]
    )
    for call in (
        lambda: forecast.persistence(SERIES, [0], 1),
        lambda: forecast.seasonal(SERIES, [4], 1, 5),
        lambda: forecast.persistence(SERIES, [61], 1),
        lambda: forecast.actual(SERIES, [58], 3),
        lambda: forecast.persistence(SERIES, [5], 0),
    ):
        with pytest.raises(ArgumentError):
            call()
    with pytest.raises(DTypeError, match="origins must be integers"):
        forecast.persistence(SERIES, [1.5], 1)


def test_nothing_after_an_origin_is_read():
    changed = SERIES.copy()
    changed[30:] = np.nan
    model = Autoregression(3).fit(SERIES[:30])
    net = elman.Network(elman.GRU(2, 4, rng=0), elman.Readout(4, 2, rng=1))
    for make in (
        lambda s: forecast.persistence(s, [30], 4),
        lambda s: forecast.seasonal(s, [30], 4, 7),
        lambda s: model.forecast(s, [30], 4),
        lambda s: forecast.feedback(net, s, [30], 4, 8),
        lambda s: forecast.direct(net, s, [30], 1, 8),
    ):
        assert np.array_equal(make(SERIES), make(changed))


def test_autoregression_finds_the_process_and_feeds_back():
    a = np.array([0.5, -0.8])
    series = np.zeros((400, 1))
    series[:2] = 1.0
    for t in range(2, 400):
        series[t] = 3.0 + series[t - 1] * a[0] + series[t - 2] * a[1] + 0.1 * np.sin(0.37 * t**1.5)
    model = Autoregression(2).fit(series[:300])
    np.testing.assert_allclose(model.coefficients[0], [a[1], a[0], 3.0], atol=0.15)
    made = model.forecast(series, [300, 350], 3)
    b, c, constant = model.coefficients[0]
    for i, o in enumerate((300, 350)):
        known = [series[o - 2, 0], series[o - 1, 0]]
        for k in range(3):
            known.append(b * known[-2] + c * known[-1] + constant)
            assert made[i, k, 0] == pytest.approx(known[-1], rel=1e-12)
    both = (
        Autoregression(2)
        .fit(np.column_stack([series, 2 * series]))
        .forecast(np.column_stack([series, 2 * series]), [9], 2)
    )
    np.testing.assert_allclose(both[..., 1], 2 * both[..., 0], rtol=1e-9)
    with pytest.raises(ArgumentError, match="fitted on the past first"):
        Autoregression(2).forecast(series, [9], 1)
    with pytest.raises(ArgumentError, match="at least 9 steps"):
        Autoregression(4).fit(series[:8])
    with pytest.raises(ShapeError, match="1 channels"):
        model.forecast(SERIES, [9], 1)


@pytest.mark.parametrize("batch_first", [False, True])
def test_networks_forecast_by_feedback_and_at_once(batch_first):
    net = elman.Network(elman.LSTM(2, 5, batch_first=batch_first, rng=0), elman.Readout(5, 2, rng=1))
    made = forecast.feedback(net, SERIES, [20, 33], 3, 10)
    for i, o in enumerate((20, 33)):
        known = SERIES[o - 10 : o]
        for k in range(3):
            new = net(known)[0][-1]
            np.testing.assert_allclose(made[i, k], new, rtol=1e-12)
            known = np.concatenate([known, new[None]])
    for at in ("steps", "end"):
        wide = elman.Network(elman.RNN(2, 5, batch_first=batch_first, rng=0), elman.Readout(5, 6, rng=1), at=at)
        all_at_once = forecast.direct(wide, SERIES, [20, 33], 3, 10)
        assert all_at_once.shape == (2, 3, 2)
        output = wide(SERIES[23:33])[0]
        np.testing.assert_allclose(all_at_once[1].ravel(), output if at == "end" else output[-1], rtol=1e-12)
    with pytest.raises(ArgumentError, match="for each of 4 leads"):
        forecast.direct(wide, SERIES, [20], 4, 10)


def test_scores_by_lead_with_intervals_over_origins():
    origins = np.arange(20, 55)
    came = forecast.actual(SERIES, origins, 4)
    assert np.array_equal(came[3, 2], SERIES[25])
    guesses = {"zero": np.zeros_like(came), "right": came, "off by 2": came + 2}
    found = forecast.scores(came, guesses)
    np.testing.assert_allclose(found.rmse["zero"], np.sqrt(np.mean(came**2, axis=(0, 2))), rtol=1e-13)
    assert not found.rmse["right"].any()
    np.testing.assert_allclose(found.intervals["off by 2"], 2.0, rtol=1e-12)
    low, high = found.intervals["zero"].T
    assert (low < found.rmse["zero"]).all()
    assert (found.rmse["zero"] < high).all()
    assert str(forecast.scores(came, guesses)) == str(found)
    assert found.block == 4
    assert "zero" in str(found)
    assert str(found).count("\n") == 5
    with pytest.raises(ShapeError, match="shape of actual"):
        forecast.scores(came, {"x": came[:, :2]})
    with pytest.raises(DTypeError, match="mapping"):
        forecast.scores(came, came)


def test_intervals_cover_as_often_as_they_say():
    errors = np.random.default_rng(0).standard_normal((4000, 3)) * [1.0, 2.0, 5.0]
    half = forecast.conformal(errors[:2000], 0.9)
    np.testing.assert_allclose(half, 1.645 * np.array([1.0, 2.0, 5.0]), rtol=0.06)
    held = forecast.coverage(errors[2000:], np.zeros((2000, 3)), half)
    np.testing.assert_allclose(held, 0.9, atol=0.03)
    # a further error is as likely at each place among m: 9 of 10 are below the largest of 9
    assert forecast.conformal(np.arange(1.0, 10.0)[:, None], 0.9).tolist() == [9.0]
    assert forecast.conformal(np.ones((8, 1)), 0.9).tolist() == [np.inf]
    with pytest.raises(ArgumentError, match="between 0 and 1"):
        forecast.conformal(errors, 1.0)
    with pytest.raises(ShapeError, match="one shape"):
        forecast.coverage(errors, errors[:5], half)


def test_sunspots_end_to_end():
    """A network beats persistence on years that nothing of it has seen; its intervals hold about what they say."""
    _, numbers = elman.datasets.sunspots()
    parts = forecast.split(numbers, test=59)
    scaler = Scaler().fit(parts.past)
    z = scaler.transform(numbers[:, None])
    known = z[: parts.start]
    calibration = np.arange(parts.start - 40, parts.start - 3)
    x = elman.datasets.windows(known[: calibration[0]], length=45, stride=1)
    net = elman.Network(elman.RNN(1, 24, rng=0), elman.Readout(24, 1, rng=1))
    elman.fit(net, x[:-1], x[1:], epochs=60, optimizer=elman.Adam(3e-3), batch_size=16, progress=False, rng=0)
    origins = np.arange(parts.start, len(z) - 2)
    came = scaler.inverse(forecast.actual(z, origins, 3))
    made = scaler.inverse(forecast.feedback(net, z, origins, 3, 44))
    found = forecast.scores(came, {"network": made, "persistence": forecast.persistence(numbers, origins, 3)})
    assert (found.rmse["network"] < found.rmse["persistence"]).all()
    before = scaler.inverse(forecast.feedback(net, z, calibration, 3, 44))
    half = forecast.conformal(before - scaler.inverse(forecast.actual(z, calibration, 3)), 0.8)
    held = forecast.coverage(came, made, half)
    assert (held > 0.5).all()
