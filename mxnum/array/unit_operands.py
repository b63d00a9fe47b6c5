"""Convert the arrays that a caller passes into operands of matrix units."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mxnum import errors
from mxnum.array.mx_array import MXArray, parts_of
from mxnum.engine.products.operands import Operand
from mxnum.formats import ScaleFormat, scale_names
from mxnum.memory.device import on_device
from mxnum.memory.dtypes import ML_DTYPES, Array, as_array, known_name
from mxnum.units import MatrixUnit

#: The operand format of each dtype, by name. float32 arrays are TF32 operands.
_NAMES = {dtype: name for name, dtype in ML_DTYPES.items()} | {"float16": "float16", "float32": "tf32"}
_CODES = {1: np.uint8, 2: np.uint16, 4: np.uint32}


class UnitOperand(NamedTuple):
    """An operand of a matrix unit, with its scales."""

    operand: Operand
    #: The format of the scales that are applied within the sum, or None if no scales are applied.
    scale: ScaleFormat | None
    #: The float32 factors by which finished sums are multiplied, or None without factors. A factor
    #: belongs to one row of the operand or to several rows.
    factor: Array | None


def unit_operand(name: str, value: Any, unit: MatrixUnit, transposed: bool = False) -> UnitOperand:
    """Return an MX array or an array of floats as an operand of a matrix unit.

    A unit sums along the last axis of its operands. If `transposed` is True, the last two axes are
    exchanged before the sum. Raise ValueError if the unit does not accept the operand.
    """
    if isinstance(value, MXArray):
        return _of_mx(name, value, unit, transposed)
    if on_device(value):
        raise errors.on_gpu(name, "products of matrix units run on the CPU: copy the array first")
    array = as_array(name, value)
    kind = _NAMES.get(array.dtype.name, array.dtype.name)
    errors.require(kind in unit.operands and not unit.scales, name, _taken(unit), array.dtype.name)
    errors.require(array.dtype.isnative, name, "in native byte order", array.dtype.str)
    codes = array.view(_CODES[array.itemsize])
    operand = Operand(codes >> np.uint32(13) if kind == "tf32" else codes, unit.formats[kind])
    return UnitOperand(operand.swapped() if transposed else operand, None, None)


def _taken(unit: MatrixUnit) -> str:
    """Return the part of an error message that lists the operands that a unit accepts."""
    return f"{unit.takes} for unit {unit.name!r}"


def _of_mx(name: str, value: MXArray, unit: MatrixUnit, transposed: bool) -> UnitOperand:
    fmt = value.format
    if on_device(value.scales):
        raise errors.on_gpu(name, "products of matrix units run on the CPU: call to_host() first")
    errors.require(value.offsets is None, name, "free of offsets for a matrix unit", "an array with offsets")
    errors.require(known_name(fmt.element) in unit.operands, name, _taken(unit), fmt.name)
    codes, scales, _ = parts_of(value)
    operand = Operand(codes, fmt.element, value.blocks, scales)
    operand = operand.swapped() if transposed else operand
    length, block = operand.array.shape[-1], operand.blocks[-1]
    factor = None
    if value.tensor_scale is not None:
        tensor: Array = np.atleast_2d(as_array(name, value.tensor_scale))
        factor = tensor.swapaxes(-1, -2) if transposed else tensor
    kind = fmt.scale.name, block
    if kind in unit.scales or (unit.promotion and kind == ("float32", unit.promotion)):
        return UnitOperand(operand, fmt.scale, factor)
    spans = fmt.scale.name == "float32" and block >= length and not unit.scales
    errors.require(spans, name, _taken(unit), f"{scale_names(fmt)} scales in blocks of {block} along the summed axis")
    rows = operand.by_rows()
    return UnitOperand(Operand(rows.array, fmt.element), None, rows.scales)


def unit_addend(value: Any, unit: MatrixUnit, shape: tuple[int, ...]) -> Array:
    """Return the addend as a new C-contiguous array in the type of the unit's accumulator.

    If `value` is None, the addend is zero.
    """
    if value is None:
        return np.zeros(shape, unit.accumulator)
    addend = as_array("c", value)
    accepted = f"an array of {unit.accumulator} for unit {unit.name!r}"
    errors.require(addend.dtype == np.dtype(unit.accumulator), "c", accepted, addend.dtype.name)
    try:
        fits = np.broadcast_shapes(addend.shape, shape) == shape
    except ValueError:
        fits = False
    errors.require(fits, "c", f"of a shape that broadcasts to {shape}", addend.shape)
    made = np.empty(shape, unit.accumulator)
    made[...] = addend
    return made
