"""What optimizers share: settings, state, and the step on one flat parameter vector.

A step is a transaction: new parameters and state are computed into kept buffers and take effect together at the end, so
a step that fails or is interrupted changes nothing.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import DTypeError, NonFiniteError, ShapeError, StateDictError
from ..kernels.squares import sum_of_squares
from ..kernels.subnormal import flush
from ..layers.fixed import Fixed
from ..validation.arrays import plain
from ..validation.scalars import positive
from ..validation.words import kind

Array = NDArray[Any]


class _Memory(NamedTuple):
    """What an optimizer keeps for one vector of parameters.

    Attributes
    ----------
    states : pair of list of ndarray, each (P,)
        The state after an even and after an odd number of steps: the present one, and room for the next.
    new : ndarray, shape (P,)
        Room for the next parameters.
    steps : ndarray of int, shape (1,)
        Number of steps taken. It alone says which state is the present one, so that writing it is the whole change.
    """

    states: tuple[list[Array], list[Array]]
    new: Array
    steps: Array

    @classmethod
    def of(cls, state: list[Array], steps: int = 0) -> _Memory:
        """Adopt a state, and make room for the next one."""
        other = [np.empty_like(slot) for slot in state]
        new = np.empty_like(state[0]) if state else np.empty(0)
        return cls((other, state) if steps % 2 else (state, other), new, np.array([steps]))


class Optimizer(Fixed, ABC):
    """An update rule with its state.

    To implement: name the constructor's keywords in ``hyperparameters`` and the state vectors in ``slots``, and define
    :meth:`_compute`; state vectors that hold no negative number are also named in ``nonnegative``. State begins at zero
    when the first step shows the size. Hyperparameters may be assigned between steps, and are checked as by the
    constructor; no other name can be, but for those with a leading underscore.

    Parameters
    ----------
    lr : float
        Learning rate, positive. It may be changed between steps by assignment.
    """

    hyperparameters: ClassVar[tuple[str, ...]] = ("lr",)
    slots: ClassVar[tuple[str, ...]] = ()
    nonnegative: ClassVar[tuple[str, ...]] = ()

    def __init__(self, lr: float) -> None:
        self.lr = lr
        self._memory = _Memory.of([np.zeros(0) for _ in self.slots])

    @property
    def step_count(self) -> int:
        """Number of steps taken; cannot be assigned."""
        return int(self._memory.steps[0])

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a hyperparameter to what the constructor makes of the value; else as :class:`Fixed`."""
        own = isinstance(getattr(type(self), name, None), property)
        if "_built" in self.__dict__ and name in self.hyperparameters and not own:
            settings = {each: getattr(self, each) for each in self.hyperparameters}
            self.__dict__[name] = getattr(type(self)(**{**settings, name: value}), name)
        else:
            super().__setattr__(name, value)

    def __copy__(self) -> Optimizer:
        """As a deep copy: two optimizers that wrote into the same state would disturb each other."""
        return deepcopy(self)

    @property
    def lr(self) -> float:
        """Learning rate; only a positive finite number can be assigned."""
        return self._lr

    @lr.setter
    def lr(self, value: float) -> None:
        self._lr = positive(value, "lr")

    @abstractmethod
    def _compute(self, theta: Array, gradient: Array, state: list[Array], new_state: list[Array], new: Array) -> None:
        """Write the next parameters to ``new`` (P,) and the next state to ``new_state``; read the rest only.

        ``step_count`` is the number of steps before this one.
        """

    def step(self, theta: Array, gradient: Array) -> None:
        """Update parameters in place.

        Parameters
        ----------
        theta : ndarray, shape (P,), float32 or float64
            Parameters, changed in place.
        gradient : ndarray, shape (P,), dtype of ``theta``
            Derivative of the loss; not changed.

        Raises
        ------
        ShapeError, DTypeError
            If the two are not arrays that match, or do not match the state of earlier steps, or theta is read-only.
        NonFiniteError
            If theta or the gradient is not finite or the update overflows. Parameters and state are as before.
        """
        for value, name in ((theta, "theta"), (gradient, "gradient")):
            plain_one = isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray)
            if not plain_one or value.dtype not in (np.float32, np.float64):
                raise DTypeError(
                    f"{name} must be one float32 or float64 vector, such as net.theta and grads.theta, got "
                    f"{kind(value)}"
                )
        if not theta.flags.writeable:
            raise DTypeError("theta must be writable, for it is changed in place, and is read-only")
        if gradient.shape != theta.shape or gradient.dtype != theta.dtype:
            raise ShapeError(
                f"gradient must match theta, {theta.shape} {theta.dtype}; got {gradient.shape} {gradient.dtype}"
            )
        if not (math.isfinite(sum_of_squares(theta)) or np.isfinite(theta).all()):
            raise NonFiniteError("theta holds numbers that are not finite: load weights that are", what="parameter")
        if not (math.isfinite(sum_of_squares(gradient)) or np.isfinite(gradient).all()):
            raise NonFiniteError("the gradient is not finite; parameters and optimizer are as before", what="gradient")
        self.apply(theta, gradient)

    def apply(self, theta: Array, gradient: Array, frozen: Sequence[slice] = ()) -> None:
        """:meth:`step` without a look at the gradient, for a caller who has just computed its norm.

        Parameters
        ----------
        theta, gradient : ndarray, shape (P,)
            As for :meth:`step`; the gradient must be finite.
        frozen : sequence of slice
            Parts of theta that stay as they are to the bit, whatever momentum or weight decay would make of them; their
            state stays too.

        Raises
        ------
        ShapeError, DTypeError
            If theta does not match the state of earlier steps.
        NonFiniteError
            If the update overflows. Parameters and state are as before.

        Notes
        -----
        A KeyboardInterrupt at any point leaves parameters and state both as before or both as after.
        """
        if self._memory.new.shape != theta.shape or self._memory.new.dtype != theta.dtype:
            self._begin(theta)
        states, new, _ = memory = self._memory
        n = self.step_count
        try:
            with np.errstate(over="raise", invalid="raise", divide="raise"):
                flush(self._compute, theta, gradient, states[n % 2], states[1 - n % 2], new)
            for part in frozen:
                for after, before in zip((*states[1 - n % 2], new), (*states[n % 2], theta), strict=True):
                    after[part] = before[part]
        except FloatingPointError as error:
            raise NonFiniteError(
                f"the update of the parameters is not finite ({error}), with gradient entries up to "
                f"{np.abs(gradient).max():.3g}: clip the gradient, or lower lr = {self.lr:g}. "
                "Parameters and optimizer are as before",
                what="gradient",
            ) from error
        # both writes in one call that runs no Python: a signal is handled before it or after it
        write: Any = np.ndarray.__setitem__
        list(map(write, (theta, memory.steps), (..., 0), (new, n + 1)))

    def _begin(self, theta: Array) -> None:
        """Make zero state for ``theta``, unless there is state of another vector."""
        if theta.ndim != 1 or theta.dtype not in (np.float32, np.float64):
            raise DTypeError(f"theta must be one float32 or float64 vector, got {theta.shape} {theta.dtype}")
        if self.step_count:
            own = self._memory.new
            raise ShapeError(
                f"this optimizer has the state of {own.size} {own.dtype} parameters, got theta with "
                f"{theta.size} {theta.dtype}: make a new {type(self).__name__} for each network"
            )
        self._memory = _Memory.of([np.zeros_like(theta) for _ in self.slots])

    def state_dict(self) -> dict[str, Array]:
        """Copy settings and state.

        Returns
        -------
        dict of str to ndarray
            Hyperparameters and ``step_count`` as small arrays, state vectors under torch's names (empty before the
            first step). ``numpy.savez`` can store it.
        """
        settings = {name: np.array(getattr(self, name)) for name in (*self.hyperparameters, "step_count")}
        present = self._memory.states[self.step_count % 2]
        return settings | {name: slot.copy() for name, slot in zip(self.slots, present, strict=True)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state_dict` of the same kind of optimizer returned; the next step continues exactly.

        Parameters
        ----------
        state : mapping
            All the keys of :meth:`state_dict` and no others; copied.

        Raises
        ------
        StateDictError
            If keys are missing or unknown, or the state vectors do not fit each other or ``step_count``.
        ArgumentError, DTypeError
            If a hyperparameter is out of range, or of another type. On any fault the optimizer is unchanged.
        """
        if not isinstance(state, Mapping):
            raise DTypeError(f"state must be a mapping, as state_dict() returns it, got {kind(state)}")
        wanted = {*self.hyperparameters, "step_count", *self.slots}
        if wanted != set(state):
            raise StateDictError(
                f"the state of {type(self).__name__} must have the keys {sorted(wanted)}: "
                f"missing {sorted(wanted - set(state))}, unknown {sorted(map(str, set(state) - wanted))}"
            )
        fresh = type(self)(**{name: plain(state[name], name).tolist() for name in self.hyperparameters})
        slots = self._checked_slots(state)
        steps = state["step_count"]
        if isinstance(steps, np.ndarray) and not steps.ndim:
            steps = steps[()]
        if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or not 0 <= steps < 2**62:
            raise StateDictError(
                f"step_count must be an integer of at least 0, the number of steps taken, got {kind(steps)}"
            )
        if steps == 0 and any(slot.any() for slot in slots):
            raise StateDictError(f"step_count must be the number of steps that made {', '.join(self.slots)}, got 0")
        fresh._memory = _Memory.of(slots, int(steps))
        self.__dict__.update(fresh.__dict__)  # in one call that runs no Python: all of it or nothing

    def _checked_slots(self, state: Mapping[str, Any]) -> list[Array]:
        """Copies of the state vectors, or a refusal."""
        slots = [np.array(plain(state[name], name)) for name in self.slots]
        for name, slot in zip(self.slots, slots, strict=True):
            if slot.ndim != 1 or slot.dtype not in (np.float32, np.float64) or not np.isfinite(slot).all():
                raise StateDictError(
                    f"{name} must be a finite float32 or float64 vector, got {slot.shape} {slot.dtype}"
                )
            if slot.shape != slots[0].shape or slot.dtype != slots[0].dtype:
                raise StateDictError(f"{name} must match {self.slots[0]}, {slots[0].shape}; got {slot.shape}")
            if name in self.nonnegative and (slot < 0).any():
                raise StateDictError(f"{name} must hold no negative numbers, got {slot.min()}")
        return slots

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.hyperparameters)
        return f"{type(self).__name__}({settings})"
