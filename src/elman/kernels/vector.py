"""One text for a formula, two things it runs on: vectors of LLVM's code generator, or NumPy arrays.

A formula is a plain function ``f(m, x, ...)`` that uses ``+ - * /``, comparisons, and the few operations of ``m``.
Bound to :class:`VectorOps` it emits straight-line vector code with explicit fused multiply-adds, so that no bit
depends on what an optimiser chooses to contract; bound to :class:`ArrayOps` it computes on arrays, which is what runs
under ``NUMBA_DISABLE_JIT=1`` (equal up to the rounding of the multiply-adds: NumPy has none).

:func:`elman.kernels.elementwise.elementwise` turns a formula into a loop over rows of padded vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

from .host import HOST


class Format(NamedTuple):
    """Layout of a floating-point format: what arithmetic on its bits needs to know.

    ``magic`` is 1.5 * 2**mantissa: adding it leaves the nearest integer in the low bits of the sum.
    """

    bits: int
    mantissa: int
    bias: int
    magic: float
    magic_bits: int


SINGLE = Format(32, 23, 127, 1.5 * 2.0**23, 0x4B400000)
DOUBLE = Format(64, 52, 1023, 1.5 * 2.0**52, 0x4338000000000000)


def lanes_of(itemsize: int) -> int:
    """Numbers in one vector."""
    return HOST.vector_bytes // itemsize


class Value:
    """Some LLVM vectors with operators; Python numbers become vectors of that constant.

    An operation is emitted for all of them before the next one: so chains of instructions that wait for their own
    results stand side by side, and a processor need not look far ahead to find work.
    """

    def __init__(self, builder: Any, parts: list[Any]) -> None:
        self.builder, self.parts, self.type = builder, parts, parts[0].type

    def operands(self, x: Any) -> list[Any]:
        """LLVM vectors of ``x``: its own, or a number in every lane."""
        if isinstance(x, Value):
            return x.parts
        x = float(np.float32(x)) if isinstance(self.type.element, ir.FloatType) else float(x)
        return [ir.Constant(self.type, [x] * self.type.count)] * len(self.parts)

    def emit(self, instruction: Callable[..., Any], *operands: Any) -> list[Any]:
        """One instruction for each part."""
        return [instruction(*parts) for parts in zip(*map(self.operands, operands), strict=True)]

    def _new(self, instruction: Callable[..., Any], *operands: Any) -> Value:
        return Value(self.builder, self.emit(instruction, *operands))

    def __add__(self, o: Any) -> Value:
        return self._new(self.builder.fadd, self, o)

    def __sub__(self, o: Any) -> Value:
        return self._new(self.builder.fsub, self, o)

    def __rsub__(self, o: Any) -> Value:
        return self._new(self.builder.fsub, o, self)

    def __mul__(self, o: Any) -> Value:
        return self._new(self.builder.fmul, self, o)

    def __truediv__(self, o: Any) -> Value:
        return self._new(self.builder.fdiv, self, o)

    def __rtruediv__(self, o: Any) -> Value:
        return self._new(self.builder.fdiv, o, self)

    def __neg__(self) -> Value:
        return self._new(self.builder.fneg, self)

    def __lt__(self, o: Any) -> Any:
        return self.emit(partial(self.builder.fcmp_ordered, "<"), self, o)

    def __gt__(self, o: Any) -> Any:
        return self.emit(partial(self.builder.fcmp_ordered, ">"), self, o)

    __radd__, __rmul__ = __add__, __mul__


class VectorOps:
    """Operations beyond ``+ - * /`` on :class:`Value`."""

    def __init__(self, element: Any) -> None:
        self.format = SINGLE if isinstance(element, ir.FloatType) else DOUBLE

    def _call(self, name: str, x: Value, *more: Any) -> Value:
        function = declare(x.builder, name, x.type, 1 + len(more))
        return Value(x.builder, x.emit(lambda *parts: x.builder.call(function, parts), x, *more))

    def fma(self, x: Value, y: Any, z: Any) -> Value:
        """Return x * y + z, rounded once."""
        return self._call("fma", x, y, z)

    def abs(self, x: Value) -> Value:
        """Magnitude."""
        return self._call("fabs", x)

    def copysign(self, x: Value, y: Value) -> Value:
        """Magnitude of x, sign of y."""
        return self._call("copysign", x, y)

    def where(self, mask: Any, x: Any, y: Any) -> Value:
        """Choose x where the mask holds, else y; at least one is a vector."""
        v = x if isinstance(x, Value) else y
        chosen = zip(mask, v.operands(x), v.operands(y), strict=True)
        return Value(v.builder, [v.builder.select(*parts) for parts in chosen])

    def pow2(self, t: Value) -> Value:
        """2**k for t = k + magic, from the bits of t: no conversion to integers, so a NaN does no harm."""
        bits, n = ir.VectorType(ir.IntType(self.format.bits), t.type.count), t.type.count
        shift = ir.Constant(bits, [self.format.magic_bits - self.format.bias] * n)
        places = ir.Constant(bits, [self.format.mantissa] * n)
        powers = t.emit(lambda x: t.builder.shl(t.builder.sub(t.builder.bitcast(x, bits), shift), places), t)
        return Value(t.builder, [t.builder.bitcast(x, t.type) for x in powers])

    def exponent(self, x: Value) -> Value:
        """K + magic for 2**k <= x < 2**(k + 1), x normal and positive: the inverse of :meth:`pow2`."""
        bits, n = ir.VectorType(ir.IntType(self.format.bits), x.type.count), x.type.count
        shift = ir.Constant(bits, [self.format.magic_bits - self.format.bias] * n)
        places = ir.Constant(bits, [self.format.mantissa] * n)
        b = x.builder
        sums = x.emit(lambda part: b.add(b.lshr(b.bitcast(part, bits), places), shift), x)
        return Value(b, [b.bitcast(part, x.type) for part in sums])


class ArrayOps:
    """The same operations on NumPy arrays of one dtype."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = np.dtype(dtype)
        self.format = SINGLE if self.dtype == np.float32 else DOUBLE

    abs, copysign = staticmethod(np.abs), staticmethod(np.copysign)

    def fma(self, x: Any, y: Any, z: Any) -> Any:
        """Return x * y + z, rounded twice."""
        return x * y + z

    def where(self, mask: Any, x: Any, y: Any) -> Any:
        """Choose x where the mask holds, else y."""
        return np.where(mask, x, y).astype(self.dtype, copy=False)

    def pow2(self, t: Any) -> Any:
        """2**k for t = k + magic; NaN for NaN."""
        k = t - self.dtype.type(self.format.magic)
        return np.where(np.isnan(k), k, np.ldexp(self.dtype.type(1), np.nan_to_num(k).astype(np.int32)))

    def exponent(self, x: Any) -> Any:
        """K + magic for 2**k <= x < 2**(k + 1), x normal and positive."""
        return (np.frexp(x)[1] - 1).astype(self.dtype) + self.dtype.type(self.format.magic)


def declare(builder: Any, name: str, vector: Any, arity: int) -> Any:
    """LLVM's intrinsic function ``name`` for a vector type: llvmlite's own declaration knows scalars only."""
    suffix = f"v{vector.count}f{32 if isinstance(vector.element, ir.FloatType) else 64}"
    signature = ir.FunctionType(vector, [vector] * arity)
    return cgutils.get_or_insert_function(builder.module, signature, f"llvm.{name}.{suffix}")


class Emitter:
    """Loads, stores and addresses of whole vectors in one dtype."""

    def __init__(self, builder: Any, element: Any) -> None:
        self.builder, self.element = builder, element
        self.itemsize = 4 if isinstance(element, ir.FloatType) else 8
        self.lanes = lanes_of(self.itemsize)
        self.vector = ir.VectorType(element, self.lanes)

    def load(self, pointer: Any, offset: Any) -> Any:
        """Vector at ``pointer[offset:]``."""
        at = self.builder.bitcast(self.builder.gep(pointer, [offset]), self.vector.as_pointer())
        return self.builder.load(at, align=self.itemsize)

    def store(self, value: Any, pointer: Any, offset: Any) -> None:
        """Write a vector to ``pointer[offset:]``."""
        at = self.builder.bitcast(self.builder.gep(pointer, [offset]), self.vector.as_pointer())
        self.builder.store(value, at, align=self.itemsize)

    def at(self, offset: Any, stride: Any, n: int) -> Any:
        """Offset + n * stride."""
        return self.builder.add(offset, self.builder.mul(stride, ir.Constant(offset.type, n)))

    def zero(self) -> Any:
        """A vector of zeros."""
        return ir.Constant(self.vector, [0.0] * self.lanes)

    def loop(self, count: Any, carried: list[Any], body: Callable[[Any, list[Any]], list[Any]]) -> list[Any]:
        """Emit ``for i in range(count): carried = body(i, carried)`` with values in registers; count may be 0."""
        b = self.builder
        before, inside, after = b.basic_block, b.append_basic_block("loop"), b.append_basic_block("done")
        zero = ir.Constant(count.type, 0)
        b.cbranch(b.icmp_signed(">", count, zero), inside, after)
        b.position_at_end(inside)
        i, phis = b.phi(count.type), [b.phi(v.type) for v in carried]
        new = body(i, phis)
        end, following = b.basic_block, b.add(i, ir.Constant(count.type, 1))
        _never_unroll(b, b.cbranch(b.icmp_signed("<", following, count), inside, after))
        for phi, first, last in zip([i, *phis], [zero, *carried], [following, *new], strict=True):
            phi.add_incoming(first, before)
            phi.add_incoming(last, end)
        b.position_at_end(after)
        out = []
        for first, last in zip(carried, new, strict=True):
            phi = b.phi(first.type)
            phi.add_incoming(first, before)
            phi.add_incoming(last, end)
            out.append(phi)
        return out


def _never_unroll(builder: Any, branch: Any) -> None:
    """Mark a loop by its backward branch: unrolling fills more registers than there are, and a spill costs far more."""
    module = builder.module
    disable = module.add_metadata([ir.MetaDataString(module, "llvm.loop.unroll.disable")])
    # a loop is known by a node whose first operand is the node itself
    loop = ir.MDValue(module, [disable], name=str(len(module.metadata)))
    loop.operands = (loop, disable)
    branch.set_metadata("llvm.loop", loop)


def pointers(context: Any, builder: Any, signature: Any, args: Any, which: Any) -> list[Any]:
    """Data pointers of the array arguments at positions ``which``."""
    return [context.make_array(signature.args[i])(context, builder, args[i]).data for i in which]


def _lanes(array: Any) -> int:
    return lanes_of(array.itemsize)


def _lanes_generator(typing: Any, array: Any) -> Any:
    itemsize = array.dtype.bitwidth // 8
    return types.intp(array), lambda c, b, s, a: ir.Constant(c.get_value_type(types.intp), lanes_of(itemsize))


lanes: Any = _lanes if config.DISABLE_JIT else intrinsic(_lanes_generator)
"""``lanes(array)``: numbers in a vector of the array's dtype; a constant in compiled code."""
