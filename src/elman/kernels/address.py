"""Calls of one kernel by another through its address.

For loops around the kernels of any cell: numba would compile a kernel that is passed as a function into the loop, once
for each cell, and not find the result in the cache on disk. An address is a number, so the loop is compiled once for
all cells, and uses the machine code that a cell's kernel already has.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, from_dtype, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array


class Convention:
    """How kernels of one kind are called: one specification for the caller and for the kernel's machine code.

    Parameters
    ----------
    arguments : str
        A letter for each: ``r`` a flat array of the dtype of the computation, ``d`` one of float64, ``n`` one of int64,
        ``i`` an integer. A capital stands for an array that is given with an offset, and the kernel gets the part after
        it. Blanks are ignored.
    returns : {"i", ""}
        Whether the kernel returns an integer, or nothing.

    Attributes
    ----------
    call : callable
        To be used in compiled code: ``call(address, *arguments)``.
    """

    def __init__(self, arguments: str, returns: str) -> None:
        self.arguments, self.returns = arguments.replace(" ", ""), types.intp if returns else types.void
        self.call: Any = _python_caller(self) if config.DISABLE_JIT else _caller(self)

    def types(self, real: Any) -> tuple[Any, ...]:
        """The types of the arguments, if numbers have the type ``real``."""
        flat = {letter: types.Array(of, 1, "C") for letter, of in (("r", real), ("d", types.f8), ("n", types.i8))}
        return tuple(flat.get(letter, types.intp) for letter in self.arguments.lower())

    def address(self, kernel: Any, dtype: np.dtype[Any]) -> Any:
        """The address of a kernel's machine code for a dtype; the code is compiled or read from disk if necessary.

        Raises
        ------
        TypeError
            If the kernel returns something else.
        """
        return kernel if config.DISABLE_JIT else _address(self, kernel, dtype)


@cache
def _address(convention: Convention, kernel: Any, dtype: np.dtype[Any]) -> int:
    signature = convention.types(from_dtype(dtype))
    kernel.compile(signature)
    made = kernel.overloads[signature]
    if made.signature.return_type != convention.returns:
        raise TypeError(f"{kernel.__name__} must return {convention.returns}, but returns {made.signature.return_type}")
    address: int = made.library.get_pointer_to_function(made.fndesc.llvm_func_name)
    return address


def _python_caller(convention: Convention) -> Callable[..., Any]:
    """A caller of Python functions, for runs without the JIT."""

    def call(kernel: Callable[..., Any], *args: Any) -> Any:
        given = iter(args)
        return kernel(*(next(given)[next(given) :] if c.isupper() else next(given) for c in convention.arguments))

    return call


def _caller(convention: Convention) -> Any:
    """The intrinsic that calls an address."""
    letters = "".join(c + "i" if c.isupper() else c for c in convention.arguments)
    arrays = [i for i, c in enumerate(letters) if c != "i"]

    def apply(typing: Any, address: Any, *args: Any) -> Any:
        wanted = convention.types(args[letters.lower().index("r")].dtype)
        flat = [t for t in wanted if isinstance(t, types.Array)]
        for i, t in zip(arrays, flat, strict=True):
            a = args[i]
            if not isinstance(a, types.Array) or (a.dtype, a.ndim, a.layout) != (t.dtype, 1, "C"):
                return None

        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            kind = context.call_conv.get_function_type(convention.returns, wanted)
            callee = builder.inttoptr(values[0], ir.PointerType(kind))
            given = iter(zip(signature.args[1:], values[1:], strict=True))
            passed = []
            for letter in convention.arguments:
                of, value = next(given)
                passed.append(_after(context, builder, of, value, next(given)[1]) if letter.isupper() else value)
            status, result = context.call_conv.call_function(builder, callee, convention.returns, wanted, passed)
            with cgutils.if_unlikely(builder, status.is_error):
                context.call_conv.return_status_propagate(builder, status)
            return result

        # for machine code it makes no difference whether an array is read-only
        operands = (a if i in arrays else types.intp for i, a in enumerate(args))
        return convention.returns(types.intp, *operands), codegen

    names = ["typing", "address", *(f"a{i}" for i in range(len(letters)))]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    apply.__signature__ = inspect.Signature([inspect.Parameter(n, kind) for n in names])
    return intrinsic(apply)


def _after(context: Any, builder: Any, of: Any, value: Any, offset: Any) -> Any:
    """The part of a flat array after an offset; a slice would count references twice at every call."""
    array = context.make_array(of)(context, builder, value)
    part = context.make_array(of)(context, builder)
    populate_array(
        part, data=builder.gep(array.data, [offset]), shape=[builder.sub(array.nitems, offset)],
        strides=cgutils.unpack_tuple(builder, array.strides, 1), itemsize=array.itemsize, meminfo=array.meminfo,
        parent=array.parent,
    )  # fmt: skip
    return part._getvalue()
