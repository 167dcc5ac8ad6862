"""Training on all data at once by SciPy's minimisers: what :func:`elman.minimize` is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import ArgumentError, NonFiniteError
from .losses import Loss, get_loss
from .results import Result
from .targets import target_axes
from .training.clipping import global_norm
from .training.data import training_data
from .training.descent import Descent, Options
from .training.interrupt import DeferredInterrupt
from .training.model import Model, check_finite, check_model
from .training.optimizers import SGD
from .training.penalties import Regularizer, checked_regularizers
from .training.selection import frozen_names, places
from .training.tally import Tally
from .training.weights import checked_missing
from .validation.scalars import choice, flag, positive, size

Array = NDArray[Any]

METHODS = ("L-BFGS-B", "BFGS", "CG")
"""Methods that need the gradient alone."""
SECOND_ORDER = ("Newton-CG", "dogleg", "trust-ncg", "trust-krylov", "trust-exact")
"""Methods that need products with the Hessian."""
MOST_FOR_BFGS = 5000
"""Most parameters for BFGS: its matrix of P**2 numbers then takes 200 MB."""


@dataclass(frozen=True, repr=False)
class Minimization(Result):
    """What :func:`elman.minimize` did.

    Attributes
    ----------
    method : str
        SciPy's name of the method.
    loss : list of float
        Loss at the start and after each iteration, with the penalties of regularisers.
    best : float
        Loss of the parameters that the network has now: the lowest found.
    gradient_norm_start, gradient_norm : float
        Euclidean norm of the gradient with respect to what is trained, at the start and now.
    iterations, evaluations : int
        Steps of the method, and how often loss and gradient of all data were computed.
    not_finite : int
        Evaluations where a state, loss or gradient was not finite: the method was turned back there.
    converged : bool
        Whether the method's own criterion was met.
    message : str
        Why it ended.
    interrupted : bool
        Whether Ctrl-C ended it.
    seconds : float
        Wall-clock time.
    """

    method: str
    loss: list[float]
    best: float
    gradient_norm_start: float
    gradient_norm: float
    iterations: int
    evaluations: int
    not_finite: int
    converged: bool
    message: str
    interrupted: bool
    seconds: float

    def __str__(self) -> str:
        pace = f", {1e3 * self.seconds / self.evaluations:.3g} ms each" if self.evaluations else ""
        lines = [
            f"Minimization by {self.method}: {self.iterations} iterations, {self.evaluations} evaluations in "
            f"{self.seconds:.3g} s{pace}",
            f"  {'loss':<16} {self.loss[0]:.6g} -> {self.best:.6g}",
            f"  {'gradient norm':<16} {self.gradient_norm_start:.3g} -> {self.gradient_norm:.3g}",
        ]
        if self.not_finite:
            lines.append(f"  {'not finite':<16} {self.not_finite} trial points, from which it was turned back")
        lines.append(f"  {'converged' if self.converged else 'not converged'}: {self.message}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Minimization({self.method!r}, iterations={self.iterations}, best={self.best:.4g})"

    def to_dict(self) -> dict[str, Any]:
        """All results as plain lists, numbers and strings."""
        return asdict(self)


def minimize(
    net: Model,
    x: Any,
    y: Any = None,
    *,
    loss: str | Loss = "mse",
    method: str = "L-BFGS-B",
    max_iterations: int = 200,
    tolerance: float | None = None,
    batch_size: int = 256,
    lengths: ArrayLike | None = None,
    reset: ArrayLike | None = None,
    sample_weight: Any = None,
    missing: str = "refuse",
    train: str | Sequence[str] | None = None,
    regularizers: Sequence[Regularizer] = (),
    progress: bool = True,
) -> Minimization:
    """Train a network in place on all data at once, by :func:`scipy.optimize.minimize`.

    For small networks and data this finds lower losses than mini-batches, without a learning rate, and says whether it
    has converged. The gradient is that of backpropagation through all of time. There is no noise that keeps it from
    overfitting: look at held-out data, or give regularisers.

    Parameters
    ----------
    net : elman.Network or another :class:`~elman.training.Model`
        Its ``theta`` is updated. It must have no dropout or zoneout, so that equal parameters always give equal losses.
    x, y, lengths, reset, sample_weight, missing, train, regularizers
        As for :func:`elman.fit`.
    loss : str or object, default "mse"
        As for :func:`elman.fit`.
    method : {"L-BFGS-B", "BFGS", "CG"}
        L-BFGS (Liu & Nocedal 1989) suits nearly all; BFGS keeps a matrix of P x P numbers; CG is conjugate gradients.
    max_iterations : int, default 200
        Largest number of steps of the method.
    tolerance : float, optional
        ``tol`` of SciPy: the method ends when relative changes of the loss, or entries of the gradient, are smaller,
        depending on the method. By default the method's own.
    batch_size : int, default 256
        Sequences that are traced at once: memory grows with it; the result depends on it only by rounding.
    progress : bool, default True
        Whether to show a bar over the iterations.

    Returns
    -------
    Minimization
        Losses, norms, and how it ended. The network has the parameters of the lowest loss found. Ctrl-C in the main
        thread ends the run at the next evaluation and returns what there is, with ``interrupted`` set; a second one
        raises KeyboardInterrupt at once, and the network has the best parameters then too.

    Raises
    ------
    ShapeError, DTypeError, ArgumentError
        If an argument does not fit; nothing has been changed.
    NonFiniteError
        If a parameter, state, loss or gradient is not finite at the start. After any error but KeyboardInterrupt, the
        parameters are unchanged, bit for bit.

    Notes
    -----
    Where a trial step leads to numbers that are not finite, the method is given a loss above all losses so far, so that
    its line search turns back. Methods that need products with the Hessian, such as ``"trust-ncg"``, are refused:
    exact ones would need a second derivative of every cell's backward pass, which elman does not have.
    """
    check_model(net)
    check_finite(net)
    method = _checked_method(method, net)
    _check_noise(net)
    progress, batch_size = flag(progress, "progress"), size(batch_size, "batch_size")
    max_iterations = size(max_iterations, "max_iterations")
    tolerance = None if tolerance is None else positive(tolerance, "tolerance")
    criterion, ignore = get_loss(loss), checked_missing(missing)
    frozen, penalties = frozen_names(net, train), checked_regularizers(regularizers, net)
    given = {"lengths": lengths, "reset": reset, "sample_weight": sample_weight}
    source, criterion = training_data(net, x, y, criterion, None, given, ignore, 1)
    options = Options(frozen=frozen, regularizers=penalties)
    # the optimizer is not used: the steps are SciPy's
    descent = Descent(net, criterion, SGD(1.0), options, np.random.default_rng(0))
    free = np.ones(net.theta.size, bool)
    for place in places(net, frozen):
        free[place] = False
    return _Run(_Objective(net, descent, source, batch_size, free), method, max_iterations, tolerance).go(progress)


class _Stopped(Exception):
    """Raised after Ctrl-C to leave SciPy."""


class _Objective:
    """Loss and gradient of all data as a function of the trained parameters; remembers the best."""

    def __init__(self, net: Model, descent: Descent, source: Any, batch_size: int, free: Array) -> None:
        self.net, self.descent, self.source, self.batch_size, self.free = net, descent, source, batch_size, free
        self.interrupt = DeferredInterrupt()
        self.start = self.best_theta = net.theta.copy()
        self.value = self.norm = self.best = self.best_norm = math.nan
        self.worst, self.evaluations, self.not_finite = -math.inf, 0, 0

    def __call__(self, z: Array) -> tuple[float, Array]:
        """Loss and gradient (P,) in float64 at parameters ``z`` (P,)."""
        if self.interrupt.requested:
            raise _Stopped
        self.evaluations += 1
        try:
            with np.errstate(over="ignore"):
                self.net.theta[self.free] = z
            value, gradient = self._whole()
        except NonFiniteError:
            if self.evaluations == 1:
                raise
            self.not_finite += 1
            # finite, because a line search interpolates: it then steps back, but not all the way
            return self.worst + abs(self.worst) + 1.0, np.zeros_like(z)
        self.value, self.norm, self.worst = value, global_norm(gradient), max(self.worst, value)
        if not value >= self.best:  # also true when there is no best value yet
            self.best, self.best_norm, self.best_theta = value, self.norm, self.net.theta.copy()
        return value, gradient

    def _whole(self) -> tuple[float, Array]:
        """Means over all targets, independent of how they are cut into batches."""
        descent, total = self.descent, np.zeros(int(self.free.sum()))
        tally, penalties = Tally({}, target_axes(descent.loss)), 0.0
        for draw in self.source.draws(self.batch_size, None):
            for piece in draw.pieces:
                if piece.target is None or not piece.amount:
                    continue
                gradients, _, _, penalty = descent.gradient(piece, None, tally)
                total += piece.amount * gradients.theta[self.free].astype(np.float64)
                penalties += piece.amount * penalty
        if not tally.amount:
            raise ArgumentError("y must hold a target of positive weight, and has none")
        value = tally.loss + penalties / tally.amount
        total /= tally.amount
        if not math.isfinite(value) or not np.isfinite(total).all():
            raise NonFiniteError(f"the loss is {value}, or its gradient not finite, over all data", what="loss")
        return value, total


class _Run:
    """One call of SciPy's minimiser, and the parameters that are left, however it ends."""

    def __init__(self, objective: _Objective, method: str, max_iterations: int, tolerance: float | None) -> None:
        self.objective, self.method = objective, method
        self.max_iterations, self.tolerance = max_iterations, tolerance
        self.losses: list[float] = []
        self.first_norm = math.nan

    def go(self, progress: bool) -> Minimization:
        """Minimise; leave the best parameters, or after an error the original ones."""
        objective, theta = self.objective, self.objective.net.theta
        bar, began = _progress_bar(self.max_iterations, self.method) if progress else None, perf_counter()
        kept = objective.start
        try:
            with objective.interrupt:
                converged, message = self._scipy(bar)
            kept = objective.best_theta
        except KeyboardInterrupt:
            kept = objective.best_theta
            raise
        finally:
            theta[...] = kept
            if bar is not None:
                bar.close()
        return Minimization(
            self.method, self.losses, objective.best, self.first_norm, objective.best_norm, len(self.losses) - 1,
            objective.evaluations, objective.not_finite, converged, message, objective.interrupt.requested,
            perf_counter() - began,
        )  # fmt: skip

    def _scipy(self, bar: Any) -> tuple[bool, str]:
        """Whether it converged, and why it ended."""
        from scipy import optimize

        scipy_minimize: Any = optimize.minimize  # its types exclude functions that return value and gradient
        objective = self.objective
        z = objective.start[objective.free].astype(np.float64)

        def after_iteration(intermediate_result: Any) -> None:
            self.losses.append(float(intermediate_result.fun))
            if bar is not None:
                bar.set_postfix({"loss": f"{self.losses[-1]:.4g}", "gradient": f"{objective.norm:.3g}"}, refresh=False)
                bar.update()

        # SciPy evaluates the same point first, and reuses this result
        first = objective(z)
        self.losses.append(first[0])
        self.first_norm = objective.norm
        ready: list[Any] = [first]
        limits = {"maxfun": max(15000, 25 * self.max_iterations)} if self.method == "L-BFGS-B" else {}
        try:
            result: Any = scipy_minimize(
                lambda at: ready.pop() if ready else objective(at), z, jac=True, method=self.method, tol=self.tolerance,
                callback=after_iteration, options={"maxiter": self.max_iterations, **limits},
            )  # fmt: skip
        except _Stopped:
            return False, "ended by Ctrl-C"
        return bool(result.success), str(result.message)


def _progress_bar(iterations: int, method: str) -> Any:
    """A bar over the iterations, for terminal or notebook."""
    from tqdm.auto import tqdm

    return tqdm(total=iterations, unit="iteration", desc=method)


def _checked_method(method: Any, net: Model) -> str:
    """A method that works with the gradient alone."""
    if isinstance(method, str) and method in SECOND_ORDER:
        raise ArgumentError(
            f"method must be one of {', '.join(map(repr, METHODS))}, got {method!r}: it needs products with the "
            "Hessian, of which elman has no exact ones. L-BFGS-B builds up the curvature from gradients"
        )
    method = choice(method, "method", METHODS)
    if method == "BFGS" and net.theta.size > MOST_FOR_BFGS:
        raise ArgumentError(
            f'method must be "L-BFGS-B" or "CG" for {net.theta.size} parameters: BFGS keeps a matrix of that many '
            f"squared, {8e-9 * net.theta.size**2:.3g} GB"
        )
    return method


def _check_noise(net: Any) -> None:
    """Refuse a network that draws noise in training."""
    layer = getattr(net, "layer", net)
    noisy = [name for name in ("dropout", "recurrent_dropout", "zoneout") if np.any(getattr(layer, name, 0.0))]
    if noisy:
        raise ArgumentError(
            f"net must have no {noisy[0]}, got {getattr(layer, noisy[0])}: the loss must be the same each time. Build "
            "it without, and give regularizers instead, or train it with elman.fit"
        )
