"""Tensors of PyTorch, which a callable may take and return, as numpy arrays with the names of their types.

The names are needed because numpy lacks some types. torch is imported only if the caller asks for
tensors; if the callable returns a tensor, torch is loaded already.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from mxnum import errors
from mxnum.memory.dtypes import Array

#: The kinds of arrays that a callable may take.
ARRAYS = ("numpy", "torch", "cuda")


def is_tensor(value: Any) -> bool:
    """Return True if the value is a tensor of torch, which need not be installed."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def to_numpy(tensor: Any) -> tuple[Array, str]:
    """Return a tensor's elements in host memory, and the name of its type. numpy lacks some types: these are bytes."""
    import torch

    tensor = tensor.detach().cpu().contiguous()
    name = str(tensor.dtype).removeprefix("torch.")
    if name == "bfloat16":
        import ml_dtypes

        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16), name
    if name.startswith("float") and tensor.dtype.itemsize == 1:  # float8 and float4
        return tensor.view(torch.uint8).numpy(), name
    return tensor.numpy(), name


def handed(array: Array, kind: str) -> Any:
    """Return an array in the kind that the callable takes.

    It is a numpy array, a tensor on the same memory, or a tensor on the GPU.
    """
    if kind == "numpy":
        return array
    from mxnum.interop.torch import as_tensor

    tensor = as_tensor(array)
    if kind == "torch":
        return tensor
    import torch

    strides = tuple(step // array.itemsize for step in array.strides)
    return torch.empty_strided(array.shape, strides, dtype=tensor.dtype, device="cuda").copy_(tensor)


def chosen(arrays: str) -> str:
    """Return the argument `arrays`. Raise if it is not one of `ARRAYS`."""
    return errors.choose("arrays", arrays, ARRAYS)


def as_array(value: Any, name: str) -> tuple[Array, str]:
    """Return what a callable gave, copied to a numpy array, and the name of its type."""
    if is_tensor(value):
        array, kind = to_numpy(value)
        return array.copy(), kind
    for method in ("copy_to_host", "get"):  # numba's arrays on a GPU, and CuPy's
        if hasattr(value, "__cuda_array_interface__") and hasattr(value, method):
            value = getattr(value, method)()
    try:
        array = np.array(value)
    except ValueError:  # rows of different lengths
        raise TypeError(f"Argument {name!r} must be an array, not a {type(value).__name__} of uneven rows.") from None
    if array.dtype.kind == "O":
        found = type(value).__name__ if array.ndim == 0 else "objects"
        raise TypeError(f"Argument {name!r} must be an array, not {found}.")
    return array, array.dtype.name
