"""First-order optimizers by name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError
from ..validation.scalars import flag, positive, probability
from .optimizer import Optimizer

Array = NDArray[Any]


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
    ArgumentError, DTypeError
        If a value is out of range, or of another type.
    """

    hyperparameters = ("lr", "momentum", "nesterov")
    slots = ("momentum_buffer",)

    def __init__(self, lr: float, momentum: float = 0.0, nesterov: bool = False) -> None:
        super().__init__(lr)
        self.momentum, self.nesterov = probability(momentum, "momentum"), flag(nesterov, "nesterov")
        if self.nesterov and self.momentum == 0.0:
            raise ArgumentError("nesterov=True looks ahead along the momentum: give momentum > 0, such as 0.9")

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
    ArgumentError, DTypeError
        If a value is out of range, or of another type.
    """

    hyperparameters = ("lr", "betas", "eps")
    slots = ("exp_avg", "exp_avg_sq")
    nonnegative = ("exp_avg_sq",)

    def __init__(self, lr: float = 1e-3, betas: Sequence[float] = (0.9, 0.999), eps: float = 1e-8) -> None:
        super().__init__(lr)
        if not isinstance(betas, Sequence | np.ndarray) or isinstance(betas, str | bytes) or len(betas) != 2:
            raise ArgumentError(f"betas must be two numbers with 0 <= beta < 1, got {betas!r}")
        self.betas = (probability(betas[0], "betas[0]"), probability(betas[1], "betas[1]"))
        self.eps = positive(eps, "eps")

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
