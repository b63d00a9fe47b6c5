"""Kernels: innermost loops that compiled loops call by their address.

A loop that goes through an array, with scales, marks and random bits, takes a second to compile.
What it does with the elements of one panel takes a fifth of that. Loops that differ in that part
alone are one loop, which is given the address of a kernel: calling it costs some nanoseconds for
each panel.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import errors
from numba.extending import intrinsic
from numba.np.arrayobj import make_array
from numba.np.numpy_support import from_dtype

from mxnum.engine.machine.jit import compile_directly, compile_loop

#: The last argument of every kernel: so many integers that say where it works.
_WHERE = types.UniTuple(types.int64, 7)


class Kernel:
    """A compiled function of (x, out, scales, drawn, numbers, where), which returns nothing.

    The first five are flat arrays, of which compiled kernels get the addresses; `where` is seven
    integers. A kernel and its loops agree on what each holds.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self._compiled = function, compile_loop(function)
        #: What loops are given, by the types of the five arrays.
        self._found: dict[tuple[Any, ...], Any] = {}

    def for_types(
        self, x: Any, out: Any, scales: Any = np.int32, drawn: Any = np.int32, numbers: Any = np.int32
    ) -> Any:
        """Return what loops call for arrays of these types, which is compiled now if it is not yet."""
        kinds = x, out, scales, drawn, numbers
        found = self._found.get(kinds)
        if found is None:
            # Without compilation the function; else two words, which have to stay where they are:
            # of two threads that compile at once, both take the words of the first.
            made = self.function if numba.config.DISABLE_JIT else self._words(kinds)
            found = self._found.setdefault(kinds, made)
        return found.ctypes.data if isinstance(found, np.ndarray) else found

    def _words(self, kinds: tuple[Any, ...]) -> Any:
        """The address of the function, and the number of its types."""
        signature = (*(types.CPointer(from_dtype(np.dtype(kind))) for kind in kinds), _WHERE)
        self._compiled.compile(signature)
        compiled = self._compiled.overloads[signature]
        assert compiled.signature.return_type == types.none
        address = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
        return np.array([address, _number_of(signature)], np.int64)


class LoopOfKernel:
    """A loop with the kernel that it calls; called with the arguments of the loop, of which x and out are the first."""

    def __init__(self, loop: Any, kernel: Kernel | None, *first: Any, scales: Any = np.int32) -> None:
        """`first` is what the loop is given behind the kernel and before all arrays; None is for one with its own."""
        self.loop, self.kernel, self.first, self._scales = loop, kernel, first, scales

    def bound_to(self, x: Any, out: Any) -> Callable[..., int]:
        """Return the loop for arrays of the types of these two."""
        kernel = 0 if self.kernel is None else self.kernel.for_types(x.dtype, out.dtype, self._scales)
        return partial(self.loop, kernel, *self.first)

    def __call__(self, x: Any, out: Any, *others: Any) -> int:
        return self.bound_to(x, out)(x, out, *others)


def call_kernel(kernel: Any, x: Any, out: Any, scales: Any, drawn: Any, numbers: Any, where: Any) -> None:
    """Call what `Kernel.for_types` returned; a compiled kernel for arrays of other types is an error."""
    kernel(x, out, scales, drawn, numbers, where)


def others_apart() -> None:
    """Compiled, tell the kernel that calls this that `out` shares no memory with arrays other than x."""


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
        raise errors.TypingError("A kernel takes five flat arrays and seven integers.")
    kinds = (*(types.CPointer(array.dtype) for array in given), _WHERE)

    def generate(target, builder, signature, values):
        convention, word = target.call_conv, ir.IntType(64)
        words = builder.inttoptr(values[0], word.as_pointer())
        address, number = (builder.load(builder.gep(words, [word(i)])) for i in range(2))
        with builder.if_then(builder.icmp_unsigned("!=", number, word(_number_of(kinds))), likely=False):
            convention.return_user_exc(builder, TypeError, ("A kernel is for arrays of other types.",))
        function = builder.inttoptr(address, convention.get_function_type(types.none, kinds).as_pointer())
        first = [make_array(kind)(target, builder, array).data for kind, array in zip(given, values[1:-1], strict=True)]
        convention.call_function(builder, function, types.none, kinds, (*first, values[-1]))
        return target.get_dummy_value()

    return types.none(kernel, *given, where), generate


compile_directly(call_kernel, _call_kernel)
compile_directly(others_apart, _others_apart)
