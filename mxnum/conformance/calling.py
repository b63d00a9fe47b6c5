"""Call the implementation under test, and copy each field of its answers to a numpy array.

Such an array is called a column. The implementation gets its own copies of the input arrays and may
overwrite them. An answer of a wrong shape or type raises an error. A code with too many bits stays
in its column, which then has the type int64, and the case counts as wrong. This module imports
torch only if the caller asks for tensors. If a callable returns a tensor, torch is already loaded.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any

import numpy as np

from mxnum import errors
from mxnum.conformance.bits import as_bits, as_floats, fitted, unpacked
from mxnum.conformance.cases.grid import as_magnitudes
from mxnum.conformance.judging.describe import NO_CODE
from mxnum.conformance.judging.right import element_codes, expected, held, is_nan_scale, right_scales, tensor_scales
from mxnum.conformance.task import ArrayFormat, Columns, Field, Task, number_of, select
from mxnum.definition import by_numpy
from mxnum.formats import E8M0, FLOATS, ScaleFormat
from mxnum.interop.swizzle import swizzle_scales, unswizzle_scales
from mxnum.layout import packed_length
from mxnum.memory.dtypes import ML_DTYPES, Array, numpy_dtype, scale_dtype
from mxnum.modes import Overflow, Rounding

#: The kinds of arrays that a callable may take.
ARRAYS = ("numpy", "torch", "cuda")
#: Layouts that the scales of blocks may have.
SCALES = ("plain", "swizzled")
#: The ml_dtypes type of each 8-bit scale format, by the format's name.
OWN_SCALES = {"e8m0": "float8_e8m0fnu", "e4m3": "float8_e4m3fn"}
#: The torch type whose bytes hold two 4-bit codes each. The first code is in the low four bits.
PAIRS = "float4_e2m1fn_x2"
#: Names of the parameters through which a function receives the tensor's largest magnitude and the
#: tensor scale.
OF_TENSORS = ("largest", "tensor_scale")
#: For 8-bit scales, `parts_of` also tries scale codes that differ by at most `_REACH` from the
#: scale rule's code. Wider scales have too many codes.
_REACH = 16


@dataclass(frozen=True)
class Implementation:
    """A callable under test, with the kind of arrays it takes and the layout of its scales."""

    function: Callable[..., Any]
    arrays: str = "numpy"
    scales: str = "plain"

    def __post_init__(self) -> None:
        errors.choose("arrays", self.arrays, ARRAYS)
        errors.choose("scales", self.scales, SCALES)

    def call(self, *arguments: Array) -> Any:
        """Call the callable with copies of the arrays and return its result."""
        with np.errstate(all="ignore"):
            return self.function(*(handed(argument, self.arrays) for argument in arguments))

    def answers(self, task: Task, inputs: Columns) -> Columns:
        """Call the callable once for each tensor of a batch; return the answers to all cases."""
        if not task.has_tensor:
            return _called_once(self, task, inputs)
        made: list[tuple[Array, Columns]] = []
        for rows in _tensors(task, inputs):
            part = select(inputs, rows)
            whole = _with_largest(part) if "x" in part else part
            found = _called_once(self.in_tensor(task, part), task, whole)
            made.append((rows, select(found, slice(len(rows)))))
        order = np.argsort(np.concatenate([rows for rows, _ in made]))
        return {name: np.concatenate([found[name] for _, found in made])[order] for name in made[0][1]}

    def in_tensor(self, task: Task, inputs: Columns) -> Implementation:
        """Bind the parameters `largest` and `tensor_scale` of the callable, if it has them.

        The values are read from the first row of `inputs`. The result is a new `Implementation`, or
        this one if the callable has neither parameter.
        """
        if not task.has_tensor:
            return self
        names = _wanted_by_name(self.function)
        if task.takes_codes and not names:  # codes do not determine the tensor scale
            raise ValueError(f"Argument 'function' must have a parameter called {errors.joined(OF_TENSORS)}.")
        given: dict[str, Any] = {}
        for name in names:
            bits = inputs[name][0]
            value = as_floats(bits, task.source)[0] if name == "largest" else bits.view(np.float32)[0]
            given[name] = value if self.arrays == "numpy" else handed(np.array(value), self.arrays)
        return replace(self, function=partial(self.function, **given)) if given else self


def in_place(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls a kernel and returns the array that the kernel overwrote.

    The kernel overwrites its first argument. Pass the returned function to `check` or
    `check_stochastic`.

    >>> import mxnum as mx
    >>> from mxnum.conformance import check, in_place
    >>> def kernel(x):
    ...     x[:] = mx.fake_quantize(x, "mxfp4_e2m1")
    >>> check(in_place(kernel), format="mxfp4_e2m1").bugs
    0
    """

    @wraps(kernel)
    def overwriting(x: Any, *arguments: Any, **keywords: Any) -> Any:
        kernel(x, *arguments, **keywords)
        return x

    return overwriting


def _wanted_by_name(function: Callable[..., Any]) -> list[str]:
    """Return the names in `OF_TENSORS` that are parameters of a function."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return []
    return [name for name in OF_TENSORS if name in parameters]


def _tensors(task: Task, inputs: Columns) -> Iterator[Array]:
    """Group the rows (blocks) of a batch into tensors, and yield each tensor's row indices.

    Rows with the same `largest` form one tensor. A block with NaN or infinity is a tensor of its
    own, because its NaN or infinity would affect every other block of the tensor.
    """
    largest = inputs["largest"][:, 0]
    alone: Array = np.zeros(len(largest), bool)
    if "x" in inputs:
        alone = np.asarray(~np.isfinite(as_magnitudes(inputs["x"], task.source)).all(axis=1))
    for value in np.unique(largest[~alone]):
        yield np.flatnonzero((largest == value) & ~alone)
    for row in np.flatnonzero(alone):
        yield np.array([row])


def _with_largest(part: Columns) -> Columns:
    """Return a copy of `part` with one more row: the tensor's largest magnitude, then zeros."""
    more = {name: np.concatenate([column, column[:1]]) for name, column in part.items()}
    more["x"][-1] = 0
    more["x"][-1, 0] = part["largest"][0, 0]
    return more


def _called_once(implementation: Implementation, task: Task, inputs: Columns) -> Columns:
    count, outputs = number_of(inputs), {field.name: field for field in task.outputs}
    fields = {field.name: field for field in task.inputs}
    names = (*task.operation.takes, *(["random"] if task.is_stochastic else []))
    result = implementation.call(*(_argument(task, fields[name], inputs[name]) for name in names))
    gives = task.operation.gives
    if len(gives) == 1:
        given = {gives[0]: result}
    elif _is_floats(result):
        found = parts_of(task, inputs, read_floats(result, "function: values", task, (count, task.block)))
        return {name: fitted(found[name], field.bits) for name, field in outputs.items()}
    else:
        given = dict(zip(gives, both(result), strict=True))
        shapes = [tuple(getattr(part, "shape", ())) for part in given.values()]
        if task.block > 1 and shapes[0] in ((count,), (count, 1)) and shapes[1] == (count, task.block):
            raise ValueError("Argument 'function' must return (codes, scales), not (scales, codes).")
    return {name: _column(given[name], field, count, task, implementation.scales) for name, field in outputs.items()}


def _argument(task: Task, field: Field, column: Array) -> Array:
    """Return a copy of one field of a batch, in the type and shape that the callable takes."""
    array = column[:, 0] if task.operation.is_flat or field.kind == "addend" else column
    if field.kind == "operand" and isinstance(task.format, ArrayFormat):
        return np.ascontiguousarray(array).view(numpy_dtype(task.element)).copy()
    if field.kind in ("float", "addend"):
        return as_floats(array, task.source).copy()
    if field.kind == "scale" and field.bits > 8:
        return np.ascontiguousarray(array).view(scale_dtype(task.format.scale)).copy()
    return array.copy()


def _is_floats(result: Any) -> bool:
    """Return True if the result is one array of floats, as a fake-quantization kernel returns."""
    if not (is_tensor(result) or isinstance(result, np.ndarray)):
        return False
    return as_array(result, "function")[1] in FLOATS


def both(result: Any) -> tuple[Any, Any]:
    """Return the two items of a quantizer's result; raise TypeError if it is not a pair."""
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise TypeError(f"Argument 'function' must return (codes, scales), not {type(result).__name__}.")
    return result[0], result[1]


def _column(value: Any, field: Field, count: int, task: Task, scales: str) -> Array:
    name = f"function: {field.name}"
    if field.kind == "float":
        return as_bits(read_floats(value, name, task, (count,)), task.source).reshape(count, 1)
    if field.kind == "scale":
        kind = task.format.scale
        return fitted(read_scale_codes(value, name, (count, 1), scales, ((count,),), kind), field.bits)
    shape = (count,) if field.count == 1 and task.operation.is_flat else (count, field.count)
    return fitted(read_element_codes(value, name, task, shape).reshape(count, field.count), field.bits)


def read_floats(value: Any, name: str, task: Task, shape: tuple[int, ...]) -> Array:
    """Return an answer's floats in native byte order; raise an error if type or shape is wrong."""
    array, kind = as_array(value, name)
    wanted = numpy_dtype(task.source)
    # A check of an operation with a fixed type takes no `source`.
    may_choose = "source" in task.operation.settings and kind == "bfloat16"
    accepted = f"an array of {wanted.name}, the type that 'source' sets" if may_choose else f"an array of {wanted.name}"
    errors.require_type(kind == wanted.name, name, accepted, kind)
    errors.require(array.shape == shape, name, f"of shape {shape}", array.shape)
    return array.astype(wanted)


def read_element_codes(value: Any, name: str, task: Task, shape: tuple[int, ...], packs: bool = False) -> Array:
    """Return the element codes of an answer as an array of integers.

    `value` may be an array of integers of any width, or of the element's own type. Its rows may be
    packed. If each row holds one code, packed and unpacked rows have the same shape, and `packs`
    says whether the rows are packed.
    """
    array, kind = as_array(value, name)
    element, bits = task.element, task.element.bits
    packed = packed_shape(shape, bits)
    own = ML_DTYPES.get(element.name, "")
    if kind == PAIRS and element.name == "e2m1":
        errors.require(array.shape == packed, name, f"of shape {packed}, two codes a byte", array.shape)
        return unpacked(array, shape[-1], bits)
    if kind == own:  # the code of an int8 or int4 number is its two's complement
        array = array.view(np.int8 if element.integer else np.uint8).astype(np.int64) & ((1 << bits) - 1)
    else:
        accepted = f"an array of integers{f' or {own}' * bool(own)}"
        errors.require_type(array.dtype.kind in "ui" and not kind.startswith("float"), name, accepted, kind)
    if bits < 8 and array.shape == packed and array.dtype == np.uint8 and (packs or array.shape != shape):
        return unpacked(array, shape[-1], bits)
    also = f" (or {packed}, packed in bytes)" if bits < 8 and packed != shape else ""
    errors.require(array.shape == shape, name, f"of shape {shape}{also}", array.shape)
    return array


def packed_shape(shape: tuple[int, ...], bits: int) -> tuple[int, ...]:
    """Return the shape of codes that are packed row by row."""
    return (*shape[:-1], packed_length(shape[-1], bits))


def read_scale_codes(
    value: Any,
    name: str,
    shape: tuple[int, int],
    lie: str = "plain",
    others: Sequence[tuple[int, ...]] = (),
    scale: ScaleFormat = E8M0,
) -> Array:
    """Return the codes of scales as integers of the given shape.

    `value` may be an array of integers, or of the scale format's type in ml_dtypes. Its shape may
    also be one of the shapes in `others`.
    """
    array, kind = as_array(value, name)
    own = OWN_SCALES.get(scale.name, scale.name if scale.bits > 8 else "")
    if kind == own:
        array = array.view(f"u{scale.bits // 8}")
    else:
        accepted = f"an array of integers{f' or {own}' * bool(own)}"
        errors.require_type(array.dtype.kind in "ui" and not kind.startswith("float"), name, accepted, kind)
    if lie == "swizzled":
        size = swizzle_scales(np.zeros(shape, np.uint8)).size
        errors.require(array.size == size, name, f"of {size} bytes, as swizzled scales of shape {shape}", array.shape)
        errors.require_type(array.dtype == np.uint8, name, "an array of uint8 or float8_e8m0fnu", array.dtype.name)
        return unswizzle_scales(array.ravel(), shape)
    accepted = " or ".join(str(s) for s in (*others, shape))
    errors.require(array.shape in (shape, *others), name, f"of shape {accepted}", array.shape)
    return _nan_as_one(array.reshape(shape), scale)


def _nan_as_one(codes: Array, scale: ScaleFormat) -> Array:
    """Return codes of float scales; every NaN becomes the NaN code of the format."""
    number = scale.number
    if number is None or number.bits > scale.bits:
        return codes
    magnitude = codes & codes.dtype.type((1 << (number.bits - 1)) - 1)
    is_code = (codes >= 0) & (codes < 1 << number.bits)
    is_nan = is_code & (magnitude > number.max_code + (number.infinity_code is not None))
    return np.where(is_nan, codes.dtype.type(scale.nan_code), codes)


def parts_of(task: Task, inputs: Columns, values: Array) -> Columns:
    """Find a scale and codes for the values of each block; a value without a code gets `NO_CODE`.

    Several scales can give the same values; for example, zero has a code at every scale. The scales
    come from the scale rule that reproduces the most blocks. If rules tie, the claimed rule wins.
    If some value of a block has no code at its scale, the block gets the nearest 8-bit scale code
    at which all its values have codes. If several codes give the same value, the right code is
    preferred.
    """
    bits = np.where(np.isnan(values), values.dtype.type(np.nan), values)
    bits = as_bits(np.where(values == 0, values * 0, bits) if task.element.integer else bits, task.source)
    right, scale, codes = _by_rule(task, inputs, bits)
    if right < len(bits) and _is_known(task, inputs):
        rules = [rule for rule in type(task.scale_rule) if not by_numpy.looks_at_elements(rule)]
        others = [_by_rule(replace(task, scale_rule=rule), inputs, bits) for rule in rules]
        _, scale, codes = max([(right, scale, codes), *others], key=lambda found: found[0])
    if task.format.scale.bits == 8:
        for step in sorted(range(-_REACH, _REACH + 1), key=abs):
            rows = np.flatnonzero((codes == NO_CODE).any(axis=1))
            if step and rows.size:
                other = np.clip(scale[rows] + step, 0, task.format.scale.max_code)
                found = _codes_at(task, select(inputs, rows), bits[rows], other)
                fits = (found != NO_CODE).all(axis=1) & ~is_nan_scale(task, scale[rows])[:, 0]
                codes[rows[fits]], scale[rows[fits]] = found[fits], other[fits]
    return {"scale": scale, "codes": codes}


def _is_known(task: Task, inputs: Columns) -> bool:
    """Return True if the right codes are known.

    The right codes are unknown if the kernel draws its own random bits.
    """
    return not task.is_stochastic or "random" in inputs


def _by_rule(task: Task, inputs: Columns, bits: Array) -> tuple[int, Array, Array]:
    """Return how many blocks the task's scale rule reproduces, and each block's scale and codes.

    The rule reproduces a block if the right codes, decoded at the rule's scale, equal the block's
    values. If the right codes are unknown, it suffices that each value has a code at this scale.
    """
    scale = right_scales(task, inputs).astype(np.int64)
    codes = _codes_at(task, inputs, bits, scale)
    alike = codes != NO_CODE
    if _is_known(task, inputs):
        right = expected(task, inputs)["codes"]
        alike = _decoded(task, inputs, right, scale) == bits
        codes = np.where(alike, right, codes)
    return int(alike.all(axis=1).sum()), scale, codes


def _codes_at(task: Task, inputs: Columns, bits: Array, scale: Array) -> Array:
    """Return the code of each value at its block's scale; `NO_CODE` if there is no such code."""
    nearest = replace(task, rounding=Rounding.RNE, overflow=Overflow.SATURATE)
    codes = element_codes(nearest, bits, scale, None, tensor_scales(inputs))
    return np.where(_decoded(task, inputs, codes, scale) == bits, codes.astype(np.int64), NO_CODE)


def _decoded(task: Task, inputs: Columns, codes: Array, scale: Array) -> Array:
    how = task.element, task.format.scale, (1, task.block), task.source, tensor_scales(inputs)
    return as_bits(by_numpy.dequantize(codes, held(task, scale), *how), task.source)


def is_tensor(value: Any) -> bool:
    """Return True if the value is a tensor of torch, which need not be installed."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def to_numpy(tensor: Any) -> tuple[Array, str]:
    """Return a tensor's elements in host memory, and the name of its type.

    Elements of a type that numpy lacks are returned as bytes.
    """
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
    """Return an array as the kind of array that the callable takes, without a copy if possible."""
    if kind == "numpy":
        return array
    from mxnum.interop.torch import as_tensor

    if array.dtype.name.startswith(("float4", "float6")):  # torch lacks unpacked 4-bit and 6-bit floats
        array = array.view(np.uint8)
    tensor = as_tensor(array)
    if kind == "torch":
        return tensor
    import torch

    strides = tuple(step // array.itemsize for step in array.strides)
    return torch.empty_strided(array.shape, strides, dtype=tensor.dtype, device="cuda").copy_(tensor)


def as_array(value: Any, name: str) -> tuple[Array, str]:
    """Return a callable's answer as a new numpy array, and the name of the answer's dtype."""
    if is_tensor(value):
        array, kind = to_numpy(value)
        return array.copy(), kind
    for method in ("copy_to_host", "get"):  # the methods with which numba and CuPy copy to the host
        if hasattr(value, "__cuda_array_interface__") and hasattr(value, method):
            value = getattr(value, method)()
    try:
        array = np.array(value)
    except ValueError:  # numpy cannot make an array of rows of different lengths
        raise TypeError(f"Argument {name!r} must be an array, not a {type(value).__name__} of uneven rows.") from None
    if array.dtype.kind == "O":
        found = type(value).__name__ if array.ndim == 0 else "objects"
        raise TypeError(f"Argument {name!r} must be an array, not {found}.")
    return array, array.dtype.name
