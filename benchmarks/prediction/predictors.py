"""One snapshot: the gradient measured on sequences held out, and every prediction of it from other sequences."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

import elman
from elman.diagnostics.diagnosis.result import Diagnosis
from elman.diagnostics.diagnosis.verification import Comparison
from elman.diagnostics.gradient.bounds import norm_bound
from elman.diagnostics.gradient.curve import GrowthCurve
from elman.diagnostics.gradient.growth import backward_growth, unit_vectors
from elman.diagnostics.random_networks.theory import mean_field
from elman.errors import NonFiniteError

from ..cases import Array
from .data import SOURCES, Data
from .networks import ELMAN, Snapshot

MEASURED, VECTORS = 32, 8
POOL = 96  # sequences to predict from: 64 for a diagnosis that doubles, and the 32 that it keeps for itself
SHORT, REPORTED = 8, 16
THRESHOLD = math.log(100)
FAR = 100  # the lag at which the size of an error is told, if the sequence is as long
STREAM, WARMUP = 600, 50
BOUND_WORK = 4e7  # singular values cost T S^3
NEAR, NEAR_TRUTH, NEAR_REPEATS = 0.2, 1024, 2  # nats beside the threshold; sequences that say what is right
NEAR_SIZE, NEAR_LENGTH = 32, 50
ROUNDING = 16 * float(np.finfo(np.float64).eps)  # a step
IN_RANGE = 300.0  # nats within which an unscaled gradient in float64 keeps all its digits


def verdict(growth: float) -> str:
    """The side of the threshold on which a growth lies, without an interval."""
    return "vanishing" if growth < -THRESHOLD else "exploding" if growth > THRESHOLD else "stable"


def of_curve(curve: GrowthCurve) -> dict[str, Any]:
    """What of a curve is scored."""
    T = curve.n_steps
    return {"rate": curve.rate, "far": float(curve.mean[min(FAR, T)]), "end": float(curve.mean[T])}


def of_rate(rate: float, T: int) -> dict[str, Any]:
    """The same of a predictor that knows nothing but a rate."""
    return {"rate": rate, "far": rate * min(FAR, T), "end": rate * T}


@dataclass(frozen=True)
class Truth:
    """Measured growth from random vectors and from the loss, and how far two ways of measuring it differ (nats)."""

    random: GrowthCurve
    loss: GrowthCurve
    gap: float


def measure(snapshot: Snapshot, data: Data, rng: np.random.Generator) -> Truth:
    """Pull 8 random unit vectors and the loss gradient of each sequence back, in float64.

    Rescaled on the way, so that nothing leaves the range of numbers; the kernels of training, which do not rescale,
    must give the same wherever they keep their digits.
    """
    net, loss = snapshot.net, SOURCES[snapshot.spec.source].loss
    lin = net.linearize(data.x, data.h0)
    start = net.loss_start(data.x, data.y, loss=loss, h0=data.h0, lin=lin)
    vectors = unit_vectors(rng, lin.n_sequences, VECTORS, lin.state_size)
    logs = backward_growth(lin, np.concatenate([vectors, start[:, None]], axis=1))
    unscaled = net.measure_gradient(data.x, vectors[:, 0], data.h0)
    kept = abs(logs[..., 0]) < IN_RANGE
    gap = float(abs(unscaled[kept] - logs[..., 0][kept]).max(initial=0.0))
    random, of_loss = (GrowthCurve(part, "measured", THRESHOLD) for part in np.split(logs, [VECTORS], axis=2))
    return Truth(random, of_loss, gap)


def at_lags(curve: GrowthCurve, grid: Array | None) -> GrowthCurve:
    """A measured curve with straight lines between the lags at which a prediction was made."""
    return curve if grid is None else GrowthCurve.from_grid(grid, curve.logs[grid], curve.start, curve.threshold)


def intervals(predicted: GrowthCurve, truth: GrowthCurve) -> dict[str, Any]:
    """Whether the truth lies where the intervals say, at the last lag and as a rate; error in standard errors."""
    T = truth.n_steps
    comparison = Comparison(predicted, truth, np.array([T]), ROUNDING)
    low, high = comparison.rate_interval()
    rounding = ROUNDING * T
    inside = (predicted.single_low[T] - rounding <= truth.logs[T]) & (
        truth.logs[T] <= predicted.single_high[T] + rounding
    )
    variance = sum(float(np.var(c.slopes, ddof=1)) / len(c.slopes) for c in (predicted, truth) if len(c.slopes) > 1)
    error = predicted.rate - truth.rate
    return {
        "end": bool(comparison.inside[0]),
        "rate": bool(low <= truth.rate <= high),
        "single": float(inside.mean()),
        "normalised": error / math.sqrt(variance) if variance > ROUNDING**2 and math.isfinite(error) else None,
    }


def predict(snapshot: Snapshot, pool: Data, truth: Truth, rng: np.random.Generator) -> dict[str, Any]:
    """What diagnoses of every level say."""
    net, loss, T = snapshot.net, SOURCES[snapshot.spec.source].loss, snapshot.spec.T
    few, some, more = pool[:SHORT], pool[SHORT : SHORT + REPORTED], pool[SHORT + REPORTED : SHORT + 3 * REPORTED]

    def full(data: Data, vectors: int, labels: Array | None) -> Diagnosis:
        """Of all these sequences, where a diagnosis of a model would stop as soon as it is decided."""
        lin = net.linearize(data.x, data.h0)
        start = net.loss_start(data.x, labels, loss=loss, h0=data.h0, rng=rng, lin=lin)
        return elman.diagnose(lin, start=start, vectors=vectors, rng=rng)

    short, reported = full(few, 1, None), full(some, 4, some.y)
    readout = full(some, 1, None).loss
    forward = elman.diagnose(net, more.x, h0=more.h0, level="forward", max_sequences=REPORTED, rng=rng).curve
    declared = {"input_mean": pool.x.mean(axis=(0, 1)), "input_sd": pool.x.std(axis=(0, 1))}
    common = {"level": "weights", "length": T, "h0": pool.h0, "max_sequences": REPORTED}
    weights = elman.diagnose(net, **common, **declared, rng=rng)
    standard = elman.diagnose(net, **common, input_sd=1.0, rng=rng)
    doubling = elman.diagnose(net, pool.x, pool.y, h0=pool.h0, loss=loss, vectors=4, rng=rng)
    assert reported.loss is not None
    assert readout is not None
    return {
        "predictions": {
            "full 8x1": of_curve(short.curve),
            "full 16x4": of_curve(reported.curve),
            "forward 16x2": of_curve(forward),
            "weights": of_curve(weights.curve),
            "weights N(0,1)": of_curve(standard.curve),
        },
        "loss predictions": {
            "loss 16": of_curve(reported.loss),
            "readout 16": of_curve(readout),
            "random 16x4": of_curve(reported.curve),
        },
        "intervals": {
            "full 8x1": intervals(short.curve, truth.random),
            "full 16x4": intervals(reported.curve, truth.random),
            "forward 16x2": intervals(forward, at_lags(truth.random, forward.grid)),
            "loss 16": intervals(reported.loss, truth.loss),
        },
        "doubling": {"verdict": doubling.verdict, "n": doubling.curve.n},
    }  # fmt: skip


def recurrent_matrix(snapshot: Snapshot) -> Array:
    """W_hh; of a gated cell the part that makes the candidate, third of the LSTM (i, f, g, o) and GRU (r, z, n)."""
    W, N = snapshot.net.params["layer.weight_hh_l0"], snapshot.spec.N
    return W[2 * N : 3 * N] if len(W) > N else W


def mean_field_rate(snapshot: Snapshot, x: Array) -> float | None:
    """Of the Elman cells, from the size of the weights and the variance of what the input adds."""
    p, cell = snapshot.net.params, snapshot.spec.cell
    if cell not in ELMAN:
        return None
    W, bias = p["layer.weight_hh_l0"], p["layer.bias_ih_l0"] + p["layer.bias_hh_l0"]
    gain = float(np.linalg.norm(W)) / math.sqrt(len(W))
    driven = float((x @ p["layer.weight_ih_l0"].T).var())
    return mean_field(gain, driven, float(np.mean(bias**2)), ELMAN[cell]).rate


def baselines(snapshot: Snapshot, pool: Data, rng: np.random.Generator) -> dict[str, Any]:
    """What others predict from, as a rate that holds for every lag."""
    net, spec = snapshot.net, snapshot.spec
    spectrum = elman.spectrum(recurrent_matrix(snapshot))
    rest = net.linearize(np.zeros((1, 1, pool.x.shape[2])))
    lin = net.linearize(*((some := pool[:4]).x, some.h0))
    steps = np.unique(np.linspace(0, spec.T - 1, 20).round().astype(int))
    jacobians = np.array([lin.jacobian(t, i) for t in steps for i in range(lin.n_sequences)])
    norms = np.linalg.norm(jacobians, axis=(1, 2))
    rates = {
        "log radius of W": _log(spectrum.radius),
        "log norm of W": _log(spectrum.norm),
        "log radius of J at rest": _log(_radius(rest.jacobian(0))),
        "log radius of the mean J": _log(_radius(jacobians.mean(axis=0))),
        "mean log Frobenius norm of J": float(np.mean([_log(norm / math.sqrt(lin.state_size)) for norm in norms])),
    }
    field = mean_field_rate(snapshot, pool.x)
    if field is not None:
        rates["mean field"] = field
    out = {name: of_rate(rate, spec.T) for name, rate in rates.items()}
    out["Lyapunov exponent"] = of_rate(stream_exponent(snapshot, pool, rng), spec.T)
    return out


def stream_exponent(snapshot: Snapshot, pool: Data, rng: np.random.Generator) -> float:
    """Largest exponent along sequences one after the other, without a restart; infinite if the state overflows."""
    parts = pool.x[:, : -(-(STREAM + WARMUP) // snapshot.spec.T)].swapaxes(0, 1)
    stream = parts.reshape(-1, 1, pool.x.shape[2])[: STREAM + WARMUP]
    try:
        lin = snapshot.net.linearize(stream, pool[:1].h0)
    except NonFiniteError:
        return math.inf
    return float(elman.lyapunov_spectrum(lin, 1, warmup=WARMUP, rng=rng).exponents[0])


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


def _radius(matrix: Array) -> float:
    return float(abs(np.linalg.eigvals(matrix)).max())


def bounds(snapshot: Snapshot, data: Data, truth: Truth) -> dict[str, int]:
    """Lags and vectors checked against Pascanu's bounds, and how many of them lie outside by more than rounding."""
    logs, lin = truth.random.logs, snapshot.net.linearize(*((one := data[:1]).x, one.h0))
    T, factors = lin.n_steps, lin.factors
    slack = 1e-9 * (1 + np.arange(T + 1))
    checked = outside = 0
    if factors is not None:
        bound = norm_bound(factors) * np.arange(1, T + 1)
        outside += int((logs[1:] > (bound + slack[1:])[:, None, None]).sum())
        checked += logs[1:].size
    if T * lin.state_size**3 <= BOUND_WORK:
        flow = elman.gradient_flow(lin, vectors=1, bounds=True)
        assert flow.upper_bound is not None
        assert flow.lower_bound is not None
        upper, lower, own = flow.upper_bound + slack[:, None], flow.lower_bound - slack[:, None], logs[:, 0]
        outside += int((own > upper).sum() + (own < lower).sum())
        checked += 2 * own.size
    return {"checked": checked, "outside": outside}


def near_threshold(snapshot: Snapshot) -> dict[str, int]:
    """Verdicts of diagnoses whose threshold lies beside the growth of this very network, once on either side."""
    spec, net, rng = snapshot.spec, snapshot.net, snapshot.spec.generator(f"threshold, {snapshot.phase}")
    data = spec.draw(NEAR_TRUTH, rng)
    lin = net.linearize(data.x, data.h0)
    growth = float(backward_growth(lin, unit_vectors(rng, NEAR_TRUTH, 2, lin.state_size))[-1].mean())
    counts = dict.fromkeys(("tried", "decided", "wrong"), 0)
    for shift in (-NEAR, NEAR):
        threshold = abs(growth) + shift
        if threshold < 2 * NEAR:
            continue
        right = "stable" if shift > 0 else "vanishing" if growth < 0 else "exploding"
        for _ in range(NEAR_REPEATS):
            pool = spec.draw(POOL, rng)
            said = elman.diagnose(net, pool.x, h0=pool.h0, threshold=threshold, rng=rng).verdict
            counts["tried"] += 1
            counts["decided"] += said != "undecided"
            counts["wrong"] += said not in ("undecided", right)
    return counts


def record(snapshot: Snapshot) -> dict[str, Any]:
    """Everything about one snapshot in plain Python, ready for JSON; ``failed`` where it has no finite gradient."""
    spec, began = snapshot.spec, time.perf_counter()
    about = {
        "name": spec.name, "phase": snapshot.phase, "cell": spec.cell, "init": spec.init, "source": spec.source,
        "N": spec.N, "T": spec.T, "loss_ratio": snapshot.loss_ratio, "change": snapshot.change,
    }  # fmt: skip
    held_out = spec.draw(MEASURED, spec.generator(f"truth, {snapshot.phase}"))
    pool = spec.draw(POOL, spec.generator(f"prediction, {snapshot.phase}"))
    rng = spec.generator(f"vectors, {snapshot.phase}")
    try:
        truth = measure(snapshot, held_out, rng)
        measured = {
            "truth": of_curve(truth.random), "loss truth": of_curve(truth.loss), "gap": truth.gap,
            "error of the truth": float(truth.random.sd[-1]) / math.sqrt(MEASURED),
            "local rates": truth.random.local_rates()[1].tolist(), "bounds": bounds(snapshot, held_out, truth),
        }  # fmt: skip
        if truth.random.alive[-1] == MEASURED and truth.loss.alive[-1] == MEASURED:
            measured |= predict(snapshot, pool, truth, rng)
            measured["predictions"] |= baselines(snapshot, pool, rng)
            if spec.N <= NEAR_SIZE and spec.T <= NEAR_LENGTH:
                measured["near"] = near_threshold(snapshot)
        else:
            measured["dead"] = truth.random.dead_fraction
    except NonFiniteError as error:
        return about | {"failed": str(error)}
    return about | measured | {"seconds": time.perf_counter() - began}
