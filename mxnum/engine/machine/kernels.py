"""Kernels: inner loops that compiled loops call by their address.

An outer loop over an array, with its scales, marks and random bits, takes a second to compile. The
inner loop over the elements of one panel takes a fifth of that. So outer loops receive the address
of the inner one at run time, and one outer loop serves many formats. A call costs some nanoseconds
for each panel.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
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

#: The type of the last argument of every kernel: integers that say where it works.
_WHERE = types.UniTuple(types.int64, 8)


class Kernel:
    """A compiled function of (x, out, scales, drawn, numbers, where), which returns nothing.

    The first five are flat arrays, which compiled kernels receive as addresses. `where` holds eight
    integers. The docstring of each kernel says what it does with these.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self._compiled = function, compile_loop(function)
        #: The values that `for_types` returns, by the types of the five arrays.
        self._found: dict[tuple[Any, ...], Any] = {}

    def for_types(
        self, x: Any, out: Any, scales: Any = np.int32, drawn: Any = np.int32, numbers: Any = np.int32
    ) -> Any:
        """Compile the kernel for arrays of these types, and return its value for loops."""
        kinds = x, out, scales, drawn, numbers
        found = self._found.get(kinds)
        if found is None:
            # Two words in an array, which must stay alive; without compilation the function itself.
            # Of two threads that compile at once, both take the words of the first.
            made = self.function if numba.config.DISABLE_JIT else self._words(kinds)
            found = self._found.setdefault(kinds, made)
        return found.ctypes.data if isinstance(found, np.ndarray) else found

    def _words(self, kinds: tuple[Any, ...]) -> Any:
        """Return the address of the compiled function and a number that stands for its types."""
        signature = (*(types.CPointer(from_dtype(np.dtype(kind))) for kind in kinds), _WHERE)
        self._compiled.compile(signature)
        compiled = self._compiled.overloads[signature]
        assert compiled.signature.return_type == types.none
        address = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
        return np.array([address, _number_of(signature)], np.int64)


def call_kernel(kernel: Any, x: Any, out: Any, scales: Any, drawn: Any, numbers: Any, where: Any) -> None:
    """Call the kernel that `Kernel.for_types` returned.

    Raises TypeError if that is for arrays of other types.
    """
    kernel(x, out, scales, drawn, numbers, where)


def others_apart() -> None:
    """Let the compiler of a kernel assume that `out` shares no memory with arrays other than x."""


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
            convention.return_user_exc(builder, TypeError, ("A kernel is for arrays of other types.",))
        function = builder.inttoptr(address, convention.get_function_type(types.none, kinds).as_pointer())
        first = [make_array(kind)(target, builder, array).data for kind, array in zip(given, values[1:-1], strict=True)]
        convention.call_function(builder, function, types.none, kinds, (*first, values[-1]))
        return target.get_dummy_value()

    return types.none(kernel, *given, where), generate


compile_directly(call_kernel, _call_kernel)
compile_directly(others_apart, _others_apart)
