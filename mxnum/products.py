"""Products of MX arrays whose order of summation is defined."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from mxnum import errors, units
from mxnum.array.arguments import checked_out, checked_threads, owned
from mxnum.array.mx_array import MXArray, parts_of
from mxnum.engine.dispatch import host_engine
from mxnum.engine.request import DecodingRequest, decoding_settings
from mxnum.formats import FLOATS, ElementFormat, ScaleFormat
from mxnum.memory.device import DeviceArray, on_device, together
from mxnum.memory.dtypes import Array, as_array, float_array, numpy_dtype, result_format
from mxnum.memory.tensors import answer, host_view
from mxnum.modes import Accumulate, Nonfinite, Overflow, Rounding
from mxnum.units import MatrixUnit
from mxnum.units.unit import warn_of

#: The types that `out_dtype` accepts.
RESULTS = ("float32", "bfloat16", "float16")


def dot(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    accumulate: str | Accumulate | MatrixUnit = "block",
    out_dtype: Any = None,
    threads: int | None = None,
    out: Array | None = None,
) -> Any:
    """Return the dot product of two vectors, as a scalar of `out_dtype`.

    The operands are MX arrays or arrays of floats. `accumulate` says how the products are summed
    (see `Accumulate`). `c`, `out_dtype` and `threads` mean the same as in `matmul`. If `out`, an
    array without axes, is given, the result is written to it, and `out` is returned.

    >>> import numpy as np, mxnum as mx
    >>> x = np.array([4096.0, 1.0, 1.0], np.float32)
    >>> mx.dot(x, x, accumulate="exact"), mx.dot(x, x, accumulate="sequential")
    (np.float32(1.6777218e+07), np.float32(1.6777216e+07))
    """
    mode = accumulation(accumulate)
    if isinstance(mode, MatrixUnit):
        return _dot_by_unit(a, b, c, mode, out_dtype, threads, out)
    x, y = _operand("a", a, mode), _operand("b", b, mode)
    for name, array in (("a", x.array), ("b", y.array)):
        errors.require(array.ndim == 1, name, "one-dimensional", array.shape)
    errors.require(x.array.shape == y.array.shape, "b", f"of length {x.array.size}", y.array.size)
    product = _product(x.row(), y.row(), c, (), mode, (out_dtype, threads, out), _tensor_scales(a, b, mode))
    if isinstance(product, DeviceArray):
        from mxnum.engine.cuda import sums

        return sums.scalar(product)
    return answer(product[0, 0], _held(a), out)


def matmul(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    accumulate: str | Accumulate | MatrixUnit = "block",
    out_dtype: Any = None,
    threads: int | None = None,
    out: Array | None = None,
) -> Array:
    """Return the matrix product a·b + c, summed in the order that `accumulate` selects.

    Parameters
    ----------
    a, b
        MX arrays or arrays of floats with at least two axes. Leading axes broadcast as in
        `numpy.matmul`. The products are summed along the last axis of a and the second-to-last axis
        of b.
    c
        An addend that broadcasts to the shape of the result. The addend is rounded to float32. Each
        sum starts from the addend, except in two modes. In ``"exact"`` the addend is one more term
        of the exact sum. In ``"blas"`` the addend is added to the sum in float32. For a matrix
        unit, c is the addend of the first instruction, and has the unit's accumulator type.
    accumulate
        An `Accumulate`, which describes the orders of summation, or a matrix unit. ``"block"``
        needs both operands quantized along the summed axis: ``axis=-1`` for a, ``axis=-2`` for b. A
        transposed MX array (``q.T``) works too. For a `mxnum.units.MatrixUnit` or its name
        (``"hopper_fp8"``), each sum is computed as the unit computes it, one instruction after the
        other along the summed axis. The operands of a unit may also be arrays of float8, float16,
        bfloat16 or float32. Units for TF32 truncate float32 numbers to TF32.
    out_dtype
        float32, bfloat16 or float16. The default is the type of `out` if `out` is given, and the
        type of the sum otherwise. Sums have the type float32, except in some matrix units. If
        `out_dtype` is narrower than the sum's type, the sum is rounded once more.
    threads
        The maximum number of threads for a large product (default: the number set by
        `NUMBA_NUM_THREADS` or `numba.set_num_threads`). The result does not depend on `threads`.
        For ``accumulate="blas"``, the settings of numpy's BLAS determine the number of threads.
    out
        The array to which the result is written. `out` must have the shape and dtype of the result.
        `out` may overlap the operands and have any strides. `out` saves memory if it is a float32
        array in C order that does not overlap the operands.

    Examples
    --------
    >>> import numpy as np, mxnum as mx
    >>> x, w = np.linspace(-1, 1, 128).reshape(2, 64), np.linspace(0, 2, 192).reshape(3, 64)
    >>> mx.matmul(mx.quantize(x, "mxfp8_e4m3"), mx.quantize(w, "mxfp4_e2m1").T)
    array([[ -6.9257812, -26.1875   , -50.1875   ],
           [ 13.95874  ,  33.703125 ,  57.65625  ]], dtype=float32)
    """
    mode = accumulation(accumulate)
    if isinstance(mode, MatrixUnit):
        return _by_unit(a, b, c, mode, mode.k[-1], (out_dtype, threads, out))
    x, y = _operand("a", a, mode), _operand("b", b, mode)
    shape = _shape(x.array.shape, y.array.shape)
    tensor_scales = _tensor_scales(a, b, mode)
    product = owned(_product(x, y.swapped(), c, shape, mode, (out_dtype, threads, out), tensor_scales))
    return answer(product, _held(a), out)


def mma(a: Any, b: Any, c: Any, unit: str | MatrixUnit, *, threads: int | None = None) -> Array:
    """Return d = a·b + c as one instruction of a matrix unit computes it.

    The result has the unit's accumulator type.

    Parameters
    ----------
    a, b
        Arrays of shapes (..., M, K) and (..., K, N), where K is the length of an instruction of the
        unit. `mxnum.units.describe` lists the operands that a unit accepts.
    c
        An array of the accumulator's type that broadcasts to (..., M, N). None means that c is
        zero.
    unit
        A `MatrixUnit` or the name of one.
    threads
        The maximum number of threads. The result does not depend on `threads`.

    Examples
    --------
    >>> import numpy as np, mxnum as mx
    >>> a = np.full((1, 4), 3.0, np.float16)
    >>> mx.mma(a, a.T, np.ones((1, 1), np.float32), "volta_float16")
    array([[37.]], dtype=float32)
    """
    row = units.get(unit)
    length = _axes("a", np.shape(a) if not hasattr(a, "shape") else tuple(a.shape))[-1]
    accepted = f"of length {errors.joined(row.k)} along its last axis for one instruction of unit {row.name!r}"
    errors.require(length in row.k, "a", accepted, length)
    return _by_unit(
        a, b, c, row.but(promotion=0, evidence=row.evidence) if row.promotion else row, length, (None, threads, None)
    )


def accumulation(value: Any, argument: str = "accumulate") -> Accumulate | MatrixUnit:
    """Return an `Accumulate` or a matrix unit; `value` is this object or its name."""
    unit = None if isinstance(value, Accumulate) else units.find(value)
    if unit is None and isinstance(value, str) and "_" in value:  # only the names of units contain "_"
        errors.choose(argument, value, units.names())
    return unit if unit is not None else errors.choose_member(argument, value, Accumulate)


def _shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a matrix product; raise ValueError if the operands' shapes do not fit."""
    (*leading, rows, length), (*others, summed, columns) = _axes("a", a), _axes("b", b)
    errors.require(summed == length, "b", f"of length {length} along its last but one axis", b)
    if leading or others:
        try:
            leading = list(np.broadcast_shapes(tuple(leading), tuple(others)))
        except ValueError:
            accepted = f"of leading axes that broadcast with {tuple(leading)}"
            errors.require(False, "b", accepted, tuple(others))
    return (*leading, rows, columns)


def _dot_by_unit(
    a: Any, b: Any, c: Any, unit: MatrixUnit, out_dtype: Any, threads: int | None, out: Array | None
) -> Any:
    """Return the dot product of two vectors as a matrix unit computes it."""
    for name, x in (("a", a), ("b", b)):
        errors.require(np.ndim(x) == 1 if not hasattr(x, "ndim") else x.ndim == 1, name, "one-dimensional", np.shape(x))
    errors.require(len(a) == len(b), "b", f"of length {len(a)}", len(b))
    row, column = (_as_row(name, x) for name, x in (("a", a), ("b", b)))
    product = _by_unit(row, column.T, c, unit, unit.k[-1], (out_dtype, threads, None))
    if out is not None:
        checked_host_out(host_view("out", out), (), product.dtype)[...] = product[0, 0]
    return answer(product[0, 0], _held(a), out)


def _as_row(name: str, x: Any) -> Any:
    """Return a vector as a matrix of one row."""
    if not isinstance(x, MXArray):
        return np.asarray(host_view(name, x))[None]
    if on_device(x.scales):
        raise errors.on_gpu(name, "call to_host() first, because products of matrix units run on the CPU")
    codes, scales, offsets = (None if part is None else part[None] for part in parts_of(x))
    more: dict[str, Any] = {"offsets": offsets, "tensor_scale": x.tensor_scale}
    return MXArray.from_parts(codes, scales, x.format, blocks=(1, *x.blocks), **more)


def _by_unit(a: Any, b: Any, c: Any, unit: MatrixUnit, k: int, how: tuple[Any, int | None, Array | None]) -> Array:
    """Return a·b + c as a matrix unit computes it, with instructions that sum `k` products.

    `how` is (out_dtype, threads, out), as in `matmul`.
    """
    from mxnum.array.unit_operands import unit_addend, unit_operand
    from mxnum.engine.products.fused_sums import matmul as product
    from mxnum.engine.products.fused_sums import multiply_by_factors

    out_dtype, threads, given = how
    out, own = host_view("out", given), FLOATS[unit.accumulator]
    if out_dtype is None:
        out_dtype = unit.accumulator if out is None else getattr(out, "dtype", "float32")
    target = result_format(out_dtype, "out_dtype", RESULTS)
    x, y = unit_operand("a", a, unit), unit_operand("b", b, unit, transposed=True)
    shape = _shape(tuple(a.shape), tuple(b.shape))
    out, threads = checked_host_out(out, shape, numpy_dtype(target)), checked_threads(threads)
    total = unit_addend(host_view("c", c), unit, shape)
    is_added = c is not None and bool(total.any())
    product(x.operand, y.operand, (x.scale, y.scale), unit, k, total, threads)
    if x.factor is not None or y.factor is not None:
        name, accepted = "b" if x.factor is None else "a", f"an array without scales for unit {unit.name!r}"
        errors.require(own.bits == 32, name, accepted, "an array with float32 scales")
        multiply_by_factors(total, x.factor, y.factor)
    _warn(unit, k, x.operand.array.shape[-1], is_added, total)
    total = narrowed(total, own, target)
    if out is not None:
        out[...] = total
        total = out
    return answer(total, _held(a), given)


def _warn(unit: MatrixUnit, k: int, length: int, has_addend: bool, result: Array) -> None:
    """Warn if a result depends on rules of the unit that no output of a real chip confirms."""
    skipped = set() if has_addend or length > k else {"addend", "chains"}
    if np.isfinite(result).all():
        skipped.add("special values")
    warn_of(unit, [clause for clause in unit.clauses if clause not in skipped])


def _held(operand: Any) -> Any:
    """Return an array of the caller's library, to which `answer` converts the result.

    The array is the scales of an MX array, or the operand itself.
    """
    return operand.scales if isinstance(operand, MXArray) else operand


def _axes(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    errors.require(len(shape) >= 2, name, "of at least two axes", shape)
    return shape


def _operand(name: str, value: Any, mode: Accumulate) -> Any:
    """Return the engine's operand for an MX array or an array of floats.

    An MX array with float scales is decoded to float64, unless `mode` sums by blocks. float64 holds
    the array's values exactly.
    """
    from mxnum.engine.products.operands import Operand

    if isinstance(value, MXArray) and (number := value.format.scale.number) is not None:
        if on_device(value.scales):
            raise errors.on_gpu(name, "call to_host() first, because products on a GPU need E8M0 scales")
        if not mode.by_block:
            return Operand(*float_array(name, value.to_host().dequantize("float64")))
        codes, scales, _ = parts_of(value)
        table = _scales_by_code(value.format.scale)
        scales = narrowed(scales, number, FLOATS["float32"]) if table is None else table[scales]
        return Operand(codes, value.format.element, value.blocks, scales, None, number.mantissa_bits + 1)
    if isinstance(value, MXArray):
        codes, scales, offsets = parts_of(value)
        return Operand(codes, value.format.element, value.blocks, scales, offsets)
    return Operand(*float_array(name, value, anywhere=True))


@cache
def _scales_by_code(scale: ScaleFormat) -> Array | None:
    """Return the float32 value of each code of an 8-bit float scale, or None for longer codes."""
    if scale.number is None or scale.bits > 8:
        return None
    return np.array([scale.value(code) for code in range(1 << (scale.number.bits - 1))], np.float32)


def _tensor_scales(a: Any, b: Any, mode: Accumulate) -> list[Array]:
    """Return the operands' tensor scales, which multiply the finished sum over all blocks.

    Raise ValueError for an operand with several tensor scales along the summed axis, because then
    no single scale applies to a whole sum.
    """
    found = []
    for name, x, axis in (("a", a, -1), ("b", b, -2)) if mode.by_block else ():
        if isinstance(x, MXArray) and x.tensor_scale is not None:
            tensor = as_array("tensor_scale", x.tensor_scale)
            accepted = "an MXArray with a single tensor scale along the summed axis if accumulate='block'"
            errors.require(tensor.ndim == 0 or tensor.shape[max(axis, -x.ndim)] == 1, name, accepted, tensor.shape)
            found.append(tensor)
    return found


def _product(
    a: Any,
    b: Any,
    c: Any,
    shape: tuple[int, ...],
    mode: Accumulate,
    how: tuple[Any, int | None, Array | None],
    tensor_scales: list[Array],
) -> Any:
    """Return the product of two operands whose last axis is summed, plus `c`.

    `shape` is the shape of the result, and `how` is (out_dtype, threads, out), as in `matmul`. Each
    sum is multiplied by the product of the tensor scales, and then rounded to `out_dtype`.
    """
    out_dtype, threads, out = how
    if tensor_scales and c is not None:
        raise ValueError("Argument 'c' must be left out if accumulate='block' and an operand has a tensor scale.")
    is_on_device, out = together((("a", a.array), ("b", b.array))), host_view("out", out)
    if out_dtype is None and out is not None:
        target = result_format(getattr(out, "dtype", "float32"), "out.dtype", RESULTS)
    else:
        target = result_format("float32" if out_dtype is None else out_dtype, "out_dtype", RESULTS)
    if mode.by_block:
        _check_blocks(a, b)
    if is_on_device:
        from mxnum.engine.cuda import sums

        for name, value in (("c", c), ("threads", threads), ("out", out)):
            if value is not None:
                raise ValueError(f"Argument {name!r} must be left out for arrays on a GPU.")
        return sums.matmul(a, b, mode, target)
    from mxnum.engine.products.sums import matmul as product

    if out is not None:
        out = checked_host_out(out, shape, numpy_dtype(target))
    start = _start(c, shape, threads)
    shape, threads = shape or (1, 1), checked_threads(threads)
    result = None if out is None else out.reshape(shape) if out.ndim == 0 else out
    if result is not None and target == FLOATS["float32"] and result.flags.c_contiguous and not _overlaps(result, a, b):
        result[...] = start
        product(a, b, mode, result, threads, _float32, tensor_scales)
        return result
    total = np.empty(shape, np.float32)
    total[...] = start
    product(a, b, mode, total, threads, _float32, tensor_scales)
    total = narrowed(total, FLOATS["float32"], target)
    if result is None:
        return total
    result[...] = total
    return result


def _start(c: Any, shape: tuple[int, ...], threads: int | None) -> Array:
    """Return the addend, rounded to float32 to nearest even, or +0 if `c` is None."""
    if c is None:
        return np.zeros((), np.float32)
    array, source = float_array("c", c)
    try:
        fits = np.broadcast_shapes(array.shape, shape) == shape
    except ValueError:
        fits = False
    errors.require(fits, "c", f"of a shape that broadcasts to {shape}", array.shape)
    return narrowed(np.ascontiguousarray(array), source, FLOATS["float32"], threads)


def _overlaps(out: Array, *operands: Any) -> bool:
    parts = [part for x in operands for part in (x.array, x.scales, x.offsets) if part is not None]
    return any(np.may_share_memory(out, part) for part in parts)


def _float32(x: Any, threads: int | None) -> Array:
    """Return the values of an operand in float32, rounded once to nearest even."""
    target = FLOATS["float32"]
    if x.format == target:
        return x.array  # type: ignore[no-any-return]
    if x.scales is not None:
        kind = x.format, x.blocks, x.array.shape, False, x.offsets is not None, target
        request = DecodingRequest(decoding_settings(*kind), x.array, x.scales, x.offsets, threads)
        values: Array = host_engine().dequantize(request)
        return values
    array = x.array if x.array.swapaxes(-1, -2).flags.c_contiguous else np.ascontiguousarray(x.array)
    return narrowed(array, x.format, target, threads)


def narrowed(x: Array, source: ElementFormat, target: ElementFormat, threads: int | None = None) -> Array:
    """Return an array of floats in another float type, rounded to nearest even.

    A number beyond the range of the type becomes infinite.
    """
    if source == target:
        return x
    codes: Array = host_engine().encode(
        x, source, target, rounding=Rounding.RNE, overflow=Overflow.IEEE, nonfinite=Nonfinite.ELEMENT, random=None,
        threads=threads,
    )  # fmt: skip
    return codes.view(numpy_dtype(target))


def checked_host_out(out: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """Return `out` after the checks of `checked_out`; raise an error if `out` is on a GPU."""
    checked = checked_out(out, shape, dtype)
    if isinstance(checked, DeviceArray):
        raise errors.on_gpu("out", "pass an array in host memory")
    return checked


def _check_blocks(a: Any, b: Any) -> None:
    for name, operand in (("a", a), ("b", b)):
        if not operand.blocks:
            raise ValueError(
                f"Argument {name!r} must be an MXArray if accumulate='block', not {operand.format.name!r}; "
                "the other orders of summation, such as 'exact', accept floats."
            )
        if operand.offsets is not None:
            raise ValueError(f"Argument {name!r} must be without offsets if accumulate='block'.")
    block = a.blocks[-1]
    accepted = f"in blocks of {block} along the summed axis with accumulate='block'"
    errors.require(b.blocks[-1] == block, "b", accepted, b.blocks[-1])
