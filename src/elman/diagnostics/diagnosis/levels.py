"""How much of a model a diagnosis uses: its weights, a forward run, or the gradient itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...errors import ArgumentError, ShapeError
from ...linearization import Array
from ...results import Result
from ...states import mapped, parts
from ...validation.arrays import finite_numbers, plain, real_numbers
from ...validation.scalars import size
from ..matrices import spectral_radius
from .inputs import autocorrelated, checked_correlation, resampled, white
from .sequences import (
    MOST_RESERVED,
    Adjustable,
    Diagnosable,
    GivenJacobians,
    ModelSequences,
    Sequences,
    as_sequences,
    recurrent_part,
)
from .track_record import track_record


@dataclass(frozen=True)
class Level:
    """What a level starts with, and its description.

    Attributes
    ----------
    first : int
        Sequences in the first batch.
    vectors : int
        Random vectors for each sequence, and for each lag where tangents are pushed forward.
    words : str
        What is done.
    """

    first: int
    vectors: int
    words: str


LEVELS: Mapping[str, Level] = MappingProxyType(
    {
        "weights": Level(16, 4, "tangents pushed forward along inputs simulated, or drawn anew from a sample"),
        "forward": Level(16, 2, "tangents pushed forward along the data, no trajectory stored"),
        "full": Level(8, 4, "vectors pulled back along the data"),
    }
)


@dataclass(frozen=True)
class WeightFacts(Result):
    """Numbers from the weights alone, shown with a diagnosis at ``level="weights"``; they explain but do not predict.

    Attributes
    ----------
    radius : float or None
        Spectral radius of W_hh; for elementwise (Elman) cells.
    norm : float or None
        Largest singular value of W_hh, likewise.
    rest_radius : float
        Spectral radius of the Jacobian of one step under the mean input, from the model's own initial state
        or the mean of those given.
    inputs : {"white", "autocorrelation", "sample"}
        What drove the network: white noise, noise of a declared autocorrelation, or sequences drawn from a sample.
    """

    radius: float | None
    norm: float | None
    rest_radius: float
    inputs: str

    def __str__(self) -> str:
        lines = ["weights   what they prove:"]
        if self.radius is not None:
            lines += [
                f"  radius    rho(W_hh) = {self.radius:.4g}: proves nothing about gradients of a driven network",
                f"  norm      sigma_max(W_hh) = {self.norm:.4g}: proves decay if below 1 / max|phi'|, else nothing",
            ]
        lines.append(
            f"  at rest   rho(J) = {self.rest_radius:.4g} at the initial state under the mean input: whether a small "
            "disturbance dies there"
        )
        lines += track_record(self.inputs)
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values by name."""
        return {"radius": self.radius, "norm": self.norm, "rest_radius": self.rest_radius, "inputs": self.inputs}


def simulated(
    model: Any, x: Any, h0: Any, declared: Declared, n: int, rng: np.random.Generator
) -> tuple[ModelSequences, WeightFacts, Sequences | None]:
    """Sequences drawn from a sample, or noise of a declared kind, and the facts from the weights alone.

    Parameters
    ----------
    model : Adjustable and Diagnosable
    x : ndarray or None
        A sample of inputs, from which sequences are drawn if nothing but the length is declared; otherwise the source
        of the mean, deviation and length that are not declared.
    h0 : ndarray, tuple of ndarray or None
        Initial states of ``x``, or of any number of sequences: simulated ones start from states drawn from these.
    declared : Declared
        See :func:`elman.diagnostics.diagnosis.diagnose.diagnose`.
    n : int
        How many sequences.
    rng : numpy.random.Generator

    Returns
    -------
    ModelSequences, WeightFacts
    Sequences or None
        For verification: those of the sample from which nothing was drawn; if moments were declared, all of ``x``,
        from which only what was not declared entered the prediction.

    Raises
    ------
    ArgumentError, ShapeError, DTypeError
        For a model of another kind, or an argument that is missing, not finite, negative, or of a wrong shape.
    """
    part = recurrent_part(model)
    if not isinstance(model, Diagnosable) or part is None:
        raise ArgumentError(
            'level "weights" needs a layer or network of elman, whose weights it can run; got '
            f'{type(model).__name__}. level="full" takes a Linearization'
        )
    given = None if x is None else as_sequences(model, x, None, h0, None, None)
    assert not isinstance(given, GivenJacobians)
    initial = _states(h0 if given is None else given.h0)
    length = given.n_steps if given is not None and declared.length is None else declared.length
    D = part.input_size
    if given is not None and declared.nothing:
        T = size(length, "length (steps)", 1)
        sample, reserved = _halves(given, T, rng)
        rows = sample.x if model.batch_axis == 1 else sample.x.swapaxes(0, 1)
        drawn, mean, kind = resampled(rows, T, n, rng), rows.mean(axis=(0, 1), dtype=np.float64), "sample"
    else:
        mean, sd = declared.moments(D, given)
        if sd is None or length is None:
            missing = "input_sd" if sd is None else "length"
            raise ArgumentError(
                f'level "weights" needs a description of the inputs: declare {missing} (input_mean, input_sd for each '
                "channel, input_autocorrelation where it is not white, length in steps), or give a sample of inputs, x"
            )
        T = size(length, "length (steps)", 1)
        if (sd < 0).any():
            raise ArgumentError(f"input_sd must not be negative, got {sd.min():.4g}")
        kind = "white" if declared.autocorrelation is None else "autocorrelation"
        noise = white(T, n, D, rng)
        if declared.autocorrelation is not None:
            noise = autocorrelated(T, n, checked_correlation(declared.autocorrelation, D), rng)
        drawn, reserved = mean + sd * noise, given
    states = _drawn(initial, n, rng)
    steps = drawn if model.batch_axis == 1 else drawn.swapaxes(0, 1)
    facts = _facts(model, part, mean, initial, kind)
    return ModelSequences(model, steps, None, states, None), facts, reserved


@dataclass(frozen=True)
class Declared:
    """What is declared about the inputs of a diagnosis from weights; None for what is not."""

    mean: ArrayLike | None = None
    sd: ArrayLike | None = None
    autocorrelation: ArrayLike | None = None
    length: int | None = None

    @property
    def nothing(self) -> bool:
        """Whether nothing but the length is declared."""
        return self.mean is None and self.sd is None and self.autocorrelation is None

    def moments(self, D: int, given: ModelSequences | None) -> tuple[Array, Array | None]:
        """Mean and standard deviation (D,) as declared, else of the given sequences; None for an unknown deviation."""
        mean, sd = self.mean, self.sd
        if given is not None:
            mean = given.x.mean(axis=(0, 1)) if mean is None else mean
            sd = given.x.std(axis=(0, 1)) if sd is None else sd
        known = None if sd is None else _channels(sd, "input_sd", D)
        return _channels(0.0 if mean is None else mean, "input_mean", D), known


def _halves(given: ModelSequences, T: int, rng: np.random.Generator) -> tuple[ModelSequences, ModelSequences | None]:
    """The sequences to draw from, and those kept to verify: half of 4 or more, if their length is T."""
    if given.n < 4 or given.n_steps != T:
        return given, None
    order, kept = rng.permutation(given.n), min(MOST_RESERVED, given.n // 2)
    return given.take(order[kept:]), given.take(order[:kept])


def _channels(value: ArrayLike, name: str, D: int) -> Array:
    """One number per channel, shape (D,), from such an array or from one number for all."""
    array = finite_numbers(value, name)
    if array.shape not in ((), (D,)):
        raise ShapeError(f"{name} must be one number, or one for each of the {D} channels; got shape {array.shape}")
    return np.broadcast_to(array, (D,))


def _drawn(h0: Any, n: int, rng: np.random.Generator) -> Any:
    """Initial states of ``n`` sequences, drawn from those given along their axis 1."""
    if h0 is None:
        return None
    which = rng.integers(parts(h0)[0].shape[1], size=n)
    return mapped(lambda h: np.take(h, which, axis=1), h0)


def _states(h0: Any) -> Any:
    """Initial states as arrays that have sequences along axis 1."""
    if h0 is None:
        return None
    given = mapped(lambda h: plain(h, "h0"), h0)
    shapes = [part.shape for part in parts(given)]
    if {len(shape) for shape in shapes} != {3} or len({shape[1] for shape in shapes}) != 1 or not shapes[0][1]:
        found = ", ".join(map(str, shapes)) or "none"
        raise ShapeError(
            "h0 must be an array of shape (layers, n, H), or a tuple of such with the same n >= 1, like the "
            f"states that the model returns; got shape {found}"
        )
    return mapped(lambda h: real_numbers(h, "h0"), given)


def _facts(model: Diagnosable, part: Adjustable, mean: Array, initial: Any, kind: str) -> WeightFacts:
    """Radii and norm, from one step under the mean input from the mean initial state."""
    lin = model.linearize(mean.reshape(1, 1, part.input_size), mapped(lambda h: h.mean(axis=1, keepdims=True), initial))
    factors = lin.factors
    weight = None if factors is None else factors.weight.astype(np.float64)
    return WeightFacts(
        radius=None if weight is None else spectral_radius(weight),
        norm=None if weight is None else float(np.linalg.norm(weight, 2)),
        rest_radius=spectral_radius(lin.jacobian(0).astype(np.float64)),
        inputs=kind,
    )


def forward_capable(sequences: Sequences) -> None:
    """Refuse a model that cannot be run piece by piece.

    Raises
    ------
    ArgumentError
    """
    if isinstance(sequences, GivenJacobians):
        return
    if recurrent_part(sequences.model) is None:
        raise ArgumentError(
            f'level "forward" runs the model piece by piece, for which {type(sequences.model).__name__} lacks methods '
            '(elman.diagnostics.Adjustable); use level="full"'
        )
