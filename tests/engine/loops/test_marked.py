"""Tests of the compiled loops that recompute marked blocks by the definition."""

from __future__ import annotations

import numpy as np

from mxnum.definition.convert import make_decode, make_encode
from mxnum.engine.loops import marked
from mxnum.engine.loops.panels import NO_WORDS
from mxnum.engine.loops.random_bits import draw_from_words
from mxnum.engine.rounding import formulation
from mxnum.engine.traversal.block_walk import Walk
from mxnum.formats import ELEMENTS, FLOATS
from mxnum.modes import Overflow, Rounding
from tests import samples
from tests.covering import covering

FLOAT32 = FLOATS["float32"]


def converted(definition, x, scale, dtype, draw=None, words=NO_WORDS, nan=0):
    """Convert one row, which is a single marked block, with a compiled loop."""
    walk, tensor = Walk(1, 1, x.size, 1, x.size).redone, np.ones(1, np.uint32)
    arrays = x, np.empty(x.size, dtype), np.array([scale], np.uint8), tensor
    converter = marked.convert_by(definition, nan, takes_mixed=True)
    loop, marks = converter.loop(draw, *arrays), np.ones(walk.groups, np.uint8)
    assert loop(arrays, (walk.shape, walk.whole), marks, words, converter.numbers) == 0
    assert not marks.any()
    return arrays[1]


@covering(name=samples.ELEMENTS, rounding=Rounding, kinds={"name": samples.kind}).parametrize_in_tiers
def test_compiled_encoders_equal_the_definition_on_numpy(name, rounding):
    target, stochastic = ELEMENTS[name], rounding == Rounding.SR
    bits = np.concatenate(
        [samples.boundary_patterns(FLOAT32, target, 121), samples.random_patterns(FLOAT32, 5000, name, rounding)]
    ).astype(np.int32)
    words = samples.generator("compiled", name).integers(0, 1 << 30, bits.shape, dtype=np.uint32)
    modes = FLOAT32, target, rounding, Overflow.SATURATE
    draw = {"draw": draw_from_words(30), "words": words} if stochastic else {}
    got = converted(formulation.quantizing(*modes), bits, 121, np.uint8, **draw)
    want = make_encode(*modes)(bits.astype(np.int64), np.int64(121), words.astype(np.int64))
    samples.assert_same(f"{name} {rounding}", bits, got, want)


def test_compiled_decoders_equal_the_definition_on_numpy():
    for name, target in (("e5m2", "float32"), ("int4", "float16"), ("e2m3", "float64")):
        source, fmt = ELEMENTS[name], FLOATS[target]
        codes = np.arange(1 << source.bits, dtype=np.uint8)
        for scale in (0, 100, 254, 255):
            out = converted(formulation.decoding(source, fmt), codes, scale, f"i{fmt.bits // 8}", nan=fmt.nan_code)
            want = np.broadcast_to(make_decode(source, fmt)(codes.astype(np.int64), np.int64(scale)), codes.shape)
            samples.assert_same(f"{name} {target} {scale}", codes.astype(np.int16), out, want.astype(out.dtype))
