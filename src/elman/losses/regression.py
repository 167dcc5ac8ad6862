"""Losses of real numbers: the entries of a target beside the channels of the output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ArgumentError, DTypeError, ShapeError
from ..kernels.exponential import exp, log
from ..kernels.squares import sum_of_squares
from ..kernels.subnormal import flushed
from ..targets import NAMED
from ..validation.arrays import in_place, plain, real_numbers
from ..validation.scalars import flag, real
from .means import checked_weight, reduced, where_counted

Array = NDArray[Any]


class EntryLoss:
    """A loss that compares each entry of the output with one of the target, which has the same shape.

    A class says in ``entries`` what the loss of an entry is.
    """

    target_axes = NAMED["mse"]
    takes_weight = True
    name = "mse"

    def entries(self, output: Array, target: Array) -> tuple[Array, Array]:
        """Loss of each entry and its derivative by the output, both new arrays of the output's shape and dtype."""
        raise NotImplementedError

    def target_shape(self, output_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the target of an output."""
        return output_shape

    def check_target(self, target: Array, output_shape: tuple[int, ...]) -> None:
        """Refuse targets that are not real numbers in the shape of the output.

        Parameters
        ----------
        target : ndarray
            Must be of a floating dtype: whole numbers are nearly always classes, which have no distances.
        output_shape : tuple of int
            Shape of the output.

        Raises
        ------
        DTypeError, ShapeError
            If the dtype or shape is another.
        """
        if target.dtype.kind != "f":
            raise DTypeError(
                f"y must hold real numbers (a floating dtype) for the {self.name} loss, got {target.dtype}: for "
                'classes use loss="cross_entropy", for whole numbers that are measurements pass y.astype(float)'
            )
        wanted = self.target_shape(output_shape)
        if target.shape != wanted:
            cure = ": add the axis of channels, y[..., None]" if (*target.shape, 1) == wanted else ""
            raise ShapeError(
                f"y must have the shape {'of the output ' if wanted == output_shape else ''}{wanted} for the "
                f"{self.name} loss, got {target.shape}{cure}"
            )

    @flushed
    def value_and_gradient(self, output: Array, target: Array, weight: ArrayLike | None = None) -> tuple[float, Array]:
        """The loss and its derivative by the output.

        Parameters
        ----------
        output : ndarray, shape (..., Q), float32 or float64
            Output of the network.
        target : ndarray, floating
            What it should be, in the shape that :meth:`target_shape` gives.
        weight : array_like, shape (...), optional
            How much each position counts, at least 0; equally by default. Where it is 0, the target may be NaN.

        Returns
        -------
        value : float
            Weighted mean over positions of the mean over entries, summed in float64; 0 without any weight. It is inf
            or NaN, without a warning, if the output is.
        d_output : ndarray, shape (..., Q)
            Derivative, in the dtype of ``output``; exactly 0 where the weight is 0.

        Raises
        ------
        DTypeError, ShapeError, ArgumentError
            As :meth:`check_target`, and for a weight that is none; shapes are never broadcast.
        """
        output, target = in_place(output, "output"), plain(target, "target")
        w = None if weight is None else checked_weight(weight, output.shape[:-1])
        if w is not None and target.shape[:-1] == w.shape:
            target = where_counted(target, w)
        self.check_target(target, output.shape)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            losses, slopes = self.entries(output, target.astype(output.dtype, copy=False))
        return reduced(losses, slopes, w, output.shape[-1] if output.ndim else 1)


class MeanSquaredError(EntryLoss):
    """Mean of the squared differences over all entries, as ``torch.nn.MSELoss``; its name for ``fit`` is ``"mse"``."""

    def entries(self, output: Array, target: Array) -> tuple[Array, Array]:
        """``(o - y)**2`` in float64, and ``2 (o - y)``."""
        difference = output - target
        return np.square(difference, dtype=np.float64), 2.0 * difference

    @flushed
    def value_and_gradient(self, output: Array, target: Array, weight: ArrayLike | None = None) -> tuple[float, Array]:
        """As :meth:`EntryLoss.value_and_gradient`; the gradient is ``2 (output - target) / size`` without weights."""
        if weight is not None:
            return super().value_and_gradient(output, target, weight)
        output, target = in_place(output, "output"), plain(target, "target")
        self.check_target(target, output.shape)
        size = max(1, output.size)
        difference = np.subtract(output, target, dtype=output.dtype)
        value = sum_of_squares(difference) / size
        difference *= 2.0 / size
        return value, difference


class MeanAbsoluteError(EntryLoss):
    """Mean of the absolute differences, as ``torch.nn.L1Loss``; its name is ``"mae"``. The slope at 0 is 0."""

    name = "mae"

    def entries(self, output: Array, target: Array) -> tuple[Array, Array]:
        """``|o - y|`` and its sign."""
        difference = output - target
        return np.abs(difference), np.sign(difference)


class Huber(EntryLoss):
    """Squares near 0 and absolute differences beyond ``delta``, as ``torch.nn.HuberLoss``; its name is ``"huber"``.

    Parameters
    ----------
    delta : float, default 1.0
        Difference up to which an entry's loss is half its square; above 0, in the units of the target.

    References
    ----------
    P. J. Huber, Robust estimation of a location parameter, Annals of Mathematical Statistics 35 (1964) 73.
    """

    name = "huber"

    def __init__(self, delta: float = 1.0) -> None:
        self.delta = real(delta, "delta")
        if not 0.0 < self.delta < np.inf:
            raise ArgumentError(f"delta must be above 0 and finite, got {delta!r}")

    def __repr__(self) -> str:
        return f"Huber(delta={self.delta:g})"

    def entries(self, output: Array, target: Array) -> tuple[Array, Array]:
        """``d**2 / 2`` or ``delta (|d| - delta / 2)``, and d within ``-delta .. delta``."""
        difference = output - target
        size = np.abs(difference)
        delta = output.dtype.type(self.delta)
        near = size <= delta
        # of a NaN neither holds, and it goes on
        losses = np.where(near, 0.5 * difference * difference, delta * (size - 0.5 * delta))
        return losses, np.clip(difference, -delta, delta)


class Quantile(EntryLoss):
    """The pinball loss, whose least value is at quantiles of the target; its name is ``"quantile"``.

    With several levels the output has a channel for each level of each channel of the target, the levels of a channel
    side by side: ``output[..., c * len(levels) + i]`` is level i of channel c. The slope at 0 is 0.

    Parameters
    ----------
    levels : float or sequence of float, default 0.5
        Between 0 and 1, ascending.

    References
    ----------
    R. Koenker and G. Bassett, Regression quantiles, Econometrica 46 (1978) 33.
    """

    name = "quantile"

    def __init__(self, levels: float | Sequence[float] = 0.5) -> None:
        given = np.atleast_1d(real_numbers(levels, "levels")).astype(np.float64)
        if given.ndim != 1 or not len(given) or not ((given > 0) & (given < 1)).all() or (np.diff(given) <= 0).any():
            raise ArgumentError(f"levels must lie between 0 and 1, in ascending order, got {levels!r}")
        self.levels = tuple(given.tolist())

    def __repr__(self) -> str:
        return f"Quantile({self.levels[0] if len(self.levels) == 1 else list(self.levels)})"

    def target_shape(self, output_shape: tuple[int, ...]) -> tuple[int, ...]:
        """One channel for each group of levels.

        Raises
        ------
        ShapeError
            If the channels of the output are no whole number of groups.
        """
        *positions, channels = output_shape
        if channels % len(self.levels):
            raise ShapeError(
                f"the output must have {len(self.levels)} channels, one for each level, for each channel of y; it has "
                f"{channels}"
            )
        return (*positions, channels // len(self.levels))

    def entries(self, output: Array, target: Array) -> tuple[Array, Array]:
        """``q e`` of a target above the output and ``(q - 1) e`` of one below, ``e = y - o``."""
        levels = np.tile(np.array(self.levels, output.dtype), target.shape[-1])
        error = np.repeat(target, len(self.levels), axis=-1) - output
        # of a NaN neither holds: the product carries it on
        share = np.where(error > 0, levels, levels - 1)
        return share * error, np.where(error == 0, output.dtype.type(0), -share)


class Poisson(EntryLoss):
    """Negative log-likelihood of counts whose log rate is the output; its name is ``"poisson"``.

    ``exp(o) - y o``, without the term of y alone, as ``torch.nn.PoissonNLLLoss``.

    Parameters
    ----------
    log_input : bool, default True
        False: the output is the rate itself, as of a model of the caller's own whose outputs are positive, and the
        loss is ``o - y log(o + 1e-8)``; it is NaN for an output of -1e-8 or less.
    """

    name = "poisson"

    def __init__(self, log_input: bool = True) -> None:
        self.log_input = flag(log_input, "log_input")

    def __repr__(self) -> str:
        return f"Poisson({'' if self.log_input else 'log_input=False'})"

    def check_target(self, target: Array, output_shape: tuple[int, ...]) -> None:
        """As :meth:`EntryLoss.check_target`; counts, which may be of an integer dtype, must not be negative.

        Raises
        ------
        DTypeError, ShapeError, ArgumentError
        """
        super().check_target(target.astype(float) if target.dtype.kind in "iu" else target, output_shape)
        if (target < 0).any():
            raise ArgumentError(f"y must hold counts, at least 0, for the poisson loss; its least is {target.min()}")

    def entries(self, output: Array, target: Array) -> tuple[Array, Array]:
        """``exp(o) - y o`` and ``exp(o) - y``; for rates ``o - y log(o + eps)`` and ``1 - y / (o + eps)``."""
        if not self.log_input:
            rate = output + output.dtype.type(1e-8)  # torch's eps: a rate of 0 with a count has a finite loss
            usable = (rate > 0) & np.isfinite(rate)
            logarithm = log(np.where(usable, rate, 1.0).astype(np.float64))
            losses = np.where(usable, output - target * logarithm, np.nan)
            return losses, (1 - target / rate).astype(output.dtype, copy=False)
        rate = exponential(output)
        return rate - target * output, rate - target


class NSE(EntryLoss):
    """One minus the Nash-Sutcliffe efficiency: squared differences over the variance of the target, by channel.

    Its name is ``"nse"``. The constant 1 is its value for a model that always says the mean.

    Parameters
    ----------
    std : array_like, shape (Q,), optional
        Standard deviation of each channel, above 0; by default that of the targets that :func:`elman.fit` is given, as
        :meth:`fitted_to` finds it. Held-out data are measured with the same.

    References
    ----------
    J. E. Nash and J. V. Sutcliffe, River flow forecasting through conceptual models, J. Hydrology 10 (1970) 282.
    """

    name = "nse"

    def __init__(self, std: ArrayLike | None = None) -> None:
        self.std = None if std is None else np.atleast_1d(real_numbers(std, "std")).astype(np.float64)
        if self.std is not None and not ((self.std > 0) & np.isfinite(self.std)).all():
            raise ArgumentError(f"std must be above 0 and finite, got {std!r}")

    def __repr__(self) -> str:
        return "NSE()" if self.std is None else f"NSE(std={self.std.tolist()})"

    def fitted_to(self, target: Array, weight: Array | None = None) -> NSE:
        """The loss with the standard deviations of these targets, if none were given.

        Parameters
        ----------
        target : ndarray, shape (..., Q)
        weight : ndarray, shape (...), optional

        Raises
        ------
        ArgumentError
            If a channel does not vary.
        """
        if self.std is not None:
            return self
        counted = target.reshape(-1, target.shape[-1]) if weight is None else target[np.asarray(weight) > 0]
        w = np.ones(len(counted)) if weight is None else np.asarray(weight)[np.asarray(weight) > 0]
        w = (w / max(float(w.sum()), np.finfo(float).tiny))[:, None]
        mean = (w * counted).sum(axis=0)
        std = np.sqrt((w * (counted - mean) ** 2).sum(axis=0))
        # the deviation of equal numbers may be above 0 by rounding
        varies = (std > 0) & (counted.max(axis=0, initial=-np.inf) > counted.min(axis=0, initial=np.inf))
        if not varies.all():
            raise ArgumentError(
                f"the nse loss divides by the variance of y, and channel {int(np.argmin(varies))} of it does not "
                'vary: give std=, or use loss="mse"'
            )
        return NSE(std)

    def entries(self, output: Array, target: Array) -> tuple[Array, Array]:
        """``((o - y) / std)**2``, and its derivative.

        Raises
        ------
        ArgumentError, ShapeError
            If there are no deviations, or not one for each channel.
        """
        if self.std is None:
            raise ArgumentError(
                "the nse loss needs the deviations of y, which fit alone takes from its data: elsewhere give "
                "loss=elman.losses.NSE().fitted_to(y), or NSE(std=...)"
            )
        if self.std.shape not in ((1,), output.shape[-1:]):
            raise ShapeError(f"std must have one number, or {output.shape[-1]} for the channels, got {len(self.std)}")
        scaled = (output - target) / self.std.astype(output.dtype)
        return np.square(scaled, dtype=np.float64), 2.0 * scaled / self.std.astype(output.dtype)


def exponential(x: Array) -> Array:
    """e**x of numbers of any sign; inf where it overflows."""
    small = exp(-np.abs(x))
    out: Array = np.where(x > 0, 1.0 / small, small)
    return out.astype(x.dtype, copy=False)
