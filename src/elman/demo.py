"""The main job on real data: forecast sunspots, compare honestly, predict the gradient and verify the prediction."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from . import plotting
from .datasets import sunspots, windows
from .diagnostics import Diagnosis, Verification, diagnose, gradient_flow, spectrum
from .errors import MissingExtraError
from .files import shown
from .layers import RNN, Network, Readout
from .plotting.picture import check_picture, save_picture
from .training import Adam, EarlyStopping, History, fit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[Any]

WINDOW = 44
"""Years that a forecast may look at: four solar cycles."""
CLASSICAL_ORDER = 9
"""Order of the autoregression that is usual for this series."""
FIRST_VALIDATION_YEAR, FIRST_TEST_YEAR = 1910, 1950
HIDDEN, MOST_EPOCHS, PATIENCE = 32, 400, 40


@dataclass(frozen=True)
class Series:
    """The sunspot series, standardised by the years before the test.

    Attributes
    ----------
    years, values : ndarray
        All years and sunspot numbers.
    z : ndarray
        ``(values - mean) / deviation``, with mean and deviation of the years before the test.
    """

    years: Array
    values: Array
    z: Array
    mean: float
    deviation: float

    def at(self, year: int) -> int:
        """Index of a year."""
        return int(year - self.years[0])

    def windows_before(self, first: int, last: int) -> Array:
        """The windows (WINDOW, n, 1) whose next years are ``first`` .. ``last - 1``."""
        return windows(self.z[self.at(first) - WINDOW : self.at(last) - 1], WINDOW, 1)

    def back(self, z: Array) -> Array:
        """Convert standardised numbers to sunspot numbers."""
        return z * self.deviation + self.mean

    def error(self, forecast: Array) -> float:
        """Root mean square error on the test years, in sunspot numbers."""
        return float(np.sqrt(np.mean((forecast - self.values[self.at(FIRST_TEST_YEAR) :]) ** 2)))


def load() -> Series:
    """Read the bundled series."""
    years, values = sunspots()
    known = values[years < FIRST_TEST_YEAR]
    mean, deviation = float(known.mean()), float(known.std())
    return Series(years, values, (values - mean) / deviation, mean, deviation)


def train(network: Network, series: Series, progress: bool, rng: int) -> History:
    """Train on the years before the validation years, and return to the epoch with the best validation loss.

    Raises
    ------
    KeyboardInterrupt
        After Ctrl-C: half a training says nothing about the method.
    """
    z, split = series.z, series.at(FIRST_VALIDATION_YEAR)
    history = fit(
        network,
        windows(z[: split - 1], WINDOW, 1),
        windows(z[1:split], WINDOW, 1),
        optimizer=Adam(3e-3),
        epochs=MOST_EPOCHS,
        batch_size=16,
        validation=(
            series.windows_before(FIRST_VALIDATION_YEAR, FIRST_TEST_YEAR),
            z[split : series.at(FIRST_TEST_YEAR), None],
        ),
        callbacks=(EarlyStopping(PATIENCE),),
        progress=progress,
        rng=rng,
    )
    if history.interrupted:
        raise KeyboardInterrupt
    return history


def autoregression(series: Series, order: int) -> Array:
    """Forecasts of the test years from the ``order`` years before each, by least squares: the linear model to beat."""
    from scipy.linalg import lstsq

    past = np.lib.stride_tricks.sliding_window_view(series.z, order)[:-1]
    design = np.column_stack([past, np.ones(len(past))])
    known = series.at(FIRST_TEST_YEAR) - order
    coefficients = lstsq(design[:known], series.z[order:][:known])[0]
    return series.back(design[known:] @ coefficients)


def network_forecast(network: Network, series: Series) -> Array:
    """Forecasts of the test years by a network that reads the window before each."""
    output, _ = network(series.windows_before(FIRST_TEST_YEAR, int(series.years[-1]) + 1))
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
        ``errors`` (name to root mean square error in sunspot numbers), ``history``, ``before`` and ``after`` (each a
        pair of Diagnosis and Verification), ``network``.

    Raises
    ------
    MissingExtraError
        If matplotlib is missing.
    ArgumentError
        If the path has no ending of a picture. This and OSError are raised before the work begins.
    OSError
        If the picture cannot be written.
    KeyboardInterrupt
        After Ctrl-C, also during the training; there is no picture then.
    WriteError
        If the disk is full at the end.
    """
    check_picture(path, "the demo's picture")  # this and a missing matplotlib are reported before the work, not after
    figure = new_figure()
    series = load()
    test = slice(series.at(FIRST_TEST_YEAR), None)
    x, y = windows(series.z[:-1], WINDOW, 1), windows(series.z[1:], WINDOW, 1)
    network = Network(RNN(1, HIDDEN, rng=rng), Readout(HIDDEN, 1, rng=rng + 1))
    print(
        f"Yearly sunspot numbers: training {series.years[0]}-{FIRST_VALIDATION_YEAR - 1}, validation "
        f"-{FIRST_TEST_YEAR - 1}, test -{series.years[-1]}.\nA tanh network of {HIDDEN} units forecasts each next year "
        f"from the last {WINDOW}.\n"
        "The first run compiles its kernels, which takes a while; later ones find them on disk."
    )
    before = examine(network, x, y, rng)
    history = train(network, series, progress, rng)
    print(f"\n{history}\n  used are the parameters of the epoch with the best validation loss\n")
    forecasts = {
        "persistence": series.values[test.start - 1 : -1],
        f"linear AR({CLASSICAL_ORDER})": autoregression(series, CLASSICAL_ORDER),
        f"linear AR({WINDOW})": autoregression(series, WINDOW),
        "Elman network": network_forecast(network, series),
    }
    errors = {name: series.error(forecast) for name, forecast in forecasts.items()}
    print(report(errors, len(series.values) - test.start))
    after = examine(network, x, y, rng)
    print("\nGRADIENTS BEFORE TRAINING: predicted, then measured on other windows")
    print(summary(*before))
    print("\nGRADIENTS AFTER TRAINING")
    print(f"{after[0]}\n{after[1]}")
    print(
        "The windows are those of all years. They start a year apart and overlap, so they are not independent: the "
        "intervals are somewhat too narrow."
    )
    top, left, right = figure.subplot_mosaic([["forecast"] * 2, ["gradient", "spectrum"]]).values()
    plotting.plot_forecast(series.years[test], series.values[test], forecasts, ax=top, ylabel="yearly sunspot number")
    after[1].plot(ax=left)
    plotting.plot_bounds(gradient_flow(network.linearize(x[:, ::16]), bounds=True, rng=rng), ax=left)
    spectrum(network.layer.params["weight_hh_l0"]).plot(ax=right)
    plotting.plot_jacobian_spectrum(network.linearize(x[:, -1]), ax=right)
    save_picture(figure, path, dpi=120)
    print(f"\npicture: {shown(os.fspath(path))}")
    return {"errors": errors, "history": history, "before": before, "after": after, "network": network}


def new_figure() -> Figure:
    """An empty figure for the three panels.

    Raises
    ------
    MissingExtraError
        If matplotlib is missing.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plot", "the demo's picture") from error
    return Figure(figsize=(12, 10), layout="constrained")


def examine(network: Network, x: Array, y: Array, rng: int) -> tuple[Diagnosis, Verification]:
    """Predict the gradient, and measure it on windows that the prediction did not use."""
    diagnosis = diagnose(network, x, y, rng=rng)
    return diagnosis, diagnosis.verify()


def report(errors: dict[str, float], n: int) -> str:
    """Table of forecast errors, and which method wins."""
    best = min(errors, key=errors.__getitem__)
    lines = [f"One-year forecasts of {n} test years, root mean square error in sunspot numbers:"]
    lines += [f"  {name:<16} {error:6.2f}{'   <- best' if name == best else ''}" for name, error in errors.items()]
    rival = min((name for name in errors if name != "Elman network"), key=errors.__getitem__)
    gap = errors["Elman network"] / errors[rival] - 1
    lines.append(
        f"The linear models are fitted on all years before {FIRST_TEST_YEAR}; of the network, the last "
        f"{FIRST_TEST_YEAR - FIRST_VALIDATION_YEAR} of them choose the epoch only."
    )
    lines.append(
        f"The network's error is {abs(gap):.1%} {'larger' if gap > 0 else 'smaller'} than {rival}'s, the best other."
        + (" On so few years that decides nothing." if abs(gap) < 0.1 else "")
    )
    return "\n".join(lines)


def summary(diagnosis: Diagnosis, verification: Verification) -> str:
    """Two lines about a diagnosis."""
    low, high = diagnosis.rate_ci
    agrees = "agrees with" if verification.agrees else "CONTRADICTS"
    return (
        f"  {diagnosis.verdict}; rate {diagnosis.rate:+.4f} nats/step (95 % [{low:+.4f}, {high:+.4f}]), "
        f"a factor {np.exp(diagnosis.rate):.4f} a step\n  the measured gradient {agrees} the prediction"
    )
