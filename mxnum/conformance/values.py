"""Find the scale codes and element codes behind the values that a kernel returns.

Values do not always determine the codes: zero has a code at every scale. The scales are those of
the scale rule, the claimed one or another, that gives the values of most blocks. If such a scale
cannot give all values of its block, the nearest scale that can is taken. The codes are the right
ones if they give the values.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mxnum.conformance.expected import as_bits, as_floats, element_codes, expected, is_nan_scale, tensor_scales
from mxnum.conformance.task import Columns, Task
from mxnum.definition import by_numpy
from mxnum.memory.dtypes import Array
from mxnum.modes import Overflow, Rounding

#: Stands for the code of a value that no code has.
NO_CODE = -(1 << 40)
#: How far from the right scale other scales are tried, in codes. Only 8-bit scales: others have too
#: many codes.
_REACH = 16


def parts_of(task: Task, inputs: Columns, values: Array) -> Columns:
    """Return the scale and the codes that give each block of values; `NO_CODE` for a value that has no code."""
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
                some = {name: column[rows] for name, column in inputs.items()}
                found = _codes_at(task, some, bits[rows], other)
                fits = (found != NO_CODE).all(axis=1) & ~is_nan_scale(task, scale[rows])[:, 0]
                codes[rows[fits]], scale[rows[fits]] = found[fits], other[fits]
    return {"scale": scale, "codes": codes}


def _is_known(task: Task, inputs: Columns) -> bool:
    """Return True if the right codes are known. Those of a kernel that draws its own bits are not."""
    return not task.is_stochastic or "random" in inputs


def _by_rule(task: Task, inputs: Columns, bits: Array) -> tuple[int, Array, Array]:
    """Return how many blocks have the values of the scale rule, its scales, and the codes of the values at them."""
    scale = expected(replace(task, operation="scale"), inputs)["scale"].astype(np.int64)
    codes = _codes_at(task, inputs, bits, scale)
    alike = codes != NO_CODE
    if _is_known(task, inputs):
        right = expected(task, inputs)["codes"]
        alike = _decoded(task, inputs, right, scale) == bits
        codes = np.where(alike, right, codes)
    return int(alike.all(axis=1).sum()), scale, codes


def _codes_at(task: Task, inputs: Columns, bits: Array, scale: Array) -> Array:
    """Return the codes that give the values at a scale; `NO_CODE` for values that no code gives."""
    nearest = replace(task, rounding=Rounding.RNE, overflow=Overflow.SATURATE)
    codes = element_codes(nearest, bits, scale, None, tensor_scales(inputs))
    return np.where(_decoded(task, inputs, codes, scale) == bits, codes.astype(np.int64), NO_CODE)


def _decoded(task: Task, inputs: Columns, codes: Array, scale: Array) -> Array:
    held = np.ascontiguousarray(scale.astype(f"u{task.format.scale.bits // 8}"))
    blocks, tensor = (1, task.block), tensor_scales(inputs)
    found = by_numpy.dequantize(codes, held, task.element, task.format.scale, blocks, task.source, tensor)
    return as_bits(as_floats(found, task.source), task.source)
