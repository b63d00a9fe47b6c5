"""Kernels: innermost loops that compiled loops call by their address.

A loop that goes through an array, with scales, marks and random bits, takes a second to compile. What it does with the
elements of one panel takes a third of that. Loops that differ in that part alone are one loop, which is given the
address of a kernel: calling it costs some nanoseconds for each panel.
"""

from __future__ import annotations

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
_WHERE = types.UniTuple(types.int64, 6)


class Kernel:
    """A compiled function of (x, out, scales, drawn, numbers, where), which returns nothing.

    The first five are flat arrays, of which compiled kernels get the addresses; `where` is six integers. A kernel and
    its loops agree on what each holds.
    """

    def __init__(
        self, function: Callable[..., Any], scales: Any = np.int32, drawn: Any = np.int32, numbers: Any = np.int32
    ) -> None:
        self.function, self._others, self._compiled = function, (scales, drawn, numbers), compile_loop(function)
        self._addresses: dict[tuple[Any, ...], Any] = {}

    def address(self, x: Any, out: Any) -> Any:
        """Return what loops call for arrays of these dtypes, which is compiled now if it is not yet."""
        if (x, out) not in self._addresses:
            self._addresses[x, out] = self._address((x, out, *self._others))
        return self._addresses[x, out]

    def _address(self, dtypes: tuple[Any, ...]) -> Any:
        if numba.config.DISABLE_JIT:
            return self.function
        signature = (*(types.CPointer(from_dtype(np.dtype(dtype))) for dtype in dtypes), _WHERE)
        self._compiled.compile(signature)
        compiled = self._compiled.overloads[signature]
        assert compiled.signature.return_type == types.none
        return compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)


class LoopOfKernel:
    """A loop with the kernel that it calls; called with the arguments of the loop, of which x and out are the first."""

    def __init__(self, loop: Any, kernel: Kernel | None, *first: Any) -> None:
        """`first` is what the loop is given behind the kernel and before all arrays; None is for one with its own."""
        self.loop, self.kernel, self.first = loop, kernel, first

    def bound_to(self, x: Any, out: Any) -> Callable[..., int]:
        """Return the loop for arrays of the types of these two."""
        address = 0 if self.kernel is None else self.kernel.address(x.dtype, out.dtype)
        return partial(self.loop, address, *self.first)

    def __call__(self, x: Any, out: Any, *others: Any) -> int:
        return self.bound_to(x, out)(x, out, *others)


def call_kernel(kernel: Any, x: Any, out: Any, scales: Any, drawn: Any, numbers: Any, where: Any) -> None:
    """Call a kernel by its address, or without compilation the function itself."""
    kernel(x, out, scales, drawn, numbers, where)


def others_apart() -> None:
    """Compiled, tell the kernel that calls this that `out` shares no memory with arrays other than x."""


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
        raise errors.TypingError("A kernel takes five flat arrays and six integers.")
    kinds = (*(types.CPointer(array.dtype) for array in given), _WHERE)

    def generate(target, builder, signature, values):
        convention = target.call_conv
        kind = convention.get_function_type(types.none, kinds)
        function = builder.inttoptr(values[0], kind.as_pointer())
        first = [make_array(kind)(target, builder, array).data for kind, array in zip(given, values[1:-1], strict=True)]
        convention.call_function(builder, function, types.none, kinds, (*first, values[-1]))
        return target.get_dummy_value()

    return types.none(kernel, *given, where), generate


compile_directly(call_kernel, _call_kernel)
compile_directly(others_apart, _others_apart)
