"""What calls need that ask for the same of arrays of one shape and type, made by the first of them.

A plan is for arrays that lie in memory as loops take them. It knows these when it sees them, and refuses all others:
they go the way that looks at everything anew, which has the errors too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from mxnum.dtypes import Array, numpy_dtype
from mxnum.engine import packed
from mxnum.engine.draws import NO_DRAW, Draw
from mxnum.engine.jobs import Steps, decoding_job, drawn_in_line, is_in_line, quantizing_job, scaling_job
from mxnum.engine.parts import NOTHING
from mxnum.engine.request import PACKED, SCALES, VALUES, RandomBits, Settings, must_look
from mxnum.engine.walk import plan
from mxnum.formats import ElementFormat
from mxnum.layout import Blocks, packed_length, scales_shape

_BYTE, _may_share = np.dtype(np.uint8), np.may_share_memory
#: The shape and the dtype of arrays that a plan is for.
Kind = tuple[tuple[int, ...], np.dtype[Any]]
#: (x, out, scales, words, threads) -> results and scales, new where none are given. `words` are what random bits are
#: drawn from. None, with nothing done, if this is no plan for the arrays; x has the shape and the type that it is for.
Plan = Callable[[Array, Any, Any, Any, "int | None"], "tuple[Array, Array] | None"]


def _plan(steps: Steps, of_out: Kind, of_scales: Kind, *, makes_scales: bool) -> Plan:
    """An operation with everything looked up but the arrays; nothing of one call is kept for another."""

    def run(x: Array, out: Any, scales: Any, words: Any, threads: int | None) -> tuple[Array, Array] | None:
        if not x.flags.c_contiguous:
            return None
        if scales is None:
            scales = np.empty(*of_scales)
        elif not _is_plain(scales, of_scales, written=makes_scales) or (makes_scales and _may_share(x, scales)):
            return None
        if out is None:
            out = np.empty(*of_out)
        elif not _is_plain(out, of_out, written=True) or _may_share(x, out) or _may_share(scales, out):
            return None
        steps.run(x, out, scales, words, threads)
        return out, scales

    return run


def _is_plain(array: Any, kind: Kind, *, written: bool) -> bool:
    """Whether an array of numpy's own has that shape and type, and its elements follow each other."""
    if type(array) is not np.ndarray or (array.shape, array.dtype) != kind:
        return False
    flags = array.flags
    return flags.c_contiguous and (flags.writeable or not written)


def quantize_as_planned(
    asked: Settings, made: str, x: Any, out: Any, scales: Any, random: RandomBits | None, threads: int | None
) -> tuple[Array, Array] | None:
    """Codes or values, and scales, in the arrays given or in new ones; None, with nothing done, without a plan.

    An `x` in host memory is of the shape and the type that is asked for.
    """
    if type(x) is not np.ndarray:
        return None
    draw, words = NO_DRAW, 0
    if random is not None:
        if not is_in_line(random):
            return None
        draw, words = drawn_in_line(random)
    found = quantizing_plan(asked, made, draw)
    return None if found is None else found(x, out, scales, words, threads)


def dequantize_as_planned(
    element: ElementFormat,
    blocks: Blocks,
    shape: tuple[int, ...],
    is_packed: bool,
    target: ElementFormat,
    stored: Any,
    scales: Any,
    out: Any,
    threads: int | None,
) -> Array | None:
    """Values of codes of that shape, which may be held packed; None, with nothing done, without a plan."""
    if type(stored) is not np.ndarray or stored.dtype != _BYTE:
        return None
    found = decoding_plan(element, blocks, shape, is_packed, target)
    if found is None:
        return None
    done = found(stored, out, scales, 0, threads)
    return None if done is None else done[0]


@lru_cache(maxsize=4096)
def quantizing_plan(asked: Settings, made: str, draw: Draw) -> Plan | None:
    """The plan for what is asked; None where no loop takes it as it is, or there is more to do than a loop does."""
    shape, element, blocks = asked.shape, asked.element, asked.blocks
    if asked.offset_range is not None or asked.scales_given or must_look(element, asked.nonfinite):
        return None
    x, codes, scales = (shape, numpy_dtype(asked.source)), (shape, _BYTE), (asked.scales_shape, _BYTE)
    job = scaling_job(asked) if made == SCALES else quantizing_job(asked, made == VALUES)
    if made == PACKED:
        walk = packed.way(shape, blocks, element.bits)
        if walk is None or job.fast is None:
            return None
        bytes_ = (*shape[:-1], packed_length(shape[-1], element.bits)), _BYTE
        steps = packed.quantizing_steps(job, walk, element.bits, draw)
        return _plan(steps, bytes_, scales, makes_scales=True)
    walk = plan(shape, blocks)
    if walk is None or walk.is_narrow or walk.elements == 0:
        return None
    out = {VALUES: x, SCALES: (NOTHING.shape, NOTHING.dtype)}.get(made, codes)
    return _plan(job.steps(walk, draw), out, scales, makes_scales=True)


@lru_cache(maxsize=4096)
def decoding_plan(
    element: ElementFormat, blocks: Blocks, shape: tuple[int, ...], is_packed: bool, target: ElementFormat
) -> Plan | None:
    """The same for the values of codes without offsets."""
    job, bits = decoding_job(element, target), element.bits
    scales, values = (scales_shape(shape, blocks), _BYTE), (shape, numpy_dtype(target))
    if is_packed:
        walk = packed.way(shape, blocks, bits)
        if walk is None or job.fast is None:
            return None
        return _plan(packed.decoding_steps(job, walk, bits), values, scales, makes_scales=False)
    walk = plan(shape, blocks)
    if walk is None or walk.is_narrow or walk.elements == 0:
        return None
    return _plan(job.steps(walk), values, scales, makes_scales=False)
