"""The main job on real data: forecast sunspots, compare honestly, predict the gradient and verify the prediction."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .datasets import sunspots, windows
from .diagnostics import Diagnosis, Verification, diagnose, spectrum
from .files import replacing
from .layers import RNN, Network, Readout
from .training import Adam, History, fit

Array = NDArray[Any]

WINDOW = 22
"""Years that a forecast may look at: two solar cycles."""
FIRST_TEST_YEAR = 1950
HIDDEN, EPOCHS = 16, 150


@dataclass(frozen=True)
class Series:
    """The sunspot series, standardised by its training years.

    Attributes
    ----------
    years, values : ndarray
        All years and sunspot numbers.
    z : ndarray
        ``(values - mean) / deviation``, with mean and deviation of the training years.
    split : int
        Index of the first test year.
    """

    years: Array
    values: Array
    z: Array
    mean: float
    deviation: float
    split: int

    def back(self, z: Array) -> Array:
        """Standardised numbers as sunspot numbers."""
        return z * self.deviation + self.mean

    def error(self, forecast: Array) -> float:
        """Root mean square error on the test years, in sunspot numbers."""
        return float(np.sqrt(np.mean((forecast - self.values[self.split :]) ** 2)))


def load() -> Series:
    """Read the bundled series and split it in time."""
    years, values = sunspots()
    split = int(np.searchsorted(years, FIRST_TEST_YEAR))
    mean, deviation = float(values[:split].mean()), float(values[:split].std())
    return Series(years, values, (values - mean) / deviation, mean, deviation, split)


def autoregression(series: Series) -> Array:
    """Forecasts of the test years by least squares on the same window: the linear model to beat."""
    from scipy.linalg import lstsq

    past = np.lib.stride_tricks.sliding_window_view(series.z, WINDOW)[:-1]
    design = np.column_stack([past, np.ones(len(past))])
    n = series.split - WINDOW
    coefficients = lstsq(design[:n], series.z[WINDOW : series.split])[0]
    return series.back(design[n:] @ coefficients)


def network_forecast(network: Network, series: Series) -> Array:
    """Forecasts of the test years by a network that reads the window before each."""
    output, _ = network(windows(series.z[series.split - WINDOW : -1], WINDOW, 1))
    return series.back(output[-1, :, 0])


def run(path: str | os.PathLike[str] = "elman-demo.png", *, progress: bool = True, rng: int = 0) -> dict[str, Any]:
    """Run the whole job, print its results and save its picture.

    Parameters
    ----------
    path : path-like
        Where the picture goes.
    progress : bool, default True
        Whether to show a bar while training.
    rng : int, default 0
        Seed of everything random.

    Returns
    -------
    dict
        ``errors`` (name to root mean square error in sunspot numbers), ``history``, ``before`` and ``after`` (each a pair
        of Diagnosis and Verification), ``network``.

    Raises
    ------
    MissingExtraError
        If matplotlib is missing.
    OSError
        If the picture cannot be written.
    """
    series = load()
    train_x = windows(series.z[: series.split - 1], WINDOW, 1)
    train_y = windows(series.z[1 : series.split], WINDOW, 1)
    network = Network(RNN(1, HIDDEN, rng=rng), Readout(HIDDEN, 1, rng=rng + 1))
    print(f"Yearly sunspot numbers: train 1700-{FIRST_TEST_YEAR - 1}, test {FIRST_TEST_YEAR}-{series.years[-1]}.")
    print(f"A tanh network of {HIDDEN} units forecasts the next year from {WINDOW}. The first run compiles its kernels.")
    before = examine(network, train_x, train_y, rng)
    history = fit(
        network, train_x, train_y, optimizer=Adam(3e-3), epochs=EPOCHS, progress=progress, rng=rng
    )
    print(f"\n{history}\n")
    forecasts = {
        "persistence": series.values[series.split - 1 : -1],
        f"linear AR({WINDOW})": autoregression(series),
        "Elman network": network_forecast(network, series),
    }
    errors = {name: series.error(forecast) for name, forecast in forecasts.items()}
    print(report(errors, len(series.values) - series.split))
    after = examine(network, train_x, train_y, rng)
    print("\nGRADIENTS BEFORE TRAINING: predicted, then measured on other windows")
    print(summary(*before))
    print("\nGRADIENTS AFTER TRAINING")
    print(f"{after[0]}\n{after[1]}")
    print(f"Windows start a year apart and overlap, so they are not independent: the intervals are somewhat too narrow.\n")
    save_picture(path, series, forecasts, network, train_x, after)
    print(f"picture: {os.fspath(path)}")
    return {"errors": errors, "history": history, "before": before, "after": after, "network": network}


def examine(network: Network, x: Array, y: Array, rng: int) -> tuple[Diagnosis, Verification]:
    """Predict the gradient, and measure it on windows that the prediction did not use."""
    diagnosis = diagnose(network, x, y, rng=rng)
    return diagnosis, diagnosis.verify()


def report(errors: dict[str, float], n: int) -> str:
    """Table of forecast errors, and who wins."""
    best = min(errors, key=errors.__getitem__)
    lines = [f"One-year forecasts of {n} test years, root mean square error in sunspot numbers:"]
    lines += [f"  {name:<16} {error:6.2f}{'   <- best' if name == best else ''}" for name, error in errors.items()]
    network, linear = errors["Elman network"], errors[f"linear AR({WINDOW})"]
    gap = abs(network / linear - 1)
    if gap < 0.05:
        lines.append(f"Network and linear model differ by {gap:.1%}: no winner between them on so few years.")
    else:
        winner = "network" if network < linear else "linear model"
        lines.append(f"The {winner} is {gap:.1%} better than the other.")
    return "\n".join(lines)


def summary(diagnosis: Diagnosis, verification: Verification) -> str:
    """Two lines about a diagnosis."""
    low, high = diagnosis.rate_ci
    agrees = "agrees with" if verification.agrees else "CONTRADICTS"
    return (
        f"  {diagnosis.verdict}; rate {diagnosis.rate:+.4f} nats/step (95 % [{low:+.4f}, {high:+.4f}]), "
        f"a factor {np.exp(diagnosis.rate):.4f} a step\n  the measured gradient {agrees} the prediction"
    )


def save_picture(
    path: str | os.PathLike[str], series: Series, forecasts: dict[str, Array], network: Network, x: Array,
    examined: tuple[Diagnosis, Verification],
) -> None:  # fmt: skip
    """Forecast, gradient by lag with prediction and measurement, and the spectra, in one picture."""
    from . import plotting

    figure, (top, left, right) = plotting.demo_figure()
    test = slice(series.split, None)
    plotting.plot_forecast(series.years[test], series.values[test], forecasts, ax=top)
    examined[0].plot(ax=left)
    examined[1].plot(ax=left)
    spectrum(network.layer.params["weight_hh_l0"]).plot(ax=right)
    plotting.plot_jacobian_spectrum(network.linearize(x[:, -1]), ax=right)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=130)


__all__ = ["History", "run"]
