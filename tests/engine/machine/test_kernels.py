"""Tests of kernels, compiled functions that loops call by their address."""

from __future__ import annotations

import gc
import weakref

import numba
import numpy as np
import pytest
from numba.core.errors import TypingError

from mxnum.engine.machine.jit import Kernel, call_kernel, compile_loop, others_apart
from mxnum.engine.machine.lanes import integer, load, store

needs_compiler = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="compiled loops")


def adding(more):
    def kernel(x, out, scales, drawn, numbers, where):
        others_apart()
        first, count, scale, bits, _, last, _, _ = where
        for i in range(first, first + count):
            total = integer(load(x, i)) * integer(load(scales, scale)) + integer(load(drawn, bits)) + numbers[1]
            store(out, i, total + last + more)

    return Kernel(kernel)


def halves(kernel, x, out, scales, drawn, numbers):
    middle = x.size // 2
    call_kernel(kernel, x, out, scales, drawn, numbers, (0, middle, 0, 1, 0, 1000, 0, 0))
    call_kernel(kernel, x, out, scales, drawn, numbers, (middle, x.size - middle, 1, 0, 0, 2000, 0, 0))
    return middle


def run(loop, kernel, x, out, *others):
    return loop(kernel.for_types(x.dtype, out.dtype), x, out, *others)


def arrays(x=np.int16, out=np.int32):
    small = np.array([3, 5], np.int32)
    return np.arange(5, dtype=x), np.zeros(5, out), small, small + 70, small + 100


def test_a_kernel_writes_where_a_loop_says():
    loop = compile_loop(halves)
    for more in (0, 7):
        for types in ((np.int16, np.int32), (np.uint8, np.int64)):
            given = arrays(*types)
            assert run(loop, adding(more), *given) == 2
            first, second = 75 + 105 + 1000 + more, 73 + 105 + 2000 + more
            assert given[1].tolist() == [first, first + 3, second + 10, second + 15, second + 20]


@needs_compiler
def test_one_loop_is_compiled_for_many_kernels():
    loop = compile_loop(lambda kernel, x, out, s, d, n: call_kernel(kernel, x, out, s, d, n, (0, 5, 0, 0, 0, 0, 0, 0)))
    kernels = [adding(more) for more in (1, 2)]
    assert len({kernel.for_types(np.int16, np.int32) for kernel in kernels}) == 2
    results = set()
    for kernel in kernels:
        given = arrays()
        run(loop, kernel, *given)
        results.add(tuple(given[1].tolist()))
    assert len(results) == 2
    assert len(loop.overloads) == 1


@needs_compiler
def test_a_kernel_for_other_types_is_not_called():
    """Check that calling a kernel with arrays of wrong types raises TypeError.

    The loop cannot check the types, because it knows only the kernel's address.
    """
    loop, kernel = compile_loop(halves), adding(0)
    for others in ((np.int16, np.int64), (np.uint16, np.int32), (np.int16, np.int32, np.int64)):
        given = arrays()
        with pytest.raises(TypeError, match="A kernel was called with arrays of wrong types"):
            loop(kernel.for_types(*others), *given)
        assert not given[1].any()


@needs_compiler
def test_kernel_in_use_stays_alive():
    """Check that a kernel in use stays alive, even if no cache keeps it.

    If two threads make the same kernel at once, the cache keeps only one of the two objects, but
    the other may be in use.
    """
    loop, kernel = compile_loop(halves), adding(0)
    address, gone = kernel.for_types(np.int16, np.int32), weakref.ref(kernel)
    del kernel
    gc.collect()
    assert gone() is not None
    given = arrays()
    assert loop(address, *given) == 2
    assert given[1].any()


def test_read_only_arrays():
    x, *others = arrays()
    x.flags.writeable = False
    assert run(compile_loop(halves), adding(0), x, *others) == 2
    assert others[0].any()


@needs_compiler
@pytest.mark.parametrize("change", [lambda x: x[::2], lambda x: 3])
def test_arguments_without_an_address_raise(change):
    x, *others = arrays()
    with pytest.raises(TypingError, match="five flat arrays and eight integers"):
        compile_loop(lambda kernel, *given: halves(kernel, *given))(0, change(x), *others)
