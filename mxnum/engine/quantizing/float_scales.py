"""The transform of blocks for scales that are floats, and the tensor scale of an array."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, lru_cache, partial
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from mxnum.definition.float_scale import make_float_scale, make_tensor_scale
from mxnum.engine.loops import float_scales as loops
from mxnum.engine.loops.panels import Draw, block_maxima, greatest_magnitude
from mxnum.engine.machine import vectors
from mxnum.engine.machine.jit import compile_loop
from mxnum.engine.machine.workers import bounds, run_in_threads, worth
from mxnum.engine.quantizing import choosing
from mxnum.engine.quantizing.plan import Bind, Conversion, Exact, Operation, Run, Sides, operation
from mxnum.engine.request import DecodingSettings, Request, Settings
from mxnum.engine.rounding import by_factors, formulation, paths, stochastic_over
from mxnum.engine.rounding.by_factors import Formulation
from mxnum.engine.traversal.block_walk import ELEMENTS_PER_THREAD, Walk
from mxnum.formats import ElementFormat, ScaleFormat
from mxnum.memory.dtypes import Array, scale_dtype, signed_bits

#: `_largest_of_rows` copies about this many elements at a time.
_PIECE = 1 << 18


class FloatScales:
    """A transform that divides each element by the float scale of its block.

    If the format has a tensor scale, the divisor is the scale of the block times the tensor scale.
    """

    def __init__(self, scale: ScaleFormat) -> None:
        self.sides = (scale_dtype(scale),)

    def apply(self, asked: Settings) -> Operation:
        return _applying(asked, None)

    def apply_and_undo(self, asked: Settings) -> Operation:
        return _applying(asked, asked.source)

    def undo(self, asked: DecodingSettings) -> Operation:
        how = asked.element, asked.scale, asked.target
        multiplies_fast = paths.MULTIPLIED.covers(asked.target, asked.element, scale=asked.scale)
        fast = by_factors.decoding(*how) if multiplies_fast else None
        return operation(decoding(fast, formulation.decoding_over(*how)), asked.element.bits, asked.shape)


transform = lru_cache(maxsize=None)(FloatScales)


def _applying(asked: Settings, target: ElementFormat | None) -> Operation:
    """Return the operation that quantizes to codes or, if `target` is given, to its values."""
    chooses = asked.float_rule.error_power and not asked.scales_given
    given = replace(asked, scales_given=True) if chooses else asked
    source, scale = asked.source, asked.format.scale
    how = source, asked.element, scale, asked.rounding, asked.overflow, target
    nan_code = scale.nan_code if asked.nonfinite.by_block else -1
    definition = formulation.quantizing_over(*how)
    conversion = quantizing(source, _fast(asked, target), definition, _finding(given), nan_code)
    convert = operation(conversion, asked.element.bits, asked.shape)
    return _after_choosing(asked, convert) if chooses else convert


def quantizing(
    source: ElementFormat,
    fast: Formulation | None,
    definition: Formulation | None,
    find: tuple[Callable[..., Any] | None, Callable[..., Any] | None],
    nan_code: int,
) -> Conversion:
    """Return the `Conversion` that quantizes floats by `fast` if possible, else by `definition`.

    `find` is a pair of functions that compute a scale code from (largest magnitude, tensor scale):
    a fast function and the definition. If the caller passes scales, `find` is (None, None).
    `nan_code` is the scale code of blocks that hold NaN or infinity, or -1 if these blocks have no
    special code.
    """
    find_fast, find_defined = find

    def fast_loop(walk: Walk, draw: Draw) -> Bind:
        assert fast is not None
        return loops.quantize(fast, source, find_fast, draw, _constant_run(walk), walk.bits < 8)

    def exact(draw: Draw) -> Exact:
        assert definition is not None
        return Exact(loops.find_by(find_defined, source, nan_code), loops.convert_by(definition, draw))

    return _conversion(source, fast, fast_loop, None if definition is None else exact)


def decoding(fast: Formulation | None, definition: Formulation | None) -> Conversion:
    """Return the `Conversion` that decodes codes, by a fast formulation or by the definition."""

    def fast_loop(walk: Walk, draw: Draw) -> Bind:
        assert fast is not None
        return loops.decode(fast, _constant_run(walk), walk.bits < 8)

    def exact(draw: Draw) -> Exact:
        assert definition is not None
        return Exact(None, loops.convert_by(definition, draw))

    return _conversion(None, fast, fast_loop, None if definition is None else exact)


def _conversion(
    source: ElementFormat | None, fast: Formulation | None, fast_loop: Any, exact: Callable[[Draw], Exact] | None
) -> Conversion:
    return Conversion(source, True, None if fast is None else fast_loop, exact, packs=partial(_packs, fast))


def _constant_run(walk: Walk) -> int:
    """Return the block length, or 0 if loops have no kernel for this block length."""
    return walk.run if walk.run in loops.RUNS else 0


def _packs(fast: Formulation | None, walk: Walk, bits: int) -> bool:
    """Return True if the fast loop reads or writes packed codes.

    Only vector loops over 4-bit codes, along rows of whole blocks, read or write packed codes.
    """
    in_vectors = fast is not None and fast.in_vectors and vectors.available()
    has_blocks = walk.k == 1 and 1 < walk.run in loops.RUNS and walk.columns % walk.run == 0
    return in_vectors and bits == 4 and has_blocks


def _finding(asked: Settings) -> tuple[Callable[..., Any] | None, Callable[..., Any] | None]:
    """Return the two functions that compute scale codes: a fast function and the definition."""
    if asked.scales_given:
        return None, None
    how = asked.source, asked.element, asked.format.scale, asked.float_rule
    defined = _defined_scale(*how)
    finds_fast = paths.FOUND.covers(asked.source, asked.element, scale=asked.format.scale, rule=asked.float_rule)
    return by_factors.make_scale(*how) if finds_fast else defined, defined


_defined_scale = lru_cache(maxsize=1024)(make_float_scale)


def _fast(asked: Settings, target: ElementFormat | None) -> Formulation | None:
    """Return the fast formulation that quantizes to codes or, if `target` is given, to its values.

    The result is None if `paths` lists no fast formulation for the formats and modes.
    """
    source, element, scale = asked.source, asked.element, asked.format.scale
    if target is not None and not paths.MULTIPLIED.covers(target, element, scale=scale):
        return None
    if paths.DRAWN.covers(source, element, rounding=asked.rounding, scale=scale):
        return stochastic_over.by_products(source, element, scale, target)
    if paths.PLACES.covers(source, element, rounding=asked.rounding, scale=scale):
        return by_factors.by_places(source, element, scale, asked.rounding, target)
    if paths.QUOTIENTS.covers(source, element, rounding=asked.rounding, scale=scale):
        return by_factors.by_quotients(source, element, scale, asked.rounding, asked.overflow, target)
    return None


def _after_choosing(asked: Settings, convert: Operation) -> Operation:
    """Return the operation that chooses scales with `choosing`, and then runs `convert`.

    `convert` must be an operation that reads the scales from its arguments.
    """

    def along(walk: Walk, draw: Draw) -> Run:
        run = convert.along(walk, draw)

        def choose_and_run(x: Array, out: Array, sides: Sides, tensor_scale: Array | None, *rest: Any) -> None:
            choosing.choose_scales(x, sides[0], _ONE if tensor_scale is None else tensor_scale, walk, asked)
            run(x, out, sides, tensor_scale, *rest)

        return choose_and_run

    return Operation(along, quantizes=True, fills_with_zeros=True)


#: The tensor scale 1, which is used for formats without a tensor scale.
_ONE = np.ones(1, np.float32)


def tensor_scale(request: Request, by_rows: bool) -> tuple[Array, Array | None]:
    """Return the tensor scale of an array or of each row, and the largest magnitudes of its blocks.

    If `by_rows`, each row along the last axis has a tensor scale, and the last axis of the result
    has length 1.

    The largest magnitudes are bit patterns. The second result is None if `by_rows`, if blocks are
    not contiguous in memory, or if loops have no kernel for the block length.
    """
    x, asked = request.x, request.settings
    bits = signed_bits(x)
    if by_rows:
        find, *_ = _tensor_scale_of(asked)
        found = np.asarray(find(_largest_of_rows(bits, asked.source)))
        return found.astype(np.uint32).view(np.float32), None
    return scale_of_bits(asked, bits.ravel(order="K"), x.flags.c_contiguous, request.threads)


def scale_of_bits(
    asked: Settings, flat: Array, in_c_order: bool = True, threads: int | None = None
) -> tuple[Array, Array | None]:
    """Return the result of `tensor_scale` for an array whose bit patterns are in `flat`."""
    source, (_, find_one, greatest_of, run) = asked.source, _tensor_scale_of(asked)
    maxima: Array | None = None
    if run and in_c_order:
        maxima = np.empty(flat.size // run, flat.dtype)
        largest = _largest_of_blocks(flat, source, run, maxima, threads)
    else:
        largest = greatest(flat, greatest_of, threads)
    largest = largest if largest <= source.max_code else int(_finite(flat, source).max(initial=0))
    return np.array(find_one(largest), np.uint32).view(np.float32), maxima


@lru_cache(maxsize=4096)
def _tensor_scale_of(asked: Settings) -> tuple[Callable[..., Any], Callable[[int], Any], Callable[[Array], Any], int]:
    """Return a tuple: a function that computes tensor scales, two loops, and the block length.

    The first loop computes a single tensor scale. The second loop is `greatest_magnitude`. The
    length is 0 if blocks are not contiguous in memory, or if loops have no kernel for the length.
    """
    *others, run = asked.blocks or (1,)
    has_kernel = run in loops.RUNS[1:] and asked.shape[-1] % run == 0 and set(others) <= {1}
    find, find_one = _finding_tensor_scale(asked.source, asked.element, asked.format.scale)
    return find, find_one, greatest_magnitude(asked.source), run if has_kernel else 0


@cache
def _finding_tensor_scale(source: ElementFormat, element: ElementFormat, scale: ScaleFormat) -> tuple[Any, Any]:
    find: Any = make_tensor_scale(source, element, scale)

    def find_one(amax: int) -> Any:
        return find(amax)

    return find, compile_loop(find_one)


def _largest_of_blocks(flat: Array, source: ElementFormat, run: int, maxima: Array, threads: int | None) -> int:
    """Return the largest magnitude of a flat array; store that of each block in `maxima`.

    Blocks have `run` elements. All magnitudes are bit patterns.
    """
    loop, count = block_maxima(source, run), worth(flat.size, ELEMENTS_PER_THREAD, threads)
    if count == 1:  # Fast path: one thread needs no list of pieces.
        return int(loop(flat, maxima))
    cuts = bounds(maxima.size, count)
    pieces = [(flat[run * a : run * b], maxima[a:b]) for a, b in pairwise(cuts)]
    return int(max(run_in_threads(lambda piece: loop(*piece), pieces), default=0))


def greatest(bits: Array, loop: Callable[[Array], Any], threads: int | None) -> int:
    """Return the bit pattern of the largest magnitude of a flat array.

    `loop` is the loop that `greatest_magnitude` returns. If the array holds a NaN, the result is
    the bit pattern of a NaN.
    """
    count = worth(bits.size, ELEMENTS_PER_THREAD, threads)
    if count == 1:  # Fast path: one thread needs no list of pieces.
        return int(loop(bits))
    cuts = bounds(bits.size, count)
    return int(max(run_in_threads(loop, [bits[a:b] for a, b in pairwise(cuts)])))


def _finite(bits: Array, source: ElementFormat) -> Array:
    """Return the bit patterns of magnitudes, with 0 in place of NaN and infinity."""
    magnitude = bits & ((1 << (source.bits - 1)) - 1)
    return np.where(magnitude > source.max_code, 0, magnitude)


def _largest_of_rows(bits: Array, source: ElementFormat) -> Array:
    """Return the bit pattern of the largest finite magnitude of each row along the last axis."""
    rows = bits.reshape(prod(bits.shape[:-1]), bits.shape[-1])
    step = max(1, _PIECE // max(1, bits.shape[-1]))
    found = np.zeros(len(rows), np.int64)
    for start in range(0, len(rows), step):
        found[start : start + step] = _finite(rows[start : start + step], source).max(axis=1, initial=0)
    return found.reshape(*bits.shape[:-1], 1)
