"""Subnormal numbers count as zero: the processor's own mode for this is on while compiled code runs.

Below the smallest normal number a format has fewer and fewer digits, and many processors compute there a hundred times
more slowly. A gradient that vanishes, a state that decays or a square in an optimizer passes through such numbers, and
may stay there for long. In this mode an operation treats a subnormal operand as zero and returns zero, of the same
sign, instead of a subnormal result. The rule applies to each single operation on one number: so no bit depends on
batch, chunks, threads or the length of vectors, and intermediate products and squares follow it, too.

The mode belongs to the thread, and thus also to the caller, whose own results it would change. Therefore it is switched
on around each call from Python, in the function that numba makes to unpack the arguments, and restored afterwards. The
kernel is called there as a separate function that is not inlined: no arithmetic can move out of the mode, and no kernel
needs any code for it.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from llvmlite import ir
from numba import config, njit, types
from numba.core import cgutils
from numba.core.callconv import RETCODE_EXC
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
FPCR (Arm ARM, C5.2.8), which does both. Elsewhere the mode is not known, and nothing is switched."""

MODE = ir.IntType(32 if X86 else 64)
"""Type of the register that holds it."""


def _call(builder: Any, name: str, result: Any, *args: Any) -> Any:
    signature = ir.FunctionType(result, [a.type for a in args])
    return builder.call(cgutils.get_or_insert_function(builder.module, signature, name), args)


def _get(builder: Any, place: Any) -> Any:
    """The thread's mode; ``place`` points to memory to which x86 writes it."""
    if ARM:
        return _call(builder, "llvm.aarch64.get.fpcr", MODE)
    _call(builder, "llvm.x86.sse.stmxcsr", ir.VoidType(), builder.bitcast(place, cgutils.voidptr_t))
    return builder.load(place)


def _set(builder: Any, place: Any, mode: Any) -> None:
    """Make it the thread's mode."""
    if ARM:
        _call(builder, "llvm.aarch64.set.fpcr", ir.VoidType(), mode)
    else:
        builder.store(mode, place)
        _call(builder, "llvm.x86.sse.ldmxcsr", ir.VoidType(), builder.bitcast(place, cgutils.voidptr_t))


class _Library:
    """A library of machine code that adds the switch of the mode to the wrapper called from Python."""

    def __init__(self, library: Any, kernel: str) -> None:
        self.library, self.kernel = library, kernel

    def add_ir_module(self, module: Any) -> None:
        """Switch the mode around the single call of the kernel."""
        calls = [
            (block, instruction)
            for function in module.functions
            for block in function.blocks
            for instruction in block.instructions
            if isinstance(instruction, ir.CallInstr) and instruction.callee.name == self.kernel
        ]
        ((block, call),) = calls
        builder = ir.IRBuilder(block)
        place = cgutils.alloca_once(builder, MODE)  # moves the builder
        builder.position_before(call)
        before = _get(builder, place)
        _set(builder, place, builder.or_(before, ir.Constant(before.type, FLUSH)))
        builder.position_after(call)
        _set(builder, place, before)
        self.library.add_ir_module(module)


class _Lower(Lower):
    def create_cpython_wrapper(self, release_gil: bool = False) -> None:
        """As numba's, with the switch of the mode."""
        self.context.create_cpython_wrapper(
            _Library(self.library, self.fndesc.llvm_func_name), self.fndesc, self.env, self.call_helper,
            release_gil=release_gil,
        )  # fmt: skip


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(NativeLowering):
    _name = "native_lowering_without_subnormals"

    lowering_class = _Lower


class Flushing(CompilerBase):
    """numba's compiler, for functions in which subnormal numbers count as zero."""

    def define_pipelines(self) -> list[Any]:
        """The usual passes, with the wrapper for calls from Python made here if the mode is known."""
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        if FLUSH:
            passes.passes = [(_Lowering if each is NativeLowering else each, text) for each, text in passes.passes]
            passes.finalize()
        return [passes]


@intrinsic
def _call_object(typing: Any, address: Any) -> Any:
    """Call the Python object at an address without arguments; the compiled function raises what it raises."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        python = context.get_python_api(builder)
        result = python.call_function_objargs(builder.inttoptr(args[0], python.pyobj), ())
        with builder.if_then(cgutils.is_null(builder, result), likely=False):
            builder.ret(RETCODE_EXC)
        python.decref(result)
        return context.get_dummy_value()

    return types.void(types.intp), codegen


RUN: dict[str, Any] = {"no_cfunc_wrapper": True, "pipeline_class": Flushing}


def _call_flushed(address):
    _call_object(address)


_run = keep(njit(**RUN)(_call_flushed))


def flush(function: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
    """Call a function in which NumPy counts subnormal numbers as zero.

    Parameters
    ----------
    function : callable
        The function; its computations with NumPy run on the calling thread.
    *args, **kwargs
        Arguments of the call.

    Returns
    -------
    object
        What the function returns. The caller's mode is restored when it returns or raises. Without the JIT, or if the
        mode is not known, the function is simply called.
    """
    if config.DISABLE_JIT or not FLUSH:
        return function(*args, **kwargs)
    results: list[Result] = []

    def work() -> None:
        results.append(function(*args, **kwargs))

    # no Python code runs between the switch and the call, so that no signal can raise there and leave the mode on
    _run(id(work))
    return results[0]


def flushed(function: Callable[P, Result]) -> Callable[P, Result]:
    """Decorate a function so that it is always called by :func:`flush`."""

    @functools.wraps(function)
    def inside(*args: P.args, **kwargs: P.kwargs) -> Result:
        return flush(function, *args, **kwargs)

    return inside
