"""Subnormal numbers count as zero: the processor's own mode for that, on while compiled code runs.

Below the smallest normal number a format has ever fewer digits, and many processors compute there a hundred times more
slowly. A gradient that vanishes, a state that dies or a square in an optimizer passes through such numbers, and then
waits there. In the mode an operation takes a subnormal operand for zero and gives zero, of the same sign, instead of a
subnormal result. It is a rule for each single operation on one number: so no bit depends on batch, chunks, threads or
the length of vectors, and products and squares on the way obey it, too.

The mode is that of a thread, and the caller's: NumPy's results would change. So it is switched on around each call from
Python, in the function that numba makes to unpack the arguments, and is as it was after it. There the kernel is called
as a function of its own that cannot be merged into its surroundings: no arithmetic is moved out of the mode, and kernels
need no line for it.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from llvmlite import ir
from numba import config, njit, types
from numba.core import cgutils
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.lowering import Lower
from numba.core.typed_passes import NativeLowering
from numba.extending import intrinsic

from .cache import keep

P = ParamSpec("P")
Result = TypeVar("Result")

MACHINE = platform.machine().lower()

X86, ARM = MACHINE in ("x86_64", "amd64", "i386", "i686"), MACHINE in ("arm64", "aarch64")

FLUSH = 0x8040 if X86 else 1 << 24 if ARM else 0
"""x86: flush to zero (bit 15) and denormals are zero (bit 6) of MXCSR (Intel SDM, volume 1, 10.2.3). ARM: FZ, bit 24 of
FPCR (Arm ARM, C5.2.8), which is both. Elsewhere the mode is not known, and nothing is switched."""


def _call(builder: Any, name: str, result: Any, *args: Any) -> Any:
    signature = ir.FunctionType(result, [a.type for a in args])
    return builder.call(cgutils.get_or_insert_function(builder.module, signature, name), args)


def _place(builder: Any) -> Any:
    """Memory of the function that x86 reads and writes the mode by; the builder goes to the end of its block."""
    return cgutils.alloca_once(builder, ir.IntType(64))


def _get(builder: Any, place: Any) -> Any:
    """The thread's mode, 64 bits."""
    if ARM:
        return _call(builder, "llvm.aarch64.get.fpcr", ir.IntType(64))
    builder.store(ir.Constant(ir.IntType(64), 0), place)
    if X86:
        _call(builder, "llvm.x86.sse.stmxcsr", ir.VoidType(), builder.bitcast(place, cgutils.voidptr_t))
    return builder.load(place)


def _set(builder: Any, place: Any, mode: Any) -> None:
    """Make it the thread's mode."""
    if ARM:
        _call(builder, "llvm.aarch64.set.fpcr", ir.VoidType(), mode)
    elif X86:
        builder.store(mode, place)
        _call(builder, "llvm.x86.sse.ldmxcsr", ir.VoidType(), builder.bitcast(place, cgutils.voidptr_t))


class _Library:
    """A library of machine code that switches the mode in the way in from Python before it takes it."""

    def __init__(self, library: Any, kernel: str) -> None:
        self.library, self.kernel = library, kernel

    def add_ir_module(self, module: Any) -> None:
        """Switch around the one call of the kernel."""
        calls = [
            (block, instruction)
            for function in module.functions
            for block in function.blocks
            for instruction in block.instructions
            if isinstance(instruction, ir.CallInstr) and instruction.callee.name == self.kernel
        ]
        ((block, call),) = calls
        builder = ir.IRBuilder(block)
        place = _place(builder)
        builder.position_before(call)
        before = _get(builder, place)
        _set(builder, place, builder.or_(before, ir.Constant(before.type, FLUSH)))
        builder.position_after(call)
        _set(builder, place, before)
        self.library.add_ir_module(module)


class _Lower(Lower):  # type: ignore[misc]
    def create_cpython_wrapper(self, release_gil: bool = False) -> None:
        """As numba's, with the switch."""
        self.context.create_cpython_wrapper(
            _Library(self.library, self.fndesc.llvm_func_name), self.fndesc, self.env, self.call_helper,
            release_gil=release_gil,
        )  # fmt: skip


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(NativeLowering):  # type: ignore[misc]
    _name = "native_lowering_without_subnormals"

    lowering_class = _Lower


class Flushing(CompilerBase):  # type: ignore[misc]
    """numba's compiler, for functions in which subnormal numbers count as zero."""

    def define_pipelines(self) -> list[Any]:
        """The usual passes, with the way in from Python made here."""
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.passes = [(_Lowering if each is NativeLowering else each, text) for each, text in passes.passes]
        passes.finalize()
        return [passes]


@intrinsic
def _get_mode(typing: Any) -> Any:
    return types.int64(), lambda context, builder, signature, args: _get(builder, _place(builder))


@intrinsic
def _set_mode(typing: Any, mode: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _set(builder, _place(builder), args[0])
        return context.get_dummy_value()

    return types.void(types.int64), codegen


def _compiled(function: Callable[..., Any]) -> Any:
    """A function whose way in from Python leaves the mode alone."""
    return keep(njit(no_cfunc_wrapper=True)(function))


@_compiled
def mode():
    """The mode of the calling thread: bits of a register, 0 where it is not known."""
    return _get_mode()


@_compiled
def set_mode(bits):
    """Set the mode of the calling thread."""
    _set_mode(bits)


def flushed(function: Callable[P, Result]) -> Callable[P, Result]:
    """Have NumPy count subnormal numbers as zero while a function runs.

    Parameters
    ----------
    function : callable
        What it computes with NumPy is computed on the calling thread.

    Returns
    -------
    callable
        The same; the mode is the caller's again when it returns or raises. Without the JIT, or where the mode is not
        known, it is the function itself.
    """
    if config.DISABLE_JIT or not FLUSH:
        return function

    @functools.wraps(function)
    def inside(*args: P.args, **kwargs: P.kwargs) -> Result:
        before = mode()
        # a signal is handled between calls: within the block the mode is restored, and before it nothing is changed
        try:
            set_mode(before | FLUSH)
            return function(*args, **kwargs)
        finally:
            set_mode(before)

    return inside
