"""First-order optimizers by name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError
from ..validation.scalars import at_least_zero, flag, positive, probability
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

    hyperparameters: ClassVar[tuple[str, ...]] = ("lr", "betas", "eps")
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
        root = math.sqrt(1.0 - power(beta2, t))
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
        new *= self._lr * root / (1.0 - power(beta1, t))
        np.subtract(theta, new, out=new)


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019, algorithm 2), as ``torch.optim.AdamW``.

    Each step also takes ``lr weight_decay theta`` from the parameters, whatever the size of their gradients: an L2
    penalty in the loss would be divided by the root of the mean square, and so shrink the parameters least whose
    gradients are large. Biases decay as all others.

    Parameters
    ----------
    lr, betas, eps
        As for :class:`Adam`.
    weight_decay : float, default 0.01
        Share of a parameter that a step with ``lr = 1`` takes off, at least 0.

    Raises
    ------
    ArgumentError, DTypeError
        If a value is out of range, or of another type.
    """

    hyperparameters = ("lr", "betas", "eps", "weight_decay")

    def __init__(
        self,
        lr: float = 1e-3,
        betas: Sequence[float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(lr, betas, eps)
        self.weight_decay = at_least_zero(weight_decay, "weight_decay")

    def _compute(self, theta: Array, gradient: Array, state: list[Array], new_state: list[Array], new: Array) -> None:
        """The parameters move by Adam's change, and by ``lr weight_decay theta``."""
        super()._compute(theta, gradient, state, new_state, new)
        decay = self._lr * self.weight_decay
        if decay:
            # from theta - u to theta - u - decay theta without room for a product: theta is read once more, scaled
            new /= decay
            new -= theta
            new *= decay


class RMSprop(Optimizer):
    """Steps divided by the root of a running mean of the squared gradient, as ``torch.optim.RMSprop``.

    ``v = alpha v + (1 - alpha) g^2``, ``b = momentum b + g / (sqrt(v) + eps)``, ``theta -= lr b`` (Tieleman & Hinton
    2012, Coursera lecture 6e).

    Parameters
    ----------
    lr : float, default 1e-2
        Learning rate, positive.
    alpha : float, default 0.99
        Decay of the running mean of the squared gradient, ``0 <= alpha < 1``.
    eps : float, default 1e-8
        Added to the root of the mean square, positive.
    momentum : float, default 0
        Share of the last update that is kept, ``0 <= momentum < 1``.

    Raises
    ------
    ArgumentError, DTypeError
        If a value is out of range, or of another type.
    """

    hyperparameters = ("lr", "alpha", "eps", "momentum")
    slots = ("square_avg", "momentum_buffer")
    nonnegative = ("square_avg",)

    def __init__(self, lr: float = 1e-2, alpha: float = 0.99, eps: float = 1e-8, momentum: float = 0.0) -> None:
        super().__init__(lr)
        self.alpha, self.momentum = probability(alpha, "alpha"), probability(momentum, "momentum")
        self.eps = positive(eps, "eps")

    def _compute(self, theta: Array, gradient: Array, state: list[Array], new_state: list[Array], new: Array) -> None:
        """Running mean of g^2, and the momentum of the scaled gradient."""
        mean_square = np.multiply(state[0], self.alpha, out=new_state[0])
        np.multiply(gradient, gradient, out=new)
        new *= 1.0 - self.alpha
        mean_square += new
        np.sqrt(mean_square, out=new)
        new += self.eps
        np.divide(gradient, new, out=new)
        buffer = np.multiply(state[1], self.momentum, out=new_state[1])
        buffer += new
        np.multiply(buffer, self._lr, out=new)
        np.subtract(theta, new, out=new)


def power(base: float, n: int) -> float:
    """``base ** n`` in products of our own: the C library's last bit differs from one processor to the next."""
    result = 1.0
    while n:
        if n & 1:
            result *= base
        base *= base
        n >>= 1
    return result
