r"""Modes on the unit circle within rounding, so that it is unknown whether they grow or decay.

A computed modulus of 1 + 1e-16 says nothing: the matrix has been rounded, and so has every step of the eigenvalue
algorithm, which gives the eigenvalues of some ``W + E`` with ``|E|`` of the size of rounding. A mode is *marginal* if
such a matrix has an eigenvalue on the unit circle at its angle,

.. math:: \sigma_{\min}(zI - W) \le \text{rounding}, \qquad z = \lambda / |\lambda| .

For a simple eigenvalue, this allows a distance to the circle of its condition times the rounding (Wilkinson 1965), and
for a Jordan block of size m the m-th root of that; the test is the same for both.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import scipy.linalg

from ...linearization import Array
from ..matrices import SEVERAL
from .resolvent import inverse_norm

Stability = Literal["decaying", "marginal", "growing"]

# No mode farther than this from the circle is marginal: it would take a Jordan block of size more than ten.
NEAR = 0.05
# The conditions of nearly equal eigenvalues are known only to an order of magnitude: beyond this factor it is certain.
_MARGIN = 1e3


def marginal_modes(W: Array, eigenvalues: Array, rounding: float) -> Array:
    """Which eigenvalues have modulus 1 within rounding.

    Parameters
    ----------
    W : ndarray, shape (H, H)
    eigenvalues : ndarray, shape (H,)
        Of W as computed, in any order.
    rounding : float
        Spectral norm of the changes of W that count as rounding.

    Returns
    -------
    ndarray of bool, shape (H,)
    """
    distance = np.abs(np.abs(eigenvalues) - 1)
    # sigma_min is at most the distance to the nearest eigenvalue
    marginal = np.asarray(distance <= rounding)
    doubtful = ~marginal & (distance <= NEAR)
    if doubtful.any():
        conditions = _conditions_of(W, eigenvalues)
        doubtful &= distance <= _MARGIN * conditions * rounding
    if doubtful.any():
        triangular = scipy.linalg.schur(W, output="complex")[0]
        for i in np.flatnonzero(doubtful):
            z = eigenvalues[i] / abs(eigenvalues[i])
            marginal[i] = 1 / inverse_norm(np.asfortranarray(z * np.eye(len(W)) - triangular)) <= rounding
    return marginal


def stability(eigenvalues: Array, marginal: Array) -> Stability:
    """Whether a mode grows, none grows but some are marginal, or all of them decay."""
    if (np.asarray(np.abs(eigenvalues) > 1) & ~marginal).any():
        return "growing"
    return "marginal" if marginal.any() else "decaying"


def modes_in_words(eigenvalues: Array, marginal: Array) -> str:
    """How many modes there are of each kind, in words."""
    growing = int(np.count_nonzero((np.abs(eigenvalues) > 1) & ~marginal))
    level = int(np.count_nonzero(marginal))
    decaying = len(eigenvalues) - growing - level
    return f"{decaying} modes decay, {level} marginal (modulus 1 within rounding), {growing} grow"


def slowest_mode(eigenvalues: Array, marginal: Array) -> tuple[float | None, str]:
    """Time constant of the outermost mode in steps, and a description of it; None if the mode grows."""
    radius, kind = float(np.abs(eigenvalues).max()), stability(eigenvalues, marginal)
    if kind == "growing":
        return None, f"none: it grows, by e in {1 / np.log(radius):.6g} steps, undriven and linear"
    if kind == "marginal":
        return float("inf"), "marginal: it does not decay, to rounding"
    return float(time_constants(eigenvalues, marginal).max()), "steps to fall by e, undriven and linear"


def time_constants(eigenvalues: Array, marginal: Array) -> Array:
    """``-1 / log |lambda|`` in steps: 0 for an eigenvalue 0, inf for a marginal mode, NaN for a mode that grows."""
    with np.errstate(divide="ignore"):
        decay = -np.log(np.abs(eigenvalues))
        out: Array = np.where(marginal, np.inf, np.where(decay > 0, 1 / np.abs(decay), np.nan))
    return out


def semisimple(W: Array, eigenvalues: Array, marginal: Array, rounding: float) -> bool:
    """Whether the marginal modes have a full set of eigenvectors within rounding, so that powers of W stay bounded.

    Eigenvalues that are equal within rounding form a group. On its invariant subspace, W either is a multiple of the
    identity, within rounding times the norm of the projection onto it, or has a Jordan block.

    Parameters
    ----------
    W : ndarray, shape (H, H)
    eigenvalues, marginal : ndarrays, shape (H,)
        All eigenvalues, and which of them are marginal.
    rounding : float
        As for :func:`marginal_modes`.

    Returns
    -------
    bool
    """
    values = eigenvalues[marginal]
    reach = np.minimum(NEAR, SEVERAL * _conditions_of(W, eigenvalues)[marginal] * rounding)
    left = np.arange(len(values))
    while len(left):
        group, before = left[:1], 0
        while len(group) > before:
            before = len(group)
            apart = np.abs(values[left, None] - values[group])
            group = left[(apart <= np.minimum(reach[left, None], reach[group])).any(axis=1) | np.isin(left, group)]
        if len(group) > 1:
            centre = values[group].mean()
            distance = np.abs(eigenvalues - centre)
            spread = distance[np.isin(eigenvalues, values[group])].max()
            # wide enough for where another decomposition puts them, without reaching other eigenvalues
            others = distance[distance > spread]
            free = min(reach[group].max(), (others.min(initial=np.inf) - spread) / 2)
            if not _is_scalar(W, centre, spread + free, rounding):
                return False
        left = np.setdiff1d(left, group)
    return True


def _is_scalar(W: Array, centre: complex, radius: float, rounding: float) -> bool:
    """Whether W is a multiple of the identity within rounding on the invariant subspace of eigenvalues in a disc."""
    schur: Any = scipy.linalg.schur
    triangular, _, m = schur(W.astype(np.complex128), output="complex", sort=lambda z: abs(z - centre) <= radius)
    block = triangular[:m, :m] - centre * np.eye(m)
    # [I, X] maps W to the block: the projection along the other modes has norm sqrt(1 + |X|^2)
    others = scipy.linalg.solve_sylvester(triangular[:m, :m], -triangular[m:, m:], triangular[:m, m:])
    projection = np.hypot(1, np.linalg.norm(others))
    return bool(np.linalg.norm(block) <= SEVERAL * rounding * projection)


def _conditions_of(W: Array, eigenvalues: Array) -> Array:
    """Condition (H,) of each eigenvalue, ``1 / |y^* x|`` for unit left and right eigenvectors; inf if defective."""
    decomposition: Any = scipy.linalg.eig(W, left=True, right=True)
    values, left, right = decomposition
    overlap = np.abs((left.conj() * right).sum(axis=0))
    with np.errstate(divide="ignore"):
        conditions = 1 / overlap
    # decompositions with and without vectors differ by rounding
    nearest: Array = conditions[np.abs(eigenvalues[:, None] - values).argmin(axis=1)]
    return nearest
