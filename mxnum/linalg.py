"""Products of MX arrays with a defined accumulation."""

from __future__ import annotations

from typing import Any

import numpy as np

from mxnum import errors
from mxnum.array import MXArray, owned
from mxnum.device import DeviceArray, together
from mxnum.dtypes import Array, float_array, result_format
from mxnum.formats import FLOATS
from mxnum.modes import Accumulate

#: The types that `out_dtype` may name.
RESULTS = ("float32", "bfloat16", "float16")


def dot(a: Any, b: Any, *, accumulate: str | Accumulate = "block", out_dtype: Any = "float32") -> Any:
    """The dot product of two vectors, as a scalar of `out_dtype`, summed as `accumulate` says (see `Accumulate`).

    The operands are MX arrays or arrays of floats. `out_dtype` is float32, bfloat16 or float16; the last two round the
    float32 result once more.

    >>> import numpy as np, mxnum as mx
    >>> x = np.array([4096.0, 1.0, 1.0], np.float32)
    >>> mx.dot(x, x, accumulate="exact"), mx.dot(x, x, accumulate="sequential")
    (np.float32(1.6777218e+07), np.float32(1.6777216e+07))
    """
    x, y = _operand("a", a), _operand("b", b)
    for name, array in (("a", x.array), ("b", y.array)):
        errors.require(array.ndim == 1, name, "one-dimensional", array.shape)
    errors.require(x.array.shape == y.array.shape, "b", f"of length {x.array.size}", y.array.size)
    product = _product(x.row(), y.row(), accumulate, out_dtype)
    if isinstance(product, DeviceArray):
        from mxnum.engine.cuda import sums

        return sums.scalar(product)
    return product[0, 0]


def matmul(a: Any, b: Any, *, accumulate: str | Accumulate = "block", out_dtype: Any = "float32") -> Array:
    """The matrix product, each element summed as `accumulate` says (see `Accumulate`).

    Parameters
    ----------
    a, b
        MX arrays or arrays of floats of at least two axes; leading axes broadcast as in `numpy.matmul`. The sum runs
        along the last axis of a and the last but one of b.
    accumulate
        ``"block"`` needs both operands quantized along the summed axis: ``axis=-1`` for a, ``axis=-2`` for b. A
        transposed MX array (``q.T``) is as good.
    out_dtype
        float32, bfloat16 or float16; the last two round the float32 result once more.

    Examples
    --------
    >>> import numpy as np, mxnum as mx
    >>> x, w = np.linspace(-1, 1, 128).reshape(2, 64), np.linspace(0, 2, 192).reshape(3, 64)
    >>> mx.matmul(mx.quantize(x, "mxfp8_e4m3"), mx.quantize(w, "mxfp4_e2m1").T)
    array([[ -6.9257812, -26.1875   , -50.1875   ],
           [ 13.95874  ,  33.703125 ,  57.65625  ]], dtype=float32)
    """
    x, y = _operand("a", a), _operand("b", b)
    for name, array in (("a", x.array), ("b", y.array)):
        errors.require(array.ndim >= 2, name, "of at least two axes", array.shape)
    length = x.array.shape[-1]
    errors.require(y.array.shape[-2] == length, "b", f"of length {length} along its last but one axis", y.array.shape)
    try:
        np.broadcast_shapes(x.array.shape[:-2], y.array.shape[:-2])
    except ValueError:
        accepted = f"of leading axes that broadcast with {x.array.shape[:-2]}"
        errors.require(False, "b", accepted, y.array.shape[:-2])
    product: Array = owned(_product(x, y.swapped(), accumulate, out_dtype))
    return product


def _operand(name: str, value: Any) -> Any:
    """What the engine takes for an MX array or an array of floats."""
    from mxnum.engine.operands import Operand

    if isinstance(value, MXArray):
        codes, scales, offsets = value.parts
        return Operand(codes, value.format.element, value.blocks, scales, offsets)
    return Operand(*float_array(name, value, anywhere=True))


def _product(a: Any, b: Any, accumulate: str | Accumulate, out_dtype: Any) -> Any:
    """Both operands with the summed axis last."""
    from mxnum.engine.operands import narrowed
    from mxnum.engine.products import matmul as product

    on_device = together((("a", a.array), ("b", b.array)))
    mode = errors.choose_member("accumulate", accumulate, Accumulate)
    target = result_format(out_dtype, "out_dtype", RESULTS)
    if mode == Accumulate.BLOCK:
        _check_blocks(a, b)
    if on_device:
        from mxnum.engine.cuda import sums

        return sums.matmul(a, b, mode, target)
    return narrowed(product(a, b, mode), FLOATS["float32"], target)


def _check_blocks(a: Any, b: Any) -> None:
    for name, operand in (("a", a), ("b", b)):
        errors.require(bool(operand.blocks), name, "an MXArray with accumulate='block'", operand.format.name)
        if operand.offsets is not None:
            raise ValueError(f"Argument {name!r} must be without offsets with accumulate='block'.")
    block = a.blocks[-1]
    accepted = f"in blocks of {block} along the summed axis with accumulate='block'"
    errors.require(b.blocks[-1] == block, "b", accepted, b.blocks[-1])
