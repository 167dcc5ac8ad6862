"""Dual numbers: a formula applied to them computes its value and its derivative along a direction.

``(a + eps b) (c + eps d) = a c + eps (a d + b c)``, with ``eps**2 = 0`` (W. K. Clifford 1873; R. E. Wengert,
Communications of the ACM 7 (1964) 463). The two parts are whatever a formula runs on: LLVM vectors or NumPy arrays. So
the formulas of a cell, which are its equations and their first derivatives, give second derivatives without change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Dual:
    """A value and its derivative along the direction; None for a derivative of zero."""

    def __init__(self, value: Any, tangent: Any = None) -> None:
        self.value, self.tangent = value, tangent

    def __add__(self, o: Any) -> Dual:
        return Dual(self.value + _value(o), _sum(self.tangent, _tangent(o)))

    def __sub__(self, o: Any) -> Dual:
        return Dual(self.value - _value(o), _sum(self.tangent, _negative(_tangent(o))))

    def __rsub__(self, o: Any) -> Dual:
        return Dual(o - self.value, _negative(self.tangent))

    def __mul__(self, o: Any) -> Dual:
        value = _value(o)
        return Dual(self.value * value, _sum(_times(self.tangent, value), _times(_tangent(o), self.value)))

    def __truediv__(self, o: Any) -> Dual:
        value = self.value / _value(o)
        change = _sum(self.tangent, _negative(_times(_tangent(o), value)))
        return Dual(value, None if change is None else change / _value(o))

    def __rtruediv__(self, o: Any) -> Dual:
        value = o / self.value
        return Dual(value, None if self.tangent is None else _negative(self.tangent * value) / self.value)

    def __neg__(self) -> Dual:
        return Dual(-self.value, _negative(self.tangent))

    def __lt__(self, o: Any) -> Any:
        return self.value < _value(o)

    def __gt__(self, o: Any) -> Any:
        return self.value > _value(o)

    __radd__, __rmul__ = __add__, __mul__


class DualOps:
    """The operations of a formula on :class:`Dual`.

    Parameters
    ----------
    inner : VectorOps or ArrayOps
        The operations on the parts.
    """

    def __init__(self, inner: Any) -> None:
        self.inner, self.format = inner, inner.format

    def chain(self, f: Callable[..., Any], slope: Callable[..., Any], x: Any) -> Dual:
        """Apply a nonlinearity by its derivative: ``slope(m, y, t)`` is ``f'(x) t``, from the output y."""
        y = f(self.inner, _value(x))
        change = _tangent(x)
        return Dual(y, None if change is None else slope(self.inner, y, change))

    def fma(self, x: Any, y: Any, z: Any) -> Dual:
        """The sum x * y + z, its value rounded once."""
        value = self.inner.fma(_value(x), _value(y), _value(z))
        product = _sum(_times(_tangent(x), _value(y)), _times(_tangent(y), _value(x)))
        return Dual(value, _sum(product, _tangent(z)))

    def where(self, mask: Any, x: Any, y: Any) -> Dual:
        """Choose x where the mask holds, else y."""
        value, changes = self.inner.where(mask, _value(x), _value(y)), [_tangent(x), _tangent(y)]
        if all(c is None for c in changes):
            return Dual(value)
        return Dual(value, self.inner.where(mask, *(0.0 if c is None else c for c in changes)))

    def abs(self, x: Any) -> Dual:
        """Magnitude; the slope at 0 is 1."""
        return self.where(x < 0.0, -x, x)

    def copysign(self, x: Any, y: Any) -> Dual:
        """Magnitude of x, sign of y."""
        size = self.abs(x)
        return self.where(y < 0.0, -size, size)


def _value(x: Any) -> Any:
    return x.value if isinstance(x, Dual) else x


def _tangent(x: Any) -> Any:
    return x.tangent if isinstance(x, Dual) else None


def _sum(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else a + b


def _times(a: Any, b: Any) -> Any:
    return None if a is None else a * b


def _negative(a: Any) -> Any:
    return None if a is None else -a
