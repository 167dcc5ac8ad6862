"""Gradient diagnostics while a network trains: a callback for :func:`elman.fit`."""

from __future__ import annotations

import math
import warnings
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .diagnostics.gradient.curve import THRESHOLD, GrowthCurve
from .diagnostics.gradient.growth import backward_growth, unit_vectors
from .diagnostics.gradient.intervals import interval_text
from .diagnostics.matrices import spectral_radius
from .errors import ArgumentError, DTypeError, NonFiniteError, ShapeError
from .kernels.activations import NONLINEARITIES
from .layers.recurrent import Recurrent
from .linearization import Linearization
from .results import Drawn
from .states import mapped
from .training import Update
from .validation.arrays import finite
from .validation.rng import generator
from .validation.scalars import positive, size
from .validation.sequences import is_list, side_by_side

Array = NDArray[Any]

_FLAT = 0.1  # fraction of the largest slope: a unit below it passes almost nothing


@dataclass(frozen=True)
class Reading:
    """What a monitor measured after one update.

    Attributes
    ----------
    step, epoch : int
        Number of the update, counted from 0 by the monitor, and epoch.
    loss, gradient_norm : float
        Loss and gradient norm of that update, the norm before clipping.
    verdict : str
        ``"vanishing"``, ``"stable"``, ``"exploding"`` or ``"undecided"`` over the sequence, at 99 %.
    rate, rate_low, rate_high : float
        Growth of gradients in nats per step with its 95 % interval; NaN if the states were not finite.
    horizon : float
        Lag at which 1e-3 of the gradient is left; infinite if there is none.
    n_steps : int
        Length of the sequences that were examined.
    radius : dict of str to float
        Spectral radius of W_hh by layer (``"l0"``), or of each gate's part by gate and layer (``"f_l0"``).
    saturation : float
        Fraction of units, or of gates, whose slope is below a tenth of the largest; NaN if the states were not finite,
        or no activation is known.
    log_norms : list of float
        Natural logarithm of the training gradient ``|dL/dh_{T-k}|`` for lags k = 0, 1, ...: mean over the batch where
        it is not zero, NaN where it is zero for all. Empty for a model that does not provide it.
    """

    step: int
    epoch: int
    loss: float
    gradient_norm: float
    verdict: str
    rate: float
    rate_low: float
    rate_high: float
    horizon: float
    n_steps: int
    radius: dict[str, float]
    saturation: float
    log_norms: list[float]


class Monitor(Drawn, picture="plot_monitor"):
    """Watch how far gradients reach while a network trains; give it to ``fit(..., callbacks=[monitor])``.

    Every ``every`` updates it pulls one random unit vector back along each of a few sequences, as
    :func:`elman.diagnose` does, and records what training itself computed: ``|dL/dh_t|`` at every step. By default
    this costs less than one update in a hundred, and less than 5 % of the training time together with the eigenvalues
    of W_hh; :attr:`cost` is the measured cost. It warns once, with the reason, when gradients vanish or explode over
    the sequences.

    Parameters
    ----------
    x : array_like, shape (T, n, D), or (n, T, D) for a batch-first model; or list of array_like, each (T, D); optional
        Sequences of one length to examine, the same each time. By default those in the batch of that update, from the
        state at which it started; if their lengths differ, the longest ones, cut to the shortest of these.
    every : int, default 100
        Updates from one reading to the next; there is always a reading at the first update.
    sequences : int, default 8
        Largest number of sequences to examine.
    threshold : float, default log(100)
        Growth in nats over a sequence that counts as vanishing or exploding.
    rng : None, int or numpy.random.Generator, default 0
        Draws the directions, the same for every reading of one batch size.

    Attributes
    ----------
    readings : list of Reading
        All readings. For a bidirectional layer, rate, verdict and horizon are those of the direction whose gradients
        reach farthest.
    warned : str or None
        The warning that was issued.

    Raises
    ------
    ArgumentError
        For numbers that are out of range or not finite; in training, for a model without a recurrent layer, and for
        sequences that restart if there is no ``x``.
    DTypeError, ShapeError
        If ``x`` is not an array of real numbers of that shape, or empty.
    """

    def __init__(
        self, x: Any = None, *, every: int = 100, sequences: int = 8, threshold: float = THRESHOLD, rng: Any = 0
    ) -> None:
        self.every = size(every, "every (updates between readings)", 1)
        self.sequences = size(sequences, "sequences")
        self.threshold = positive(threshold, "threshold", "nats (log(100) by default)")
        self.readings: list[Reading] = []
        self.warned: str | None = None
        self._listed = is_list(x)
        self._x = None if x is None else _sequences(x)
        self._seed = int(generator(rng).integers(2**63))
        self._seen = 0
        self._seconds = 0.0
        self._elapsed = self._last = 0.0
        self._step: float = math.inf  # of the previous call: within one fit, the next is larger

    def __call__(self, update: Update) -> None:
        """Take a reading if one is due; training continues in any case."""
        began, due = perf_counter(), self._seen % self.every == 0
        if update.step > self._step:  # else a new fit began, and the time before it is not training time
            self._elapsed += began - self._last
        if due:
            self.readings.append(self._read(update))
        self._last, self._step = perf_counter(), update.step
        # the first reading may load kernels, and its time says nothing about the others
        if self._seen:
            self._elapsed += self._last - began
            self._seconds += self._last - began if due else 0.0
        self._seen += 1
        if due:  # last, because a warning may be turned into an exception
            self._warn()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Continue in another process, which has a different clock."""
        self.__dict__.update(state)
        self._step = math.inf

    @property
    def cost(self) -> float:
        """Fraction of the training time since the first reading that later readings took; 0 before there are any."""
        return self._seconds / self._elapsed if self._elapsed > 0 else 0.0

    def _read(self, update: Update) -> Reading:
        """Examine the network as the update left it."""
        model: Any = update.model
        layer = getattr(model, "layer", model)
        if not isinstance(layer, Recurrent):
            raise ArgumentError(f"a Monitor watches a recurrent layer, and {type(model).__name__} has none")
        x, h0 = self._probe(update, layer)
        try:
            curve, n_steps = self._curve(layer, x, h0), int(np.shape(x)[layer.time_axis])
            saturation = _saturation(layer, x, h0)
            rate, (low, high), verdict, horizon = curve.rate, curve.rate_ci, curve.verdict, curve.horizon.steps
        except NonFiniteError:
            rate = low = high = saturation = horizon = math.nan
            verdict, n_steps = "undecided", int(np.shape(x)[layer.time_axis])
        return Reading(
            step=self._seen, epoch=update.epoch, loss=update.loss, gradient_norm=update.gradient_norm, verdict=verdict,
            rate=rate, rate_low=low, rate_high=high, horizon=horizon, n_steps=n_steps, radius=_radii(layer),
            saturation=saturation, log_norms=_log_norms(getattr(update.gradients, "state_norms", None)),
        )  # fmt: skip

    def _probe(self, update: Update, layer: Recurrent) -> tuple[Any, Any]:
        """Sequences to examine, and the state they start from."""
        x, state = (update.x, update.state) if self._x is None else (self._x, None)
        if self._listed and layer.batch_first:
            x = x.swapaxes(0, 1)
        options = update.options if self._x is None else {}
        if "reset" in options:
            raise ArgumentError(
                "a Monitor cannot follow sequences that restart (reset); give it sequences of one length to look at, "
                "Monitor(x)"
            )
        count = min(self.sequences, x.shape[layer.batch_axis])
        few = np.arange(count)
        if "lengths" in options:  # the longest ones, cut to the shortest of these
            few = np.argsort(-options["lengths"], kind="stable")[:count]
            x = np.take(x, np.arange(options["lengths"][few].min()), axis=layer.time_axis)
        return np.take(x, few, axis=layer.batch_axis), mapped(lambda h: np.take(h, few, axis=1), state)

    def _curve(self, layer: Recurrent, x: Any, h0: Any) -> GrowthCurve:
        """Growth of one random vector along each sequence; of two directions, in the one that reaches farthest."""
        if not layer.bidirectional:
            return self._chain(layer.linearize(x, h0))
        each = layer.one_way().values()
        curves = [self._chain(view.linearize(view.in_order(x), h0)) for view in each]
        return max(curves, key=lambda curve: float(curve.mean[-1]))

    def _chain(self, lin: Linearization) -> GrowthCurve:
        """Growth along one chain of steps."""
        rng = np.random.default_rng(self._seed)
        logs = backward_growth(lin, unit_vectors(rng, lin.n_sequences, 1, lin.state_size))
        return GrowthCurve(logs, "random", self.threshold)

    def _warn(self) -> None:
        """Warn once that gradients vanish or explode."""
        last = self.readings[-1]
        if self.warned is not None or last.verdict not in ("vanishing", "exploding"):
            return
        rate = f"{last.rate:+.4f} nats/step, {interval_text(last.rate_low, last.rate_high, 4)}"
        reach = f"1e-3 of them is left after {last.horizon:.3g} of {last.n_steps} steps"
        if last.verdict == "exploding":
            reach = f"over {last.n_steps} steps"
        elif last.horizon > last.n_steps:
            reach = f"a factor {math.exp(last.rate * last.n_steps):.2g} of them is left over the {last.n_steps} steps"
        elif math.isinf(last.rate):
            rate, reach = "all exactly zero", f"after {last.horizon:.3g} of {last.n_steps} steps; look for dead units"
        self.warned = (
            f"gradients are {last.verdict} at update {last.step}: {rate}, {reach}. diagnose(...).explain() tells why, "
            ".prescribe() what moves the rate"
        )
        warnings.warn(self.warned, RuntimeWarning, stacklevel=2)

    def __repr__(self) -> str:
        return f"<Monitor: {len(self.readings)} readings, every {self.every} updates, cost {self.cost:.1%}>"

    def __str__(self) -> str:
        if not self.readings:
            return "Monitor: no readings yet"
        first, last = self.readings[0], self.readings[-1]
        lines = [f"Monitor: {len(self.readings)} readings over {self._seen} updates, {self.cost:.1%} of the time"]
        if self.cost > 0.05:
            lines[0] += f" (more than 5 %: raise every = {self.every})"
        radii = [max(r.radius.values(), default=math.nan) for r in (first, last)]
        for name, a, b, unit in (
            ("rate", first.rate, last.rate, "nats/step"),
            ("horizon", first.horizon, last.horizon, f"steps (of {last.n_steps})"),
            ("radius", *radii, "largest of W_hh or its gates"),
            ("saturation", first.saturation, last.saturation, "share with less than a tenth of the slope"),
            ("gradient", first.gradient_norm, last.gradient_norm, "norm before clipping"),
            ("loss", first.loss, last.loss, ""),
        ):
            lines.append(f"  {name:<11}{a:.4g} -> {b:.4g} {unit}".rstrip())
        lines.append(f"  verdict    {first.verdict} -> {last.verdict}, threshold {self.threshold:.3g} nats")
        if self.warned is not None:
            lines.append(f"  warned     {self.warned}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Readings and cost as plain Python values."""
        return {
            "readings": [asdict(reading) for reading in self.readings],
            "every": self.every,
            "cost": self.cost,
            "warned": self.warned,
        }

    def plot(self, axes: Any = None) -> Any:
        """Draw the record on three axes; see :func:`elman.plotting.monitor.plot_monitor`."""
        return self._draw(axes)


def _sequences(x: Any) -> Array:
    """Sequences to examine, checked as far as possible without the layer."""
    try:
        array = side_by_side(x, "x", 1)
    except ShapeError:
        raise
    except ValueError as error:
        raise ShapeError("x must be one array: sequences of one length, with the same channels") from error
    if array.dtype.kind not in "fiu":
        raise DTypeError(f"x must be an array of real numbers (T, n, D), got {type(x).__name__} of {array.dtype}")
    if array.ndim != 3 or 0 in array.shape:
        raise ShapeError(
            "x must have shape (T, n, D), or (n, T, D) for a batch-first model, with at least one sequence, one step "
            f"and one channel; got shape {array.shape}"
        )
    finite(array, "x")
    return array


def _log_norms(norms: Array | None) -> list[float]:
    """Mean log norm by lag of gradients (directions, T, B), all layers together; NaN where all are zero."""
    if norms is None:
        return []
    total = np.hypot.reduce(norms, axis=0)[::-1]
    living = total > 0
    logs = np.log(np.where(living, total, 1.0)).sum(axis=1)
    count = living.sum(axis=1)
    out: list[float] = np.where(count > 0, logs / np.maximum(count, 1), np.nan).tolist()
    return out


def _radii(layer: Recurrent) -> dict[str, float]:
    """Spectral radius of each gate's recurrent matrix, multiplied by the projection if there is one."""
    gates = layer.stack.layouts[0].cell.gate_names
    only = f"{gates[0]}_" if len(gates) == 1 else ""
    radii = {name: spectral_radius(matrix.astype(np.float64)) for name, matrix in layer.recurrent_matrices.items()}
    return {name.removeprefix(only): radius for name, radius in radii.items()}


def _saturation(layer: Recurrent, x: Any, h0: Any) -> float:
    """Fraction of activations whose slope is below a tenth of the largest possible one."""
    trace = layer.trace(x, h0, training=False)
    layout = layer.stack.layouts[0]
    kinds = {gate.name: gate.nonlinearity or layout.variant for gate in layout.cell.gates}
    outputs = trace.gates
    if not layout.cell.stored:  # the state is the activation; a backward direction has its initial state last
        outputs = {name: h[:-1] if name.endswith("_reverse") else h[1:] for name, h in trace.states.items()}
    named = ((name.rsplit("_l", 1)[0], values) for name, values in outputs.items())
    flat = [(_slope(kinds[gate], values) < _FLAT).mean() for gate, values in named if kinds.get(gate) in NONLINEARITIES]
    return float(np.mean(flat)) if flat else math.nan


def _slope(kind: str, output: Array) -> Array:
    """Slope of a nonlinearity from its output, relative to the largest."""
    if kind == "tanh":
        return 1 - output**2
    if kind == "sigmoid":
        return 4 * output * (1 - output)
    return (output > 0).astype(output.dtype) if kind == "relu" else np.ones_like(output)
