"""First-order optimizers on one flat parameter vector.

A step is a transaction: new parameters and state are computed into kept buffers and take effect together at the end, so
a step that fails changes nothing.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, DTypeError, NonFiniteError, ShapeError, StateDictError
from ..kernels.squares import sum_of_squares
from ..layers.fixed import Fixed
from ..validation import flag, in_place, plain, real

Array = NDArray[Any]


class Optimizer(Fixed, ABC):
    """An update rule with its state.

    To implement: name the constructor's keywords in ``hyperparameters`` and the state vectors in ``slots``, and define
    :meth:`_compute`. State begins at zero when the first step shows the size. Hyperparameters may be assigned between
    steps, and are checked as by the constructor; no other name can be, but for those with a leading underscore.

    Parameters
    ----------
    lr : float
        Learning rate, positive. It may be changed between steps by assignment.
    """

    hyperparameters: ClassVar[tuple[str, ...]] = ("lr",)
    slots: ClassVar[tuple[str, ...]] = ()

    def __init__(self, lr: float) -> None:
        self.lr = lr
        self._step_count = 0
        self._allocate([np.zeros(0) for _ in self.slots])

    @property
    def step_count(self) -> int:
        """Number of steps taken; cannot be assigned."""
        return self._step_count

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
        if not (real(value, "lr") > 0.0 and math.isfinite(value)):
            raise ArgumentError(f"lr must be a positive finite number, got {value!r}")
        self._lr = float(value)

    @abstractmethod
    def _compute(self, theta: Array, gradient: Array, state: list[Array], new_state: list[Array], new: Array) -> None:
        """Write the next parameters to ``new`` (P,) and the next state to ``new_state``; read the rest only.

        ``step_count`` is the number of steps before this one.
        """

    def _allocate(self, state: list[Array]) -> None:
        """Adopt ``state`` and make the buffers for the next one."""
        self._state = state
        self._new_state = [np.empty_like(slot) for slot in state]
        self._new = np.empty_like(state[0]) if state else np.empty(0)

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
            If the two do not match, or do not match the state of earlier steps.
        NonFiniteError
            If theta or the gradient is not finite or the update overflows. Parameters and state are as before.
        """
        in_place(theta, "theta")
        in_place(gradient, "gradient")
        if not (math.isfinite(sum_of_squares(theta)) or np.isfinite(theta).all()):
            raise NonFiniteError("theta holds numbers that are not finite: load weights that are", what="parameter")
        if gradient.shape != theta.shape or gradient.dtype != theta.dtype:
            raise ShapeError(
                f"gradient must match theta, {theta.shape} {theta.dtype}; got {gradient.shape} {gradient.dtype}"
            )
        if not (math.isfinite(sum_of_squares(gradient)) or np.isfinite(gradient).all()):
            raise NonFiniteError("the gradient is not finite; parameters and optimizer are as before", what="gradient")
        self.apply(theta, gradient)

    def apply(self, theta: Array, gradient: Array) -> None:
        """:meth:`step` without a look at the gradient, for a caller who has just computed its norm.

        Parameters
        ----------
        theta, gradient : ndarray, shape (P,)
            As for :meth:`step`; the gradient must be finite.

        Raises
        ------
        ShapeError, DTypeError
            If theta does not match the state of earlier steps.
        NonFiniteError
            If the update overflows. Parameters and state are as before.
        """
        if self._new.shape != theta.shape or self._new.dtype != theta.dtype:
            self._begin(theta)
        try:
            with np.errstate(over="raise", invalid="raise", divide="raise"):
                self._compute(theta, gradient, self._state, self._new_state, self._new)
        except FloatingPointError as error:
            raise NonFiniteError(
                f"the update of the parameters is not finite ({error}), with gradient entries up to "
                f"{np.abs(gradient).max():.3g}: clip the gradient, or lower lr = {self.lr:g}. "
                "Parameters and optimizer are as before",
                what="gradient",
            ) from error
        np.copyto(theta, self._new)
        self._state, self._new_state = self._new_state, self._state
        self._step_count += 1

    def _begin(self, theta: Array) -> None:
        """Make zero state for ``theta``, unless there is state of another vector."""
        if theta.ndim != 1 or theta.dtype not in (np.float32, np.float64):
            raise DTypeError(f"theta must be one float32 or float64 vector, got {theta.shape} {theta.dtype}")
        if self.step_count:
            raise ShapeError(
                f"this optimizer has the state of {self._new.size} {self._new.dtype} parameters, got theta with "
                f"{theta.size} {theta.dtype}: make a new {type(self).__name__} for each network"
            )
        self._allocate([np.zeros_like(theta) for _ in self.slots])

    def state_dict(self) -> dict[str, Array]:
        """Copy settings and state.

        Returns
        -------
        dict of str to ndarray
            Hyperparameters and ``step_count`` as small arrays, state vectors under torch's names (empty before the
            first step). ``numpy.savez`` can store it.
        """
        settings = {name: np.array(getattr(self, name)) for name in (*self.hyperparameters, "step_count")}
        return settings | {name: slot.copy() for name, slot in zip(self.slots, self._state, strict=True)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state_dict` of the same kind of optimizer returned; the next step continues exactly.

        Parameters
        ----------
        state : mapping
            All the keys of :meth:`state_dict` and no others; copied.

        Raises
        ------
        StateDictError
            If keys are missing or unknown, or the state vectors do not fit each other. The optimizer is unchanged.
        ArgumentError
            If a hyperparameter is out of range.
        """
        wanted = {*self.hyperparameters, "step_count", *self.slots}
        if wanted != set(state):
            raise StateDictError(
                f"the state of {type(self).__name__} must have the keys {sorted(wanted)}: "
                f"missing {sorted(wanted - set(state))}, unknown {sorted(set(state) - wanted)}"
            )
        slots = [plain(state[name], name).copy() for name in self.slots]
        for name, slot in zip(self.slots, slots, strict=True):
            if slot.ndim != 1 or slot.dtype not in (np.float32, np.float64) or not np.isfinite(slot).all():
                raise StateDictError(
                    f"{name} must be a finite float32 or float64 vector, got {slot.shape} {slot.dtype}"
                )
            if slot.shape != slots[0].shape or slot.dtype != slots[0].dtype:
                raise StateDictError(f"{name} must match {self.slots[0]}, {slots[0].shape}; got {slot.shape}")
        steps = np.asarray(state["step_count"])
        if steps.shape != () or steps.dtype.kind not in "iu" or steps < 0:
            raise StateDictError(f"step_count must be an integer of at least 0, got {state['step_count']!r}")
        fresh = type(self)(**{name: np.asarray(state[name]).tolist() for name in self.hyperparameters})
        self.__dict__.update(fresh.__dict__)
        self._step_count = int(steps)
        self._allocate(slots)

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.hyperparameters)
        return f"{type(self).__name__}({settings})"


class SGD(Optimizer):
    """Stochastic gradient descent with momentum, as ``torch.optim.SGD``.

    ``b = momentum b + g``, then ``theta -= lr b``, or with Nesterov's look-ahead ``theta -= lr (g + momentum b)``
    (Sutskever, Martens, Dahl & Hinton 2013).

    Parameters
    ----------
    lr : float
        Learning rate, positive.
    momentum : float, default 0
        Share of the last update that is kept, ``0 <= momentum < 1``.
    nesterov : bool, default False
        Whether to look ahead; needs momentum.

    Raises
    ------
    ArgumentError
        If a value is out of range.
    """

    hyperparameters = ("lr", "momentum", "nesterov")
    slots = ("momentum_buffer",)

    def __init__(self, lr: float, momentum: float = 0.0, nesterov: bool = False) -> None:
        if not 0.0 <= real(momentum, "momentum") < 1.0:
            raise ArgumentError(f"momentum must satisfy 0 <= momentum < 1, got {momentum!r}")
        if flag(nesterov, "nesterov") and momentum == 0.0:
            raise ArgumentError("nesterov=True looks ahead along the momentum: give momentum > 0, such as 0.9")
        super().__init__(lr)
        self.momentum, self.nesterov = float(momentum), bool(nesterov)

    def _compute(self, theta: Array, gradient: Array, state: list[Array], new_state: list[Array], new: Array) -> None:
        """``b = momentum b + g``; the parameters move against b, or against ``g + momentum b``."""
        buffer = np.multiply(state[0], self.momentum, out=new_state[0])
        buffer += gradient
        if self.nesterov:
            np.multiply(buffer, self.momentum, out=new)
            new += gradient
            new *= self.lr
        else:
            np.multiply(buffer, self.lr, out=new)
        np.subtract(theta, new, out=new)


class Adam(Optimizer):
    """Adam (Kingma & Ba 2015, algorithm 1), as ``torch.optim.Adam``.

    Parameters
    ----------
    lr : float, default 1e-3
        Learning rate, positive: about the largest change of a parameter in one step.
    betas : pair of float, default (0.9, 0.999)
        Decay of the running means of the gradient and of its square, ``0 <= beta < 1``.
    eps : float, default 1e-8
        Added to the root of the mean square, positive.

    Raises
    ------
    ArgumentError
        If a value is out of range.
    """

    hyperparameters = ("lr", "betas", "eps")
    slots = ("exp_avg", "exp_avg_sq")

    def __init__(self, lr: float = 1e-3, betas: Sequence[float] = (0.9, 0.999), eps: float = 1e-8) -> None:
        if len(betas) != 2 or not all(0.0 <= real(beta, "betas") < 1.0 for beta in betas):
            raise ArgumentError(f"betas must be two numbers with 0 <= beta < 1, got {betas!r}")
        if not (real(eps, "eps") > 0.0 and math.isfinite(eps)):
            raise ArgumentError(f"eps must be a positive finite number, got {eps!r}")
        super().__init__(lr)
        self.betas, self.eps = (float(betas[0]), float(betas[1])), float(eps)

    def _compute(self, theta: Array, gradient: Array, state: list[Array], new_state: list[Array], new: Array) -> None:
        """Running means of g and g^2; the corrections for their start at zero are in the scalars."""
        (beta1, beta2), t = self.betas, self.step_count + 1
        root = math.sqrt(1.0 - _power(beta2, t))
        mean = np.subtract(gradient, state[0], out=new_state[0])
        mean *= 1.0 - beta1
        mean += state[0]
        mean_square = np.multiply(state[1], beta2, out=new_state[1])
        np.multiply(gradient, gradient, out=new)
        new *= 1.0 - beta2
        mean_square += new
        np.sqrt(mean_square, out=new)
        new += self.eps * root
        np.divide(mean, new, out=new)
        new *= self._lr * root / (1.0 - _power(beta1, t))
        np.subtract(theta, new, out=new)


def _power(base: float, n: int) -> float:
    """``base ** n`` in products of our own: the C library's last bit differs from one processor to the next."""
    result = 1.0
    while n:
        if n & 1:
            result *= base
        base *= base
        n >>= 1
    return result
