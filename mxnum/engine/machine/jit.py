"""Compiling the dialect with numba: loops, and the kernels that they call by address.

An outer loop runs over an array, and takes a second to compile. A kernel is the inner loop over the
elements of one panel, and takes a fifth of a second to compile. So an outer loop receives the
address of a kernel at run time, and one compiled outer loop serves many formats. Calling a kernel
costs a few nanoseconds for each panel.

Many loops first find the scales of a group of blocks, and then convert the group. The first step
reads memory, and the second step reads the cache. Hardware prefetchers predict neither when a loop
reads memory nor where it writes. So loops prefetch explicitly, with `ask_for`, and data arrive from
memory during both steps.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils, errors
from numba.core.typing.templates import infer, infer_global, make_intrinsic_template
from numba.extending import intrinsic, overload, register_jitable
from numba.np.arrayobj import make_array
from numba.np.numpy_support import from_dtype

from mxnum.definition import word
from mxnum.engine.machine import loop_cache

#: numba's options for functions that are inlined into compiled code. Such functions need no wrapper
#: for calls from C.
INLINED = {"forceinline": True, "no_cfunc_wrapper": True}
#: numba's options for functions that are not inlined, so that they can use all registers.
NOT_INLINED = {"no_cfunc_wrapper": True, "error_model": "numpy", "forceinline": False}

#: The type of `where`, the last argument of every kernel: eight integers such as the index of the
#: first element and the number of rows.
_WHERE = types.UniTuple(types.int64, 8)
#: How many bytes ahead loops prefetch: `READ_AHEAD` for memory that they will read, `WRITE_AHEAD`
#: for memory that they will write.
READ_AHEAD, WRITE_AHEAD = 8192, 2048
#: How many elements a loop prefetches at once: `PART` to quantize, `LONG_PART` to decode. Kernels
#: compiled for one block length prefetch one block at once.
PART, LONG_PART = 64, 256
#: The size of a cache line in bytes.
_LINE = 64

_registered: set[Callable[..., Any]] = set()

#: Every compiled kernel, with the array whose address `for_types` returns. Loops hold only the
#: address, so `_in_use` keeps the kernel and the array alive. If two threads make the same kernel
#: at once, a cache keeps only one of the two `Kernel` objects. A loop may still hold the address of
#: the other object's array.
_in_use: list[Any] = []


@overload(word.select, jit_options=INLINED)
def _compile_select(condition, if_true, if_false):
    def choose(condition, if_true, if_false):
        return if_true if condition else if_false

    return choose


def _dialect_calls(function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Yield the dialect functions that `function` refers to, by its closure or by global names."""
    code = function.__code__
    for cell in function.__closure__ or ():
        if word.is_dialect(cell.cell_contents):
            yield cell.cell_contents
    for name in code.co_names:
        if word.is_dialect(function.__globals__.get(name)):
            yield function.__globals__[name]


def register(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a dialect function, and all dialect functions it calls, callable from compiled code.

    Return `function`, which is still a plain Python function. numba compiles a dialect function
    when it compiles code that calls the function.
    """
    if function not in _registered:
        _registered.add(function)
        for called in _dialect_calls(function):
            register(called)
        if word.is_dialect(function):
            register_jitable(**(NOT_INLINED if "not_inlined" in function.__dict__ else INLINED))(function)
    return function


def compile_directly(
    function: Callable[..., Any], operation: Any, applies: Callable[..., bool] = lambda *arguments: True
) -> None:
    """Compile calls of `function` on the CPU as the intrinsic `operation`.

    `applies` returns True if a call with arguments of the given types is compiled as `operation`.

    An overload (`numba.extending.overload`) would work for every target, but numba compiles an
    overload again for each combination of types. Overloads would double the time of a first call
    that finds no compiled code on disk.
    """

    def definition(context, *arguments):
        return operation._defn(context, *arguments) if applies(*arguments) else None

    definition.__dict__["__signature__"] = inspect.signature(operation._defn)
    template = make_intrinsic_template(
        function, definition, function.__name__, prefer_literal=operation._prefer_literal, kwargs={"target": "cpu"}
    )
    infer(template)
    infer_global(function, types.Function(template))


def compile_everywhere(
    function: Callable[..., Any], operation: Any, applies: Callable[..., bool] = lambda *arguments: True, **options: Any
) -> None:
    """Compile calls of `function` as the intrinsic `operation` on every target.

    The CPU uses `compile_directly`, and other targets, such as CUDA, use an overload.
    """
    compile_directly(function, operation, applies)
    given = ", ".join(inspect.signature(function).parameters)
    call = eval(f"lambda {given}: operation({given})", {"operation": operation})
    choose = eval(f"lambda {given}: call if applies({given}) else None", {"call": call, "applies": applies})
    overload(function, jit_options=INLINED, **options)(choose)


@cache
def has_feature(name: str) -> bool:
    """Return True if the target processor has the feature that LLVM calls `name`."""
    if numba.config.CPU_NAME or numba.config.CPU_FEATURES:
        return f"+{name}" in (numba.config.CPU_FEATURES or "").split(",")
    try:
        return bool(llvm.get_host_cpu_features().get(name, False))
    except RuntimeError:  # LLVM does not know the features of this processor.
        return False


def not_inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a dialect function that must not be inlined.

    The first statement of `function` must be a call of `forbid_inlining`.

    If a loop reads many arrays, its innermost loops are in functions that are not inlined. If LLVM
    inlined these functions, their values would not fit in registers, and each iteration would load
    the values from memory again.
    """
    function.__dict__["not_inlined"] = True
    loop_cache.name_by_content(function)  # The function's name becomes a linker symbol, which must be unique.
    return word.dialect(function)


def forbid_inlining() -> None:
    """Stop LLVM from inlining the calling function; if compilation is disabled, do nothing."""


@intrinsic
def _forbid_inlining(context):
    def generate(target, builder, signature, arguments):
        builder.function.attributes.add("noinline")
        return target.get_dummy_value()

    return types.none(), generate


@overload(forbid_inlining, inline="always")
def _compile_forbid_inlining():
    return lambda: _forbid_inlining()


def compile_loop(function: Callable[..., Any], **options: Any) -> Any:
    """Return a compiled version of a loop over arrays that may call dialect functions.

    The loop is compiled on its first call and cached on disk.
    """
    loop_cache.name_by_content(function)
    loop = numba.njit(error_model="numpy", nogil=True, no_cfunc_wrapper=True, **options)(function)
    if not numba.config.DISABLE_JIT:
        loop_cache.keep(loop, before_compiling=_begin)
    return loop


def _begin(function: Callable[..., Any]) -> None:
    """Log that a loop is being compiled, and register the dialect functions that it calls."""
    logging.getLogger("mxnum").info("Compiling loops (about a second each), and caching them on disk.")
    register(function)


class Kernel:
    """A compiled function of (x, out, scales, drawn, numbers, where) that returns nothing.

    The first five arguments are flat arrays; a compiled kernel receives the address of each array.
    `where` holds eight integers. The function that makes a kernel documents how the kernel uses its
    arguments.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        # Nothing calls a kernel from Python, so the wrapper for such calls need not be compiled.
        self.function, self._compiled = function, compile_loop(function, no_cpython_wrapper=True)
        #: The results of `_words`, by the types of the five arrays. If compilation is disabled,
        #: each result is the kernel's Python function instead.
        self._found: dict[tuple[Any, ...], Any] = {}

    def for_types(
        self, x: Any, out: Any, scales: Any = np.int32, drawn: Any = np.int32, numbers: Any = np.int32
    ) -> Any:
        """Compile the kernel for arrays of these types, and return the value that loops receive.

        Loops pass the returned value to `call_kernel`. The value is the address of the array that
        `_words` returns. If compilation is disabled, the value is the Python function.
        """
        kinds = x, out, scales, drawn, numbers
        found = self._found.get(kinds)
        if found is None:
            # If two threads compile the kernel at once, both use the array that the first thread
            # stores.
            made = self.function if numba.config.DISABLE_JIT else self._words(kinds)
            found = self._found.setdefault(kinds, made)
        return found.ctypes.data if isinstance(found, np.ndarray) else found

    def _words(self, kinds: tuple[Any, ...]) -> Any:
        """Return an array of the compiled function's address and a hash of its signature."""
        signature = (*(types.CPointer(from_dtype(np.dtype(kind))) for kind in kinds), _WHERE)
        self._compiled.compile(signature)
        compiled = self._compiled.overloads[signature]
        assert compiled.signature.return_type == types.none
        address = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
        words = np.array([address, _number_of(signature)], np.int64)
        _in_use.append((self, words))
        return words


def call_kernel(kernel: Any, x: Any, out: Any, scales: Any, drawn: Any, numbers: Any, where: Any) -> None:
    """Call `kernel`, a value that `Kernel.for_types` returned.

    Raises TypeError if the kernel was compiled for other types of arrays.
    """
    kernel(x, out, scales, drawn, numbers, where)


def others_apart() -> None:
    """Let the compiler assume, in the calling kernel, that only `x` may share memory with `out`."""


def _number_of(signature: tuple[Any, ...]) -> int:
    return int(hashlib.sha256(str(signature).encode()).hexdigest()[:15], 16)


@intrinsic
def _others_apart(context):
    def generate(target, builder, signature, values):
        addresses = [argument for argument in builder.function.args[2:] if isinstance(argument.type, ir.PointerType)]
        for argument in addresses[2:]:
            argument.add_attribute("noalias")
        return target.get_dummy_value()

    return types.none(), generate


@intrinsic
def _call_kernel(context, kernel, x, out, scales, drawn, numbers, where):
    given = x, out, scales, drawn, numbers
    if where != _WHERE or not all(isinstance(array, types.Array) and array.is_c_contig for array in given):
        raise errors.TypingError("A kernel takes five flat arrays and eight integers.")
    kinds = (*(types.CPointer(array.dtype) for array in given), _WHERE)

    def generate(target, builder, signature, values):
        convention, word = target.call_conv, ir.IntType(64)
        words = builder.inttoptr(values[0], word.as_pointer())
        address, number = (builder.load(builder.gep(words, [word(i)])) for i in range(2))
        with builder.if_then(builder.icmp_unsigned("!=", number, word(_number_of(kinds))), likely=False):
            convention.return_user_exc(builder, TypeError, ("A kernel was called with arrays of wrong types.",))
        function = builder.inttoptr(address, convention.get_function_type(types.none, kinds).as_pointer())
        first = [make_array(kind)(target, builder, array).data for kind, array in zip(given, values[1:-1], strict=True)]
        convention.call_function(builder, function, types.none, kinds, (*first, values[-1]))
        return target.get_dummy_value()

    return types.none(kernel, *given, where), generate


compile_directly(call_kernel, _call_kernel)
compile_directly(others_apart, _others_apart)


def ask_for(array: Any, index: Any, count: int, ahead: int) -> None:
    """Ask the processor to prefetch `count` elements, starting `ahead` bytes after element `index`.

    `count` and `ahead` are compile-time constants. The addresses may lie outside the array, because
    a prefetch never faults.
    """


def element_pointer(context, builder, array_type, array, index):
    """Return IR for the address of element `index`. `array` may be an array or an address."""
    is_address = isinstance(array_type, types.CPointer)
    return builder.gep(array if is_address else make_array(array_type)(context, builder, array).data, [index])


@intrinsic(prefer_literal=True)
def _ask_for(context, array, index, count, ahead):
    first = ahead.literal_value
    last = first + count.literal_value * array.dtype.bitwidth // 8

    def generate(target, builder, signature, arguments):
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        start = builder.bitcast(element_pointer(target, builder, array, *arguments[:2]), byte)
        for offset in range(first, last, _LINE):
            line = builder.gep(start, [ir.IntType(64)(offset)])
            builder.call(prefetch, [line, word(0), word(3), word(1)])  # Prefetch the line for reading, into all caches.
        return target.get_dummy_value()

    return types.none(array, index, count, ahead), generate


compile_directly(ask_for, _ask_for)
