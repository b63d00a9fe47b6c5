"""Convert torch tensors and JAX arrays in host memory to numpy arrays, and back.

A conversion in either direction shares memory; `as_tensor` states the exceptions. JAX arrays are
immutable, so results are new JAX arrays. This module never imports torch or JAX, because a caller
who has a tensor or a JAX array has already imported the library.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from mxnum import errors

#: For each size in bytes, the torch integer type of this size. A tensor whose type numpy lacks is
#: viewed as integers before it is converted.
_INTEGERS = {1: "uint8", 2: "int16", 4: "int32"}
#: The value of `numpy.dtype.isbuiltin` for types that another package registered.
_REGISTERED = 2


def is_tensor(value: Any) -> bool:
    """Return True if `value` is a torch tensor, on any device."""
    kind = getattr(sys.modules.get("torch"), "Tensor", None)
    return kind is not None and isinstance(value, kind)


def is_foreign(value: Any) -> bool:
    """Return True if `value` is a torch tensor or a JAX array, on any device."""
    return is_tensor(value) or is_jax(value)


def readable(argument: str, tensor: Any) -> Any:
    """Return the tensor, detached from autograd.

    Raise an error if the tensor is not dense, if it is a lazily negated view, or if it requires a
    gradient that would be lost.
    """
    _check_readable(argument, tensor)
    return tensor.detach()


def _check_readable(argument: str, tensor: Any) -> None:
    torch = sys.modules["torch"]
    if tensor.requires_grad and torch.is_grad_enabled():
        raise TypeError(
            f"Argument {argument!r} must not require a gradient, which would be lost here: pass tensor.detach(), call "
            "under torch.no_grad(), or use mxnum.torch, whose functions have gradients."
        )
    errors.require(tensor.layout == torch.strided, argument, "dense (tensor.to_dense())", tensor.layout)
    errors.require(not tensor.is_neg(), argument, "without a lazy negation (tensor.resolve_neg())", "a negated view")


def dtype_of(tensor: Any) -> np.dtype[Any]:
    """Return the dtype of numpy or ml_dtypes for a tensor's elements, or "V1" if there is none."""
    return _dtype_named(tensor.dtype)


@cache
def _dtype_named(dtype: Any) -> np.dtype[Any]:
    name = str(dtype).removeprefix("torch.")
    try:
        found: np.dtype[Any] = np.dtype(name)
        return found
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name, "V1"))


def host_array(argument: str, tensor: Any) -> np.ndarray[Any, Any]:
    """Return a numpy array that shares the memory of a tensor in host memory."""
    where = "cpu" if tensor.is_cpu else str(tensor.device)
    errors.require(where == "cpu", argument, "on the CPU or a CUDA device (tensor.cpu())", where)
    dtype = dtype_of(tensor)
    _check_readable(argument, tensor)
    try:
        # numpy itself lacks some dtypes: convert a view of the tensor as integers instead.
        if dtype.isbuiltin in (0, _REGISTERED):
            plain = tensor.detach().view(getattr(sys.modules["torch"], _INTEGERS[dtype.itemsize]))
            return _on_the_memory_of(plain).view(dtype)
        return _on_the_memory_of(tensor)
    except (RuntimeError, TypeError) as problem:
        what = f"{type(tensor).__name__} of {tensor.dtype} (torch says: {str(problem).splitlines()[0]})"
        raise TypeError(f"Argument {argument!r} must be a tensor that numpy can read, not {what}") from None


class _Memory:
    """An adapter that describes the memory of a tensor by numpy's array interface."""

    def __init__(self, tensor: Any, layout: dict[str, Any]) -> None:
        self.tensor = tensor
        self.__array_interface__ = {**layout, "data": (tensor.data_ptr(), False)}


def _layout(tensor: Any) -> dict[str, Any]:
    """Return the fields of numpy's array interface for a tensor, except its address (``data``)."""
    strides = None  # None means C order
    if not tensor.is_contiguous():
        strides = tuple(step * tensor.itemsize for step in tensor.stride())
    return {"version": 3, "typestr": dtype_of(tensor).str, "shape": tuple(tensor.shape), "strides": strides}


def _has_memory(tensor: Any) -> bool:
    torch = sys.modules["torch"]
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.numel() > 0


def _on_the_memory_of(tensor: Any) -> np.ndarray[Any, Any]:
    """Return the same array as `tensor.numpy()`, but keep the tensor's memory resizable.

    After a call of `tensor.numpy()`, torch cannot resize the memory, but sharded training must
    resize it.
    """
    if not _has_memory(tensor):
        array: np.ndarray[Any, Any] = tensor.detach().numpy()
        return array
    return np.asarray(_Memory(tensor, _layout(tensor)))


def bits_maker(like: Any) -> Callable[[Any], np.ndarray[Any, Any]] | None:
    """Return a function that returns the bits of a tensor as a flat array of signed integers.

    The argument of the returned function must have the type, dtype, shape and strides of the tensor
    `like`; the function does not check this. If `like` is not in C order, return None instead of a
    function.
    """
    if not (_has_memory(like) and like.is_contiguous()):
        return None
    layout = {"version": 3, "typestr": f"<i{like.itemsize}", "shape": (like.numel(),), "strides": None}

    def bits(tensor: Any) -> np.ndarray[Any, Any]:
        _check_readable("x", tensor)
        return np.asarray(_Memory(tensor, layout))

    return bits


def host_view(argument: str, value: Any) -> Any:
    """Return a tensor or JAX array in host memory as a numpy array, and anything else unchanged."""
    if value is None or type(value) is np.ndarray:  # fast path for the commonest types
        return value
    if is_jax(value):
        return _jax_in_host(argument, value)
    return host_array(argument, value) if is_tensor(value) and not value.is_cuda else value


def is_jax(value: Any) -> bool:
    """Return True if `value` is a JAX array, or a tracer inside a JAX transformation."""
    kind = getattr(sys.modules.get("jax"), "Array", None)
    return kind is not None and isinstance(value, kind)


def _jax_in_host(argument: str, value: Any) -> np.ndarray[Any, Any]:
    """Return a JAX array on the CPU as a read-only array, on the same memory if JAX allows it."""
    if isinstance(value, sys.modules["jax"].core.Tracer):
        raise TypeError(
            f"Argument {argument!r} must be a JAX array with numbers, not a tracer: inside jit, grad or vmap, call "
            "this function through jax.pure_callback."
        )
    (place,) = {device.platform for device in value.devices()}
    errors.require(place == "cpu", argument, "on the CPU (jax.device_put(x, jax.devices('cpu')[0]))", place)
    return np.asarray(value)


def _as_jax(array: np.ndarray[Any, Any]) -> Any:
    """Return an array as a JAX array; raise TypeError for a 64-bit type that JAX would narrow."""
    made = sys.modules["jax"].numpy.asarray(array) if _jax_holds(array.dtype) else None
    if made is None:
        raise TypeError(
            f"JAX would narrow a result of {array.dtype}: call jax.config.update('jax_enable_x64', True) first."
        )
    return made


def _jax_holds(dtype: np.dtype[Any]) -> bool:
    return dtype.itemsize < 8 or bool(sys.modules["jax"].config.jax_enable_x64)


def as_tensor(array: np.ndarray[Any, Any]) -> Any:
    """Return an array as a tensor on the same memory.

    A read-only array, or an array with negative strides, is copied, because tensors cannot be
    read-only or have negative strides.
    """
    torch = sys.modules["torch"]
    array = np.asarray(array)
    if not array.flags.writeable or any(step < 0 for step in array.strides):
        array = array.copy()
    if array.dtype.isbuiltin == _REGISTERED:
        return torch.from_numpy(array.view(_INTEGERS[array.itemsize])).view(getattr(torch, array.dtype.name))
    return torch.from_numpy(array)


def in_kind(made: Any, question: Any) -> Any:
    """Convert a result to the library of `question`, which is an array that the caller passed.

    Return `made` unchanged if it is not a numpy array or scalar, or if `question` is neither a
    torch tensor nor a JAX array.
    """
    if not is_foreign(question) or not isinstance(made, np.ndarray | np.generic):
        return made
    return as_tensor(np.asarray(made)) if is_tensor(question) else _as_jax(np.asarray(made))


def answer(made: Any, question: Any, out: Any) -> np.ndarray[Any, Any]:
    """Return `out` if it is given; otherwise return `made`, converted by `in_kind`."""
    given: np.ndarray[Any, Any] = made if type(question) is np.ndarray else in_kind(made, question)
    return given if out is None else out
