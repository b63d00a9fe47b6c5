"""CUDA kernels for blocks along contiguous rows.

A quad is four consecutive elements. Each thread processes one quad at a time, with one aligned load
and one store. All quads of a block are held by neighbouring threads of one warp. The threads find
the block's largest magnitude by exchanging the largest magnitudes of their quads. So an array is
read only once. The block length is a power of two from 4 to 128, and every block has this full
length.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from mxnum.definition.random import make_align_random
from mxnum.definition.word import dialect
from mxnum.engine.cuda.driver import compile_kernel, cuda, load4, make_largest_of_block, store4
from mxnum.engine.cuda.functions import NAN_SCALE, make_scale_of
from mxnum.engine.cuda.kernels import NOWHERE, SEED, WORDS, draw
from mxnum.engine.machine.lanes import integer, lane, load, store
from mxnum.formats import ElementFormat
from mxnum.modes import Nonfinite, ScaleRule

#: The block lengths that the kernels accept. A warp holds at most 32 quads.
RUNS = (4, 8, 16, 32, 64, 128)


class Scaling(NamedTuple):
    """The formats and modes that determine how a kernel computes the scales of blocks."""

    source: ElementFormat
    element: ElementFormat
    rule: ScaleRule
    nonfinite: Nonfinite
    #: True if the kernel reads the scales that the caller gives, instead of computing scales.
    given: bool


@cache
def quantize_rows(
    run: int, scaling: Scaling, random: tuple[str, int], function: Callable[..., Any], values: bool
) -> Any:
    """Return the kernel `quantize(quads, source, given_scales, scales, words, key, out)`.

    The kernel computes out = function(x, scale, random) for every element. `function` returns
    codes, and the kernel stores the four codes of a quad as one 32-bit word. If `values` is True,
    `function` returns bit patterns of the source format instead of codes, and the kernel stores no
    scales. The source format has at most 32 bits, because threads exchange magnitudes as 32-bit
    integers. `random` holds the arguments of `_make_randoms_of`.
    """
    source, element, rule, nonfinite, given = scaling
    LANES, SHIFT = run // 4, (run // 4).bit_length() - 1
    largest_of_quad, scale_of, NONFINITE = _scale_functions(source, element, rule, nonfinite)
    largest_of_block = make_largest_of_block(LANES, largest_of_quad)
    randoms_of = _make_randoms_of(*random)
    BLOCK = nonfinite.by_block
    NEEDS_LARGEST = BLOCK or not given

    def quantize(quads, source, given_scales, scales, words, key, out):
        quad, step = cuda.grid(1), cuda.gridsize(1)
        while quad < quads:
            a, b, c, d = load4(source, quad)
            scale = np.int32(0)
            largest = np.int32(0)
            if NEEDS_LARGEST:
                largest = largest_of_block(largest_of_quad(a, b, c, d), source, quad)
                scale = np.int32(scale_of(largest))
            if given:
                scale = np.int32(integer(load(given_scales, quad >> SHIFT)))
            if BLOCK:
                scale = np.int32(NAN_SCALE if largest >= NONFINITE else scale)
            ra, rb, rc, rd = randoms_of(quad, words, key)
            va, vb = function(a, scale, ra), function(b, scale, rb)
            vc, vd = function(c, scale, rc), function(d, scale, rd)
            if values:
                store4(out, quad, va, vb, vc, vd)
            else:
                if quad & (LANES - 1) == 0:
                    store(scales, quad >> SHIFT, scale)
                store(out, quad, va | (vb << 8) | (vc << 16) | (vd << 24))
            quad += step

    return compile_kernel(quantize)


def _scale_functions(
    source: ElementFormat, element: ElementFormat, rule: ScaleRule, nonfinite: Nonfinite
) -> tuple[Callable[..., Any], Callable[..., Any], int]:
    """Return (largest_of_quad, scale_of, nonfinite).

    `largest_of_quad` returns the largest magnitude of four elements. `scale_of` returns the scale
    code for the largest magnitude of a block. `nonfinite` is the least magnitude that is not
    finite, as a bit pattern.
    """
    MASK, MAX = (1 << (source.bits - 1)) - 1, source.max_code
    FINITE_ONLY = nonfinite.by_element
    scale_of = make_scale_of(source, element, rule)

    @dialect
    def magnitude_of(x):
        magnitude = np.int32(np.int32(x) & np.int32(MASK))
        if FINITE_ONLY:
            return np.int32(0 if magnitude > MAX else magnitude)
        return magnitude

    @dialect
    def largest_of_quad(a, b, c, d):
        left = np.int32(max(magnitude_of(a), magnitude_of(b)))
        right = np.int32(max(magnitude_of(c), magnitude_of(d)))
        return np.int32(max(left, right))

    return largest_of_quad, scale_of, MAX + 1


def _make_randoms_of(how: str, sr_bits: int) -> Callable[..., Any]:
    """Return `randoms_of(quad, words, key)`, which returns the random bits of four elements.

    If a seed generates the bits, each quad has one Philox counter, because a counter yields four
    words.
    """
    align_random = make_align_random(sr_bits)
    if how == WORDS:

        @dialect
        def read_randoms(quad, words, key):
            a, b, c, d = load4(words, quad)
            return align_random(lane(a)), align_random(lane(b)), align_random(lane(c)), align_random(lane(d))

        return read_randoms
    if how == SEED:

        @dialect
        def draw_randoms(quad, words, key):
            # key[4], the index of the first element, is a multiple of 4, as `passes._run` checks.
            a, b, c, d = draw(quad + (key[4] >> 2), key)
            return align_random(a), align_random(b), align_random(c), align_random(d)

        return draw_randoms
    assert how == NOWHERE

    @dialect
    def no_randoms(quad, words, key):
        return 0, 0, 0, 0

    return no_randoms


@cache
def dequantize_rows(run: int, function: Callable[..., Any]) -> Any:
    """Return the kernel `dequantize(quads, codes, scales, out)`.

    The kernel computes out = function(code, scale) for every element. `codes` holds the four codes
    of each quad as one 32-bit word.
    """
    SHIFT = (run // 4).bit_length() - 1

    def dequantize(quads, codes, scales, out):
        quad, step = cuda.grid(1), cuda.gridsize(1)
        while quad < quads:
            word = integer(load(codes, quad))
            scale = integer(load(scales, quad >> SHIFT))
            a, b = function(word & 0xFF, scale), function((word >> 8) & 0xFF, scale)
            c, d = function((word >> 16) & 0xFF, scale), function((word >> 24) & 0xFF, scale)
            store4(out, quad, a, b, c, d)
            quad += step

    return compile_kernel(dequantize)
