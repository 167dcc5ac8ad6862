"""The best epoch so far: what is monitored, whether it is better, and callbacks that keep the parameters of then."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, DTypeError, StateDictError
from ..metrics import higher_is_better
from ..validation.scalars import at_least_zero, flag, real, size
from ..validation.words import kind
from .callbacks import TrainingInfo, Update
from .history import History
from .model import Model

Array = NDArray[Any]


class Best:
    """The best value so far of something that a history records after each epoch.

    Parameters
    ----------
    monitor : str
        ``"validation_loss"``, ``"loss"``, or a key of ``History.metrics``. Of a metric such as ``"r2"`` the largest
        value is the best one, of losses the smallest; see :func:`elman.metrics.higher_is_better`.
    min_delta : float, default 0
        A value must be better than the best one by more than this.
    """

    def __init__(self, monitor: str, min_delta: float = 0.0) -> None:
        if not isinstance(monitor, str):
            raise DTypeError(f"monitor must be a name, such as 'validation_loss' or 'loss', got {kind(monitor)}")
        self.monitor, self.min_delta = monitor, at_least_zero(min_delta, "min_delta")
        self.sign = -1.0 if higher_is_better(monitor.removeprefix("validation_")) else 1.0
        self.value = math.nan
        """NaN before the first number."""

    def improved(self, history: History) -> bool:
        """Look at the last epoch; whether it is the best one so far. NaN never is.

        Raises
        ------
        ArgumentError
            If the history has no such record.
        """
        value = self._last(history)
        better = not math.isnan(value) and (
            math.isnan(self.value) or self.sign * value < self.sign * self.value - self.min_delta
        )
        if better:
            self.value = value
        return better

    def forget(self) -> None:
        """Begin anew."""
        self.value = math.nan

    def _last(self, history: History) -> float:
        values = {"loss": history.loss, "validation_loss": history.validation_loss, **history.metrics}
        if not values.get(self.monitor):
            recorded = [name for name, record in values.items() if record]
            cure = "give fit(..., validation=(x, y))" if self.monitor == "validation_loss" else "name it in metrics="
            raise ArgumentError(
                f"monitor={self.monitor!r} must be something that the training records, which are {recorded}: {cure}, "
                'or monitor="loss"'
            )
        return float(values[self.monitor][-1])

    def state_dict(self) -> dict[str, Any]:
        """The best value, and of what."""
        return {"monitor": self.monitor, "value": self.value}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state_dict` returned.

        Raises
        ------
        StateDictError
            If it is not such a state, or of another monitor.
        """
        if not isinstance(state, Mapping) or set(state) != {"monitor", "value"} or state["monitor"] != self.monitor:
            raise StateDictError(
                f"the state of best must be that of monitor={self.monitor!r}, with keys monitor and value"
            )
        self.value = real(state["value"], "value")


class KeepBest:
    """Keep the parameters of the best epoch, and put them back when training ends, whatever ends it.

    Parameters
    ----------
    monitor : str, default "validation_loss"
        What is looked at after each epoch: ``"validation_loss"``, ``"loss"``, or a metric that the training records.
    min_delta : float, default 0
        An epoch is better if it is so by more than this.

    Attributes
    ----------
    best : float
        The best value; NaN before the first epoch.
    epoch : int or None
        Its epoch, counted from 0.
    theta : ndarray, shape (P,), or None
        A copy of the parameters after that epoch.

    Raises
    ------
    ArgumentError, DTypeError
        If a value is out of range, or of another type; in training, if what is monitored is not recorded.
    """

    _restores = True

    def __init__(self, monitor: str = "validation_loss", min_delta: float = 0.0) -> None:
        self._best = Best(monitor, min_delta)
        self.epoch: int | None = None
        self.theta: Array | None = None

    @property
    def best(self) -> float:
        """The best value so far."""
        return self._best.value

    def begin(self, info: TrainingInfo) -> None:
        """Forget what was seen of another training; one that is resumed goes on."""
        if not info.history.epochs:
            self._best.forget()
            self.epoch = self.theta = None

    def __call__(self, update: Update) -> bool | None:
        """Look at an epoch that has ended; see :data:`elman.training.Callback`."""
        if update.epoch_ended and self._best.improved(update.history):
            self.theta, self.epoch = update.model.theta.copy(), update.epoch
        return None

    def end(self, history: History, net: Model) -> None:
        """Put the best parameters back, bit for bit; called when training ends.

        Raises
        ------
        StateDictError
            If the network has another number of parameters, or another dtype.
        """
        if self.theta is None or not self._restores:
            return
        if (self.theta.shape, self.theta.dtype) != (net.theta.shape, net.theta.dtype):
            raise StateDictError(
                f"the best parameters are {self.theta.shape} {self.theta.dtype}, those of the network "
                f"{net.theta.shape} {net.theta.dtype}: give each training callbacks of its own"
            )
        net.theta[...] = self.theta

    def state_dict(self) -> dict[str, Any]:
        """What a resumed training needs: plain values, and the best parameters."""
        return {"best": self._best.state_dict(), "epoch": self.epoch, "theta": self.theta}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state_dict` returned; on any fault nothing changes.

        Raises
        ------
        StateDictError, DTypeError
            If it is not such a state.
        """
        name = type(self).__name__
        if not isinstance(state, Mapping) or set(state) != {"best", "epoch", "theta"}:
            raise StateDictError(f"the state of {name} must have the keys best, epoch, theta; got {kind(state)}")
        epoch, theta = state["epoch"], state["theta"]
        if (epoch is None) != (theta is None):
            raise StateDictError(f"the state of {name} must have both epoch and theta, or neither")
        epoch = None if epoch is None else size(epoch, "epoch", 0)
        if theta is not None:
            plain_one = isinstance(theta, np.ndarray) and theta.dtype in (np.float32, np.float64) and theta.ndim == 1
            if not plain_one or not np.isfinite(theta).all():
                raise StateDictError(f"theta of {name} must be one finite float32 or float64 vector")
            theta = theta.copy()
        self._best.load_state_dict(state["best"])
        self.epoch, self.theta = epoch, theta

    def __repr__(self) -> str:
        return f"{type(self).__name__}(monitor={self._best.monitor!r}, best={self.best:.4g}, epoch={self.epoch})"


class EarlyStopping(KeepBest):
    """End training when there has been no better epoch for a while, and put the best parameters back.

    Training ends after ``patience`` epochs in a row that were not better than the best one (Prechelt 1998). The
    parameters are put back however training ends: by this, by its last epoch, or by Ctrl-C.

    Parameters
    ----------
    patience : int
        Epochs to wait for a better one.
    min_delta : float, default 0
        An epoch is better if it is so by more than this.
    restore_best : bool, default True
        Whether to put the parameters of the best epoch back when training ends.
    monitor : str, default "validation_loss"
        What is looked at after each epoch: ``"validation_loss"``, ``"loss"``, or a metric that the training records.

    Attributes
    ----------
    best, epoch, theta
        As those of :class:`KeepBest`.

    Raises
    ------
    ArgumentError, DTypeError
        If a value is out of range, or of another type; in training, if what is monitored is not recorded.
    """

    def __init__(
        self,
        patience: int,
        min_delta: float = 0.0,
        restore_best: bool = True,
        monitor: str = "validation_loss",
    ) -> None:
        super().__init__(monitor, min_delta)
        self.patience, self._restores = size(patience, "patience"), flag(restore_best, "restore_best")

    def __call__(self, update: Update) -> bool:
        """Look at an epoch that has ended; True ends the training."""
        super().__call__(update)
        # a history that never had a number, such as one of NaN, is waited for as long
        since = update.epoch + 1 if self.epoch is None else update.epoch - self.epoch
        return update.epoch_ended and since >= self.patience
