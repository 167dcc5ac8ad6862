"""How many dimensions of a linear network its input reaches, up to the rounding of its entries.

The rank of ``v, W v, W^2 v, ...`` is a sum over the distinct eigenvalues of W: each gives as many dimensions as ``v``
has generations in its invariant subspace. Krylov vectors themselves cannot tell: normalising amplifies, step by step,
what rounding has left in directions that are not there. Eigenvalues of a cluster are told apart in its own small
subspace, where rounding enters once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg

from ..linearization import Array

EPS = np.finfo(np.float64).eps


def reachable_dimensions(W: Array, v: Array) -> int:
    """Smallest rank of ``v, W v, W^2 v, ...`` that rounding of W and v may have hidden.

    Parameters
    ----------
    W : ndarray, shape (N, N), float64
    v : ndarray, shape (N,), float64

    Returns
    -------
    int
        0 if v is 0.
    """
    largest, size = float(np.abs(v).max()), float(np.abs(W).max())
    if largest == 0:
        return 0
    matrix, vector = W / (size or 1.0), v / largest
    vector = vector / np.linalg.norm(vector)
    rounding = 10 * len(v) * EPS * max(float(np.linalg.norm(matrix, 2)), EPS)
    triangular, basis = scipy.linalg.schur(matrix.T, output="complex")
    normal = float(np.linalg.norm(np.triu(triangular, 1))) <= rounding
    if normal:
        values = np.diag(triangular)
    else:
        of_left: Any = scipy.linalg.eig(matrix, left=True, right=False)
        values, basis = of_left
    total = 0
    # rounding spreads a Jordan block of size m over its m-th root; a cluster too many costs nothing
    for members in _clusters(values, rounding**0.25):
        others = np.delete(values, members)
        gap = float(np.abs(others[:, None] - values[members]).min(initial=np.inf))
        left = basis[:, members] if normal or len(members) == 1 else _left_subspace(matrix, values, members)
        block, part = left.conj().T @ matrix @ left, left.conj().T @ vector
        # the subspace itself is known up to rounding over the distance to the rest of the spectrum
        total += _generations(block, part, rounding, rounding / min(1.0, gap))
    return total


def _clusters(values: Array, width: float) -> list[Array]:
    """Indices of eigenvalues that hang together by steps of at most ``width``."""
    left, found = set(range(len(values))), []
    while left:
        group, fresh = set(), {left.pop()}
        while fresh:
            i = fresh.pop()
            group.add(i)
            near = {j for j in left if abs(values[j] - values[i]) <= width}
            left -= near
            fresh |= near
        found.append(np.array(sorted(group)))
    return found


def _left_subspace(matrix: Array, values: Array, members: Array) -> Array:
    """Orthonormal basis (N, m) of the left invariant subspace that belongs to a cluster of eigenvalues."""
    chosen = set(members.tolist())

    def selected(z: complex) -> bool:
        return int(np.argmin(np.abs(values - z))) in chosen

    choose: Any = selected  # the stubs know neither this callable nor the count that comes with it
    ordered: Any = scipy.linalg.schur(matrix.T, output="complex", sort=choose)
    _, basis, count = ordered
    # left vectors of W are the conjugates of right vectors of its transpose
    space: Array = basis[:, : int(count)]
    return space


def _generations(block: Array, part: Array, rounding: float, direction: float) -> int:
    """Rank of ``part, block part, ...``, whose entries are known up to ``rounding``, and ``part`` to ``direction``.

    ``u^H W = B u^H`` holds for the conjugate basis too, so either serves.
    """
    norm = float(np.linalg.norm(part))
    if norm <= direction:
        return 0
    m = len(part)
    block = block - np.trace(block) / m * np.eye(m)
    size, error = float(np.linalg.norm(block, 2)), direction / norm
    basis = [part / norm]
    while len(basis) < m:
        w = block @ basis[-1]
        for _ in range(2):
            for q in basis:
                w = w - np.vdot(q, w) * q
        rest, error = float(np.linalg.norm(w)), size * error + rounding
        if rest <= error:
            break
        error /= rest
        basis.append(w / rest)
    return len(basis)
