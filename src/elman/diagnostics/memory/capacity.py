r"""How much of its past input a linear network :math:`s_t = W s_{t-1} + v u_t` holds, exactly.

The memory capacity at lag ``k`` is the squared correlation of :math:`u_{t-k}` with its best linear readout from
:math:`s_t`, for white input: :math:`m_k = (W^k v)^T C^{-1} W^k v` with the Gramian :math:`C = \sum_k W^k v v^T W^{kT}`
(Jaeger 2001). Solving with ``C`` loses all digits beyond some 20 units, because the columns :math:`W^k v` are nearly
dependent. A change of basis changes ``C`` but not :math:`m_k`, which therefore depends only on the eigenvalues of the
controllable part, and follows from the all-pass filter with these poles:

.. math:: B(z) = \prod_i \frac{z - \bar\lambda_i}{1 - \lambda_i z} = \sum_j b_j z^j, \qquad m_k = \sum_{j > k} b_j^2,

since the sequences that the network cannot hold are spanned by the delayed copies of ``b``. No system is solved, and
the sum over ``k`` is the number of poles up to rounding. A network with more poles holds more at every lag, so where
rounding leaves open how many modes are controllable, the fewest and the most bound the capacity at each lag.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...errors import ArgumentError, ShapeError
from ...linearization import Array
from ...results import Drawn
from ...validation.arrays import finite_numbers
from ...validation.scalars import size
from ..matrices import eigenvalues, rounding_of, square_matrix
from ..spectra.marginal import marginal_modes, stability
from .controllable import controllable_part, stored_rank

# Longest impulse response that is computed: 4 million lags, enough for radii up to about 1 - 1e-5.
_MOST_LAGS = 2**22
# Energy of the second half of the response below which its aliases are lost in rounding.
_ALIAS = 1e-26
_ROWS = 8  # of the printed table

NEGLIGIBLE = 1e-9
"""Share of the total that the lags left out by default may hold, of a capacity and of Fisher information."""


@dataclass(frozen=True, eq=False)
class MemoryCapacity(Drawn, picture="plot_memory"):
    """Linear memory capacity by lag; made by :func:`memory_capacity`.

    Attributes
    ----------
    per_lag : ndarray, shape (L,)
        Capacity ``m_k`` in [0, 1] at lags ``k = 0 .. L - 1`` in steps, not increasing; lag 0 is the present input.
    rank : int
        Dimension of the controllable subspace, which is the sum over all lags from 0: the smallest found for a network
        within rounding of this one, ``10 N eps |W|`` in the Frobenius norm.
    state_size : int
        Number of units N.
    rank_high : int
        The same for exactly the numbers in W and v, by integer arithmetic. Where it is more than :attr:`rank`, the rank
        depends on how W and v were rounded, and :attr:`per_lag` is the lower end of an interval.
    per_lag_high : ndarray, shape (L,)
        Upper end: what all N modes would hold, limited to a total of :attr:`rank_high`.
    """

    per_lag: Array
    rank: int
    state_size: int
    rank_high: int
    per_lag_high: Array

    @property
    def exact(self) -> bool:
        """Whether the rank is certain: the same for the numbers as they are stored and within their rounding."""
        return self.rank == self.rank_high

    @property
    def total(self) -> float:
        """Sum over all lags from 0, those beyond :attr:`per_lag` included: the rank."""
        return float(self.rank)

    @property
    def total_past(self) -> float:
        """Sum over all lags from 1."""
        return float(self.rank - self.per_lag[0])

    @property
    def half_lag(self) -> int | None:
        """First lag at which less than half of the input's variance is held; None if it lies beyond :attr:`per_lag`."""
        below = np.flatnonzero(self.per_lag < 0.5)
        return int(below[0]) if below.size else None

    def __repr__(self) -> str:
        return f"MemoryCapacity(total={self._rank_text('..')}, N={self.state_size}, lags={len(self.per_lag)})"

    def _rank_text(self, between: str) -> str:
        return f"{self.rank}" if self.exact else f"{self.rank}{between}{self.rank_high}"

    def __str__(self) -> str:
        note = "" if self.rank == self.state_size else ": the input does not reach the others"
        note += "" if self.exact else ", but by rounding"
        half = f"beyond lag {len(self.per_lag) - 1}" if self.half_lag is None else f"from lag {self.half_lag}"
        unsure = [
            f"  undecided         rounding of W or v decides: {self.rank_high} for the numbers as they are stored, "
            f"{self.rank} within",
            "                    their rounding; the capacities below are those of the smaller, the least there can be",
        ]
        return "\n".join(
            [
                f"Linear memory capacity of {self.state_size} units, without noise",
                f"  total             {self._rank_text(' to ')} from lag 0, {self.total_past:.6g} from lag 1",
                f"  controllable      {self._rank_text(' to ')} of {self.state_size} dimensions{note}",
                *([] if self.exact else unsure),
                f"  less than half    {half}",
                *lag_table(self.per_lag, "capacity"),
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """All numbers as plain Python."""
        return {
            "per_lag": self.per_lag.tolist(),
            "total": self.total,
            "total_past": self.total_past,
            "rank": self.rank,
            "state_size": self.state_size,
            "rank_high": self.rank_high,
            "per_lag_high": self.per_lag_high.tolist(),
            "exact": self.exact,
        }


def memory_capacity(W: ArrayLike, v: ArrayLike, *, max_lag: int | None = None) -> MemoryCapacity:
    """Exact memory capacity of the linear network ``s[t] = W s[t-1] + v u[t]`` for white scalar input.

    It holds without noise: capacity at long lags may lie in directions of tiny variance, which no readout of finite
    precision can use. :func:`fisher_memory` includes noise in the state; :func:`measured_memory` measures a nonlinear
    network. Where modes are equal, as in rings and lattices, the input reaches only one of each kind; if rounding
    leaves open whether modes are equal, the result includes an interval.

    Parameters
    ----------
    W : array_like, shape (N, N)
        Recurrent matrix with spectral radius below 1.
    v : array_like, shape (N,)
        Input vector; its norm does not matter unless it is 0.
    max_lag : int, optional
        Last lag to return; by default such that all later lags together hold less than 1e-9 of the total.

    Returns
    -------
    MemoryCapacity

    Raises
    ------
    ShapeError, DTypeError, ArgumentError
        If W is not a finite real square matrix, v does not fit it, or the spectral radius is 1 or more (the state has
        no stationary variance), or so near 1 that more than four million lags count.

    References
    ----------
    Jaeger, Short term memory in echo state networks, GMD report 152 (2001). That direct formulas fail numerically, and
    that the total is the rank: Ballarin, Grigoryeva and Ortega, Memory of recurrent networks: do we compute it right?,
    JMLR 25 (2024). The orthogonal basis behind the all-pass form: Ninness and Gustafsson, IEEE Trans. Automatic Control
    42 (1997). The rank over the rational numbers: Wiedemann, Solving sparse linear equations over finite fields, IEEE
    Trans. Information Theory 32 (1986) 54.

    Examples
    --------
    >>> import numpy as np
    >>> ring = 0.9 * np.roll(np.eye(12), 1, axis=0)
    >>> round(memory_capacity(ring, np.eye(12)[0]).total_past, 10)
    11.0797664431
    """
    matrix, vector = linear_network(W, v)
    wanted = None if max_lag is None else size(max_lag, "max_lag", 0) + 1
    reduced = controllable_part(matrix, vector)
    rank = len(reduced)
    per_lag = _capacity(eigenvalues(reduced), wanted or 0)
    if wanted is None:
        left = np.cumsum(per_lag[::-1])[::-1]
        wanted = max(1, int(np.count_nonzero(left > NEGLIGIBLE * rank)))
    per_lag = np.minimum(per_lag[:wanted], 1.0)
    # W is one of the networks within its own rounding
    rank_high = max(rank, stored_rank(matrix, vector))
    high = per_lag if rank == rank_high else _upper_end(matrix, rank_high, wanted)
    return MemoryCapacity(per_lag, rank, len(matrix), rank_high, np.maximum(per_lag, high))


def _capacity(poles: Array, least: int) -> Array:
    """``m_k`` of a network with these poles, at least at the lags up to ``least``."""
    response = _all_pass_response(poles, least)
    return np.append(np.cumsum(response[:0:-1] ** 2)[::-1], 0.0)


def _upper_end(W: Array, rank: int, lags: int) -> Array:
    """Upper bound (lags,) for a network with the modes of W and total ``rank``, as capacities fall with the lag."""
    share = np.minimum(1.0, rank / np.arange(1, lags + 1))
    try:
        return np.minimum(share, _capacity(eigenvalues(W), lags)[:lags])
    except ArgumentError:
        # a modulus too near 1, of a mode that the input may not even reach
        return share


def _all_pass_response(poles: Array, least: int) -> Array:
    """Impulse response ``b`` of the real all-pass filter with these poles, to its end, at least ``least + 1`` long.

    From samples of the product on the unit circle, where each factor has modulus 1; their number is doubled until
    aliasing is negligible.
    """
    lags = 1 << max(6, (4 * len(poles)).bit_length(), (2 * least).bit_length())
    while True:
        z = np.exp(-2j * np.pi * np.arange(lags // 2 + 1) / lags)
        product = np.ones_like(z)
        for pole in poles:
            product *= (z - pole.conjugate()) / (1 - pole * z)
        response = np.fft.irfft(product, lags)
        if float((response[lags // 2 :] ** 2).sum()) <= _ALIAS * lags:
            return response
        lags *= 2
        if lags > _MOST_LAGS:
            raise ArgumentError(
                f"the spectral radius of W, {np.abs(poles).max():.9g}, is so near 1 that the memory extends over more "
                f"than {_MOST_LAGS} lags; scale W down"
            )


def linear_network(W: ArrayLike, v: ArrayLike) -> tuple[Array, Array]:
    """Check the matrix and the input vector of a stable linear network, and return both in float64."""
    matrix = square_matrix(W, "W")
    vector = finite_numbers(v, "v")
    if vector.shape != (len(matrix),):
        raise ShapeError(f"v must have shape (N,) = ({len(matrix)},) to fit W, got {vector.shape}")
    values = eigenvalues(matrix)
    kind = stability(values, marginal_modes(matrix, values, rounding_of(matrix)))
    if kind != "decaying":
        radius = "1 to rounding" if kind == "marginal" else f"{np.abs(values).max():.6g}"
        raise ArgumentError(
            f"W must have a spectral radius below 1, got {radius}: the state of the linear network would have no "
            "stationary variance; scale W down"
        )
    return matrix, vector


def lag_table(values: Array, name: str) -> list[str]:
    """Some lags and their values, as lines to print."""
    shown = np.unique(np.linspace(0, len(values) - 1, _ROWS).round().astype(int))
    return [f"  {'lag':>8}  {name}", *(f"  {k:>8}  {values[k]:.4g}" for k in shown)]
