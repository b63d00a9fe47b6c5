"""The interface to numba.cuda and to its simulator. Only this module imports numba.cuda.

Each kernel has one source, which runs on a GPU and in the simulator (NUMBA_ENABLE_CUDASIM=1). This
module provides substitutes for operations that the simulator lacks: vector loads and stores,
exchange between the lanes of a warp, fused multiply-add, and access to memory at an address.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from mxnum import errors
from mxnum.memory.device import DeviceArray

if importlib.util.find_spec("numba_cuda") is None:
    raise errors.needs_extra("Arrays on a GPU", "numba-cuda", "cuda")

from llvmlite import ir
from numba import cuda as cuda
from numba import types as types
from numba.cuda.core import config
from numba.cuda.extending import intrinsic, overload

from mxnum.definition.word import dialect
from mxnum.engine.machine import lanes
from mxnum.engine.machine.jit import register
from mxnum.engine.machine.lanes import LANE
from mxnum.engine.products.float32_by_integers import make_add_float32, make_fma_float32

_NO_COMPILER = "the compiler of CUDA (NVVM) was not found; set CUDA_HOME to the folder of CUDA"

#: True if kernels run as Python in numba's simulator.
SIMULATED = bool(config.ENABLE_CUDASIM)

#: The number of threads of a CUDA block. Results do not depend on the number of threads, because
#: each kernel loops until all work is done.
THREADS = 1 if SIMULATED else 256
WARP = 32
#: The least number of CUDA blocks of a launch. numba warns of fewer blocks, and blocks without work
#: cost nothing.
LEAST_BLOCKS = 1 if SIMULATED else 128
#: The greatest number of CUDA blocks of a launch for each multiprocessor of the GPU. So many blocks
#: fill a multiprocessor several times over.
BLOCKS_PER_MULTIPROCESSOR = 1 if SIMULATED else 32


# Launching


def compile_kernel(function: Callable[..., Any]) -> Any:
    """Return a CUDA kernel that runs `function`, which may call dialect functions.

    numba compiles the kernel on first use. The kernel does not flush subnormal numbers to zero.
    Link-time optimization is off, because the GPU must run the PTX code that tests inspect.
    """
    register(function)
    return cuda.jit(function) if SIMULATED else cuda.jit(function, lto=False)


def launch(kernel: Any, count: int, stream: int | None, *arguments: Any) -> None:
    """Run a kernel on a stream, in a grid sized for `count` elements, blocks or other items."""
    if count == 0:
        return
    blocks = min(-(-count // THREADS), BLOCKS_PER_MULTIPROCESSOR * multiprocessors())
    kernel[max(blocks, LEAST_BLOCKS), THREADS, stream_of(stream)](*arguments)


@cache
def check() -> None:
    """Raise RuntimeError unless there is a usable GPU.

    Once a GPU is found, further calls return at once.
    """
    if SIMULATED:
        return
    try:
        available = cuda.is_available()
        reason = "no GPU was found" if available else cuda.cuda_error() or _NO_COMPILER
    except Exception as problem:  # The driver's bindings raise many types of errors.
        available, reason = False, problem
    if not available:
        raise errors.no_driver(reason)


@contextmanager
def on_gpu(number: int | None) -> Iterator[None]:
    """Make GPU `number` the current GPU inside this context; None changes nothing."""
    if SIMULATED or number is None:
        yield
    else:
        with cuda.gpus[number]:
            yield


def multiprocessors() -> int:
    """Return the number of multiprocessors of the current GPU."""
    return 1 if SIMULATED else _multiprocessors(cuda.get_current_device().id)


@cache
def _multiprocessors(number: int) -> int:
    return int(cuda.gpus[number].MULTIPROCESSOR_COUNT)


def stream_of(handle: int | None) -> Any:
    """Return numba's stream object for a stream handle of the CUDA array interface."""
    return 0 if SIMULATED or not handle else _external_stream(handle)


@cache
def _external_stream(handle: int) -> Any:
    """Return the numba stream object of a handle, always the same object for the same handle.

    Reusing the object saves time, because each kernel prepares its launches anew for each new
    stream object.
    """
    return cuda.external_stream(handle)


def wait(stream: int | None, other: int | None) -> None:
    """Make `stream` wait for all work that is queued on the stream `other` at this moment.

    The host does not wait.
    """
    if stream != other:
        event = cuda.event(timing=False)
        event.record(stream_of(other))
        event.wait(stream_of(stream))


def synchronize(stream: int | None) -> None:
    """Make the host wait until all work on a stream is done."""
    if SIMULATED:
        return
    if stream:
        stream_of(stream).synchronize()
    else:
        cuda.default_stream().synchronize()


# Memory


def memory(view: DeviceArray, signed: bool) -> tuple[Any, int]:
    """Return a vector over a view's memory, and the vector index of the view's first element.

    The vector's elements are integers of the same width as the view's elements. The index of the
    view's first element is above 0 only if a stride is negative.
    """
    width = view.dtype.itemsize
    kind = f"{'i' if signed else 'u'}{width}"
    if view.size == 0:
        return at_address(view.pointer, 0, kind, view.owner), 0
    ends = [(length - 1) * stride for length, stride in zip(view.shape, view.strides, strict=True)]
    below = -sum(end for end in ends if end < 0)
    span = below + sum(end for end in ends if end > 0) + 1
    return at_address(view.pointer - below * width, span, kind, view.owner), below


def at_address(address: int, count: int, typestr: str, owner: Any) -> Any:
    """Return a vector of `count` elements of device memory, beginning at an address.

    `owner` is the object that keeps the memory alive.
    """
    dtype = np.dtype(typestr)
    if not SIMULATED:
        interface = {
            "shape": (count,), "strides": None, "typestr": dtype.str, "data": (address, False), "version": 3
        }  # fmt: skip
        return cuda.from_cuda_array_interface(interface, owner=owner, sync=False)
    if count == 0:
        return cuda.to_device(np.empty(0, dtype))
    array = _host_memory(address, count, dtype)
    fake: Any = cuda.to_device(np.empty(1, dtype))
    return type(fake)(array)


def _host_memory(address: int, count: int, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return a vector of host memory, which the simulator uses as device memory."""
    memory: Any = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return np.frombuffer(memory, dtype)


def empty(shape: tuple[int, ...], dtype: np.dtype[Any], stream: int | None) -> Any:
    """Return a new numba device array with uninitialized elements."""
    if SIMULATED:
        fake: Any = cuda.to_device(np.empty(1, np.uint8))
        return type(fake)(np.empty(shape, dtype))
    return cuda.device_array(shape, dtype, stream=stream_of(stream))


def view(owner: Any, view: DeviceArray) -> Any:
    """Return a numba device array that shares the memory, shape and strides of a view.

    `owner` is the array that holds the memory: a numba device array, or an array of a library other
    than torch and CuPy.
    """
    width = view.dtype.itemsize
    steps = tuple(stride * width for stride in view.strides)
    if SIMULATED:
        strided = np.lib.stride_tricks.as_strided(_host_memory(view.pointer, 1, view.dtype), view.shape, steps)
        fake: Any = cuda.to_device(np.empty(1, np.uint8))
        made = type(fake)(strided)
        made.kept_alive = owner  # The view shares the memory of `owner`.
        return made
    interface = {
        "shape": view.shape, "strides": steps, "typestr": f"<u{width}", "data": (view.pointer, False), "version": 3
    }  # fmt: skip
    array = cuda.from_cuda_array_interface(interface, owner=owner, sync=False)
    # The method `view` of numba's arrays raises an error for arrays without dimensions.
    return type(array)(view.shape, steps, view.dtype, stream_of(view.stream), array.gpu_data)


def copied_to_host(address: int, count: int, typestr: str, owner: Any, stream: int | None) -> np.ndarray[Any, Any]:
    """Return a copy, in host memory, of `count` consecutive elements of device memory.

    The call waits until the work on the stream is done.
    """
    vector = at_address(address, count, typestr, owner)
    result = np.empty(count, typestr)
    if count:
        vector.copy_to_host(result, stream=stream_of(stream))
        synchronize(stream)
    return result


# Four elements at once


def load4(vector: Any, quad: Any) -> Any:
    """Return the elements 4 * quad to 4 * quad + 3 of a vector, by as few loads as possible.

    The vector must be aligned to 16 bytes.
    """
    first = 4 * quad
    return vector[first], vector[first + 1], vector[first + 2], vector[first + 3]


def store4(vector: Any, quad: Any, a: Any, b: Any, c: Any, d: Any) -> None:
    """Store four integers in the elements 4 * quad to 4 * quad + 3 of a vector.

    The type of the elements must be able to hold the integers.
    """
    first = 4 * quad
    vector[first], vector[first + 1], vector[first + 2], vector[first + 3] = a, b, c, d


@intrinsic
def _load4(context, vector, quad):
    count = types.UniTuple(vector.dtype, 4)

    def generate(target, builder, signature, arguments):
        wide, alignment = _quad_type(target, vector)
        pointer = _quad_pointer(target, builder, signature, arguments, wide)
        loaded = builder.load(pointer)
        loaded.align = alignment
        parts = [builder.extract_element(loaded, ir.IntType(32)(lane)) for lane in range(4)]
        return target.make_tuple(builder, signature.return_type, parts)

    return count(vector, quad), generate


@intrinsic
def _store4(context, vector, quad, a, b, c, d):
    def generate(target, builder, signature, arguments):
        wide, alignment = _quad_type(target, vector)
        pointer = _quad_pointer(target, builder, signature, arguments, wide)
        value = ir.Constant(wide, ir.Undefined)
        for lane, part in enumerate(arguments[2:]):
            bits = wide.element.width
            part = builder.trunc(part, wide.element) if part.type.width > bits else part
            value = builder.insert_element(value, part, ir.IntType(32)(lane))
        builder.store(value, pointer).align = alignment
        return target.get_dummy_value()

    return types.void(vector, quad, a, b, c, d), generate


def _quad_type(target, vector):
    element = target.get_data_type(vector.dtype)
    return ir.VectorType(element, 4), min(16, element.width // 2)


def _quad_pointer(target, builder, signature, arguments, wide):
    array = target.make_array(signature.args[0])(target, builder, arguments[0])
    place = builder.shl(arguments[1], arguments[1].type(2))
    return builder.bitcast(builder.gep(array.data, [place]), wide.as_pointer())


@overload(load4, jit_options={"forceinline": True})
def _compile_load4(vector, quad):
    return lambda vector, quad: _load4(vector, quad)


@overload(store4, jit_options={"forceinline": True})
def _compile_store4(vector, quad, a, b, c, d):
    return lambda vector, quad, a, b, c, d: _store4(vector, quad, a, b, c, d)


# Largest magnitudes


def make_largest_of_block(lanes: int, largest_of_quad: Callable[..., Any]) -> Callable[..., Any]:
    """Return `largest(own, vector, quad)`, which returns the largest magnitude of a block.

    `lanes` neighbouring threads process a block together. Each thread has four elements, a quad.
    `own` is the result of `largest_of_quad` for the calling thread's quad, a non-negative int32. On
    a GPU, these threads exchange their values of `own`. The simulator cannot exchange values
    between threads, so in the simulator `largest` reads all quads of the block.
    """
    if SIMULATED:

        def by_looking(own, vector, quad):
            first = quad // lanes * lanes
            return max(largest_of_quad(*load4(vector, other)) for other in range(first, first + lanes))

        return by_looking

    @dialect
    def by_exchange(own, vector, quad):
        # `members` is the mask of this block's lanes. It leaves out the other lanes of the warp,
        # because they may have left the loop. All lanes of one block leave the loop together,
        # because blocks begin at multiples of `lanes`.
        members = ((1 << lanes) - 1) << (cuda.laneid & (WARP - lanes))
        if lanes > 16:
            own = np.int32(max(own, cuda.shfl_xor_sync(members, own, 16)))
        if lanes > 8:
            own = np.int32(max(own, cuda.shfl_xor_sync(members, own, 8)))
        if lanes > 4:
            own = np.int32(max(own, cuda.shfl_xor_sync(members, own, 4)))
        if lanes > 2:
            own = np.int32(max(own, cuda.shfl_xor_sync(members, own, 2)))
        if lanes > 1:
            own = np.int32(max(own, cuda.shfl_xor_sync(members, own, 1)))
        return own

    return by_exchange


# Arithmetic


def fma_float32(a: Any, b: Any, c: Any) -> Any:
    """Return the float32 bits of a * b + c, rounded once.

    If the result is NaN, its bits are not specified. In the simulator, the function computes with
    integers; on a GPU, it compiles to one instruction.
    """
    return _fma_by_definition(int(a), int(b), int(c))


def sum_float32(a: Any, b: Any) -> Any:
    """Return the float32 bits of a + b; if the result is NaN, its bits are not specified."""
    return _sum_by_definition(int(a), int(b))


_fma_by_definition, _sum_by_definition = make_fma_float32(), make_add_float32()


def _float_operation(name: str) -> Any:
    """Return a function of float32 bit patterns that compiles to one PTX instruction.

    `name` is the name of the instruction with its rounding, such as ``add.rn``. ptxas never fuses
    two instructions if their names say how they round. NVVM would translate a plain float operation
    to ``add.f32`` or ``mul.f32``, which ptxas may fuse into a multiply-add.
    """

    def generate(target, builder, signature, arguments):
        word, number = ir.IntType(32), ir.FloatType()
        floats = [builder.bitcast(builder.trunc(x, word) if x.type.width > 32 else x, number) for x in arguments]
        kind = ir.FunctionType(number, [number] * len(floats))
        registers = ", ".join(f"${i}" for i in range(len(floats) + 1))
        constraints = ",".join(["=f", *["f"] * len(floats)])
        assembly = ir.InlineAsm(kind, f"{name}.f32 {registers};", constraints)
        return builder.bitcast(builder.call(assembly, floats), word)

    if name == "fma.rn":

        @intrinsic
        def operation3(context, a, b, c):
            return types.int32(a, b, c), generate

        return operation3

    @intrinsic
    def operation(context, a, b):
        return LANE(a, b), generate

    return operation


_add, _subtract = _float_operation("add.rn"), _float_operation("sub.rn")
_multiply, _fma = _float_operation("mul.rn"), _float_operation("fma.rn")


@overload(lanes.add_float32, jit_options={"forceinline": True})
def _compile_add(a, b):
    return lambda a, b: _add(a, b)


@overload(lanes.subtract_float32, jit_options={"forceinline": True})
def _compile_subtract(a, b):
    return lambda a, b: _subtract(a, b)


@overload(lanes.multiply_float32, jit_options={"forceinline": True})
def _compile_multiply(a, b):
    return lambda a, b: _multiply(a, b)


@overload(sum_float32, jit_options={"forceinline": True})
def _compile_sum(a, b):
    return lambda a, b: lanes.integer(_add(a, b))


@overload(fma_float32, jit_options={"forceinline": True})
def _compile_fma(a, b, c):
    return lambda a, b, c: _fma(a, b, c)
