"""Schedules: the learning rate of each update.

A schedule is an object with ``lr(step, epoch, base_lr)``, a function of the counters alone, so that a resumed training
needs nothing beside them. One that looks at how the training goes also has ``observe(history)``, called after each
epoch, and ``state_dict`` and ``load_state_dict``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from ..errors import ArgumentError, DTypeError, StateDictError
from ..kernels.exponential import exp
from ..validation.scalars import at_least_zero, choice, integer, positive, real, size
from ..validation.words import kind
from .best import Best
from .history import History
from .optimizers import power

NAMES = ("step", "exponential", "cosine", "warm-up", "plateau")
"""Schedules that :func:`get_schedule` makes by name."""

_LN_100 = 4.605170185988092
# Taylor's coefficients of the sine up to t**19: the next term is below a rounding of 1 at t = pi / 2
_SINE = [(-1.0) ** k / math.factorial(2 * k + 1) for k in range(10)]


class Schedule(Protocol):
    """What training needs of a schedule."""

    def lr(self, step: int, epoch: int, base_lr: float) -> float:
        """Learning rate of an update.

        Parameters
        ----------
        step, epoch : int
            Updates and epochs that are complete.
        base_lr : float
            The learning rate that the optimizer began with.
        """
        ...


class StepDecay:
    """``base_lr factor**(epoch // every)``, as ``torch.optim.lr_scheduler.StepLR``.

    Parameters
    ----------
    every : int
        Epochs from one step to the next.
    factor : float, default 0.1
        What each step multiplies the learning rate by, positive.

    Raises
    ------
    ArgumentError, DTypeError
        If a value is out of range, or of another type.
    """

    def __init__(self, every: int, factor: float = 0.1) -> None:
        self.every, self.factor = size(every, "every"), positive(factor, "factor")

    def lr(self, step: int, epoch: int, base_lr: float) -> float:
        """Learning rate of an update; see :class:`Schedule`."""
        return base_lr * power(self.factor, epoch // self.every)

    def __repr__(self) -> str:
        return f"StepDecay({self.every}, factor={self.factor})"


class ExponentialDecay:
    """``base_lr factor**epoch``, as ``torch.optim.lr_scheduler.ExponentialLR``.

    Parameters
    ----------
    factor : float
        What each epoch multiplies the learning rate by, positive; such as 0.95.

    Raises
    ------
    ArgumentError, DTypeError
        If it is out of range, or of another type.
    """

    def __init__(self, factor: float) -> None:
        self.factor = positive(factor, "factor")

    def lr(self, step: int, epoch: int, base_lr: float) -> float:
        """Learning rate of an update; see :class:`Schedule`."""
        return base_lr * power(self.factor, epoch)

    def __repr__(self) -> str:
        return f"ExponentialDecay({self.factor})"


class Cosine:
    """Half a period of a cosine, from ``base_lr`` to ``lr_min``, as ``torch.optim.lr_scheduler.CosineAnnealingLR``.

    ``lr_min + (base_lr - lr_min) (1 + cos(pi epoch / epochs)) / 2`` (Loshchilov & Hutter 2017, without restarts).

    Parameters
    ----------
    epochs : int
        Length of the half period: the epochs of the whole training. Beyond, the rate stays that of the last of them.
    lr_min : float, default 0
        Where it ends, at least 0.

    Raises
    ------
    ArgumentError, DTypeError
        If a value is out of range, or of another type.
    """

    def __init__(self, epochs: int, lr_min: float = 0.0) -> None:
        self.epochs, self.lr_min = size(epochs, "epochs"), at_least_zero(lr_min, "lr_min")

    def lr(self, step: int, epoch: int, base_lr: float) -> float:
        """Learning rate of an update; see :class:`Schedule`."""
        share = (1.0 + _cosine_of_pi(min(epoch, self.epochs - 1) / self.epochs)) / 2.0
        return self.lr_min + (base_lr - self.lr_min) * share

    def __repr__(self) -> str:
        return f"Cosine({self.epochs}, lr_min={self.lr_min})"


class WarmUp:
    """From a small learning rate in equal steps to the full one; then another schedule, or that rate for good.

    Update ``step`` has the share ``(step + 1) / updates`` of the rate, until it is all of it (Goyal et al. 2017,
    section 2.2). The other schedule counts from the start of the training: the share multiplies its rate.

    Parameters
    ----------
    updates : int
        Updates until the full rate.
    then : Schedule, optional
        The rate that is warmed up to; ``base_lr`` by default.

    Raises
    ------
    ArgumentError, DTypeError
        If a value is out of range, or of another type.
    """

    def __init__(self, updates: int, then: Schedule | None = None) -> None:
        self.updates = size(updates, "updates")
        self.then: Any = None if then is None else _checked(then, "then")

    def lr(self, step: int, epoch: int, base_lr: float) -> float:
        """Learning rate of an update; see :class:`Schedule`."""
        full = base_lr if self.then is None else self.then.lr(step, epoch, base_lr)
        return full * min(1.0, (step + 1) / self.updates)

    def observe(self, history: History) -> None:
        """Tell the other schedule how the training goes, if it looks at that."""
        if hasattr(self.then, "observe"):
            self.then.observe(history)

    def state_dict(self) -> dict[str, Any]:
        """The state of the other schedule, if it has any."""
        return {"then": self.then.state_dict()} if hasattr(self.then, "state_dict") else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state_dict` returned.

        Raises
        ------
        StateDictError
            If it is of another kind of schedule.
        """
        if set(state) != set(self.state_dict()):
            raise StateDictError(f"the state must be that of {self!r}, got one with the keys {sorted(state)}")
        if hasattr(self.then, "load_state_dict"):
            self.then.load_state_dict(state["then"])

    def __repr__(self) -> str:
        return f"WarmUp({self.updates}{'' if self.then is None else f', then={self.then!r}'})"


class OnPlateau:
    """Lower the learning rate when a loss has stopped improving, as Keras's ``ReduceLROnPlateau``.

    After ``patience`` epochs in a row without a new best value the rate is multiplied by ``factor``, and the patience
    begins anew. PyTorch's scheduler of that name waits one epoch longer.

    Parameters
    ----------
    patience : int, default 10
        Epochs without improvement that are waited for.
    factor : float, default 0.1
        What the learning rate is multiplied by, above 0 and below 1.
    min_delta : float, default 0
        An improvement counts if it is larger than this.
    monitor : str, default "validation_loss"
        What is looked at; ``"loss"``, or a metric that is recorded in ``History.metrics``.
    lr_min : float, default 0
        The rate is not lowered below this.

    Attributes
    ----------
    scale : float
        What the learning rate is multiplied by at present.

    Raises
    ------
    ArgumentError, DTypeError
        If a value is out of range, or of another type.
    """

    def __init__(
        self,
        patience: int = 10,
        factor: float = 0.1,
        min_delta: float = 0.0,
        monitor: str = "validation_loss",
        lr_min: float = 0.0,
    ) -> None:
        self.patience, self.factor = size(patience, "patience"), positive(factor, "factor")
        if self.factor >= 1.0:
            raise ArgumentError(f"factor must lie in 0 < factor < 1, for the rate is lowered by it, got {factor}")
        self.lr_min, self.scale, self._waited = at_least_zero(lr_min, "lr_min"), 1.0, 0
        self._best = Best(monitor, min_delta)

    def lr(self, step: int, epoch: int, base_lr: float) -> float:
        """Learning rate of an update; see :class:`Schedule`."""
        scale = self.scale if epoch else 1.0  # before the end of an epoch nothing has been seen
        return max(base_lr * scale, min(self.lr_min, base_lr))

    def observe(self, history: History) -> None:
        """Look at the last epoch; the first one of a training begins anew.

        Raises
        ------
        ArgumentError
            If what is monitored is not recorded.
        """
        if history.epochs == 1:
            self.scale, self._waited = 1.0, 0
            self._best.forget()
        self._waited = 0 if self._best.improved(history) else self._waited + 1
        if self._waited >= self.patience:
            self.scale, self._waited = self.scale * self.factor, 0

    def state_dict(self) -> dict[str, Any]:
        """What has been seen so far, as plain values."""
        return {"scale": self.scale, "waited": self._waited, "best": self._best.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state_dict` returned; on any fault nothing changes.

        Raises
        ------
        StateDictError, DTypeError
            If it is not such a state.
        """
        if not isinstance(state, Mapping) or set(state) != {"scale", "waited", "best"}:
            raise StateDictError(f"the state of OnPlateau must have the keys scale, waited, best; got {kind(state)}")
        scale, waited = positive(state["scale"], "scale"), integer(state["waited"], "waited")
        self._best.load_state_dict(state["best"])
        self.scale, self._waited = scale, waited

    def __repr__(self) -> str:
        return f"OnPlateau({self.patience}, factor={self.factor}, monitor={self._best.monitor!r})"


def get_schedule(schedule: str | Schedule, epochs: int, updates: int) -> Schedule:
    """A schedule by its name, with values that suit a training of this length, or the object itself if it is one.

    Parameters
    ----------
    schedule : {"step", "exponential", "cosine", "warm-up", "plateau"} or Schedule
        ``"step"``: a tenth after each third of the epochs. ``"exponential"``: down to a hundredth over all epochs.
        ``"cosine"``: down to 0. ``"warm-up"``: up over the first tenth of the updates. ``"plateau"``: a tenth after 10
        epochs without a better validation loss.
    epochs, updates : int
        Of the whole training.

    Raises
    ------
    ArgumentError
        If the name is unknown.
    DTypeError
        If the object has no method ``lr``.
    """
    if not isinstance(schedule, str):
        return _checked(schedule, "schedule")
    epochs, updates = size(epochs, "epochs"), size(updates, "updates")
    name = choice(schedule, "schedule", NAMES)
    if name == "step":
        return StepDecay(-(-epochs // 3))
    if name == "exponential":
        return ExponentialDecay(float(exp(np.array([-_LN_100 / epochs]))[0]))
    if name == "cosine":
        return Cosine(epochs)
    return WarmUp(-(-updates // 10)) if name == "warm-up" else OnPlateau()


def _checked(schedule: Any, name: str) -> Schedule:
    """Refuse what is no schedule."""
    if isinstance(schedule, type) or not callable(getattr(schedule, "lr", None)):
        raise DTypeError(
            f"{name} must be a schedule such as elman.schedules.Cosine(epochs=100), with a method "
            f"lr(step, epoch, base_lr), or one of the names {', '.join(map(repr, NAMES))}; got {kind(schedule)}"
        )
    made: Schedule = schedule
    return made


def checked_lr(value: Any, schedule: Schedule) -> float:
    """The learning rate that a schedule gave, which may be one of the caller's own.

    Raises
    ------
    DTypeError, ArgumentError
        If it is not a positive finite number, naming the schedule.
    """
    name = f"{type(schedule).__name__}.lr"
    return positive(float(real(value, name)), name)


def _cosine_of_pi(x: float) -> float:
    """``cos(pi x)`` for 0 <= x <= 1, in sums of our own: the C library's last bit differs from one to the next."""
    t = math.pi * (0.5 - x)
    square, total = t * t, 0.0
    for coefficient in reversed(_SINE):
        total = total * square + coefficient
    return total * t
