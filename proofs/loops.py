"""Run a kernel on many inputs: in the loop that users call, or as a function on numpy arrays.

numba compiles the loop. On numpy arrays, a kernel's Python function runs without compilation, and
the theorems are about this function. The safety theorems prove that no intermediate result
overflows the integer type of the arrays.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numba
import numpy as np

import mxnum
from mxnum.definition.convert import make_decode, make_encode
from mxnum.definition.random import make_align_random
from mxnum.definition.scale import make_shared_scale
from mxnum.definition.word import word_bits
from mxnum.engine.loops import marked
from mxnum.engine.loops.panels import NO_WORDS, Draw
from mxnum.engine.loops.random_bits import draw_from_words
from mxnum.engine.rounding import formulation
from mxnum.engine.rounding.formulation import Definition
from mxnum.engine.traversal.block_walk import Walk
from mxnum.formats import ELEMENTS, FLOATS, ElementFormat
from mxnum.modes import Overflow, Rounding, ScaleRule
from proofs.specs.runs import Array, Random

Machine = Literal["loop", "definition"]

CACHE = Path(__file__).parent / ".cache" / "numba"


def use_own_cache() -> None:
    """Keep compiled loops in a folder named after the source of the library.

    numba's cache checks only the age of the file that contains the loop. After a change in another
    module, such as the generator of random words, numba would use the old loop. So each state of
    the library's source has its own folder.
    """
    text = b"".join(path.read_bytes() for path in sorted(Path(mxnum.__path__[0]).rglob("*.py")))
    place = CACHE / hashlib.sha256(text).hexdigest()[:16]
    for other in CACHE.glob("*"):
        if other != place:
            shutil.rmtree(other, ignore_errors=True)
    numba.config.CACHE_DIR = str(place)


use_own_cache()

#: The bits of the float32 number 1.0: the tensor scale of formats that have none.
ONE = np.ones(1, np.float32).view(np.uint32)
#: A function that converts an array with one row for each scale code. Its arguments are the array
#: of unsigned bit patterns (or of codes, to decode) and the scale codes.
Rows = Callable[[Array, Array], Array]


def signed(patterns: Array) -> Array:
    """Return a view of unsigned bit patterns as signed integers, which kernels read."""
    return patterns.view(f"i{patterns.dtype.itemsize}")


def encode_kernel(source: str, element: str, rounding: str, overflow: str) -> Callable[..., Any]:
    """Return the plain Python function that encodes a number by the definition."""
    return make_encode(FLOATS[source], ELEMENTS[element], Rounding[rounding.upper()], Overflow[overflow.upper()])


def encode_loop(source: str, element: str, rounding: str, overflow: str, random: Random | None) -> Any:
    """Return the compiled loop that encodes, by the definition, the blocks that fast loops skip."""
    modes = FLOATS[source], ELEMENTS[element], Rounding[rounding.upper()], Overflow[overflow.upper()]
    draw = None if random is None else draw_from_words(random.bits)
    return MarkedLoop(formulation.quantizing(*modes), draw, 0)


def source_of(loop: Any) -> tuple[Callable[..., Any], ...]:
    """Return the Python functions that a loop and its kernels were compiled from."""
    functions: tuple[Callable[..., Any], ...] = loop.functions
    return functions


def words_for(shape: tuple[int, ...], random: Random | None) -> Any:
    """Return the random words for an encoding loop.

    Every element gets the same random word. The result is `NO_WORDS` if `random` is None.
    """
    return NO_WORDS if random is None else np.full(shape, random.word, np.uint32).reshape(-1)


class MarkedLoop:
    """A loop of `engine.loops.marked` that converts blocks with E8M0 scales by the definition."""

    def __init__(self, definition: Definition, draw: Draw, nan: int) -> None:
        """Make the loop. If a block's scale is NaN, the loop converts every number to `nan`."""
        self.draw, self.converter = draw, marked.convert_by(definition, nan, takes_mixed=True)
        kernels = self.converter.prepare, self.converter.elements, *(() if draw is None else (draw,))
        self.functions = (python_of(marked._convert(np.int32)), *(kernel.function for kernel in kernels))

    def __call__(self, arrays: tuple[Array, ...], share: Any, words: Array) -> None:
        """Convert all panels (groups of blocks) of the arrays.

        The loop skips panels without a mark, so this method marks every panel.
        """
        marks = np.ones(arrays[2].size, np.uint8)
        self.converter.loop(self.draw, *arrays)(arrays, share, marks, words, self.converter.numbers)


class ScaleLoop:
    """A loop of `engine.loops.marked` that finds E8M0 scales."""

    def __init__(self, definition: Definition, source: ElementFormat) -> None:
        self.finder = marked.find_by(definition, source, nan_blocks=False)
        assert self.finder.kernel is not None
        self.functions = python_of(marked._find_scales(source)), self.finder.kernel.function


def python_of(loop: Any) -> Callable[..., Any]:
    """Return the Python function of a compiled loop."""
    function: Callable[..., Any] = getattr(loop, "py_func", loop)
    return function


def run_rows(loop: MarkedLoop, patterns: Array, scales: Array, out: Array, words: Any) -> None:
    """Run a loop over rows of patterns; each row is one marked block."""
    count, length = patterns.shape
    share = (count, length, 1, length, length), (0, count, 0, length)  # each panel is one block
    loop((patterns.reshape(-1), out.reshape(-1), scales, ONE), share, words)


def encode_rows(
    machine: Machine, source: str, element: str, rounding: str, overflow: str, random: Random | None
) -> Rows:
    """Return a function that encodes rows of bit patterns, each row under its own scale."""
    if machine == "loop":
        loop = encode_loop(source, element, rounding, overflow, random)

        def by_loop(patterns: Array, scales: Array) -> Array:
            codes = np.empty(patterns.shape, np.uint8)
            run_rows(loop, signed(patterns), scales, codes, words_for(patterns.shape, random))
            return codes

        return by_loop

    kernel = encode_kernel(source, element, rounding, overflow)
    word = f"i{word_bits(FLOATS[source], ELEMENTS[element]) // 8}"
    aligned = 0 if random is None else make_align_random(random.bits)(random.word)

    def by_definition(patterns: Array, scales: Array) -> Array:
        x = signed(patterns).astype(word, copy=False)
        return np.asarray(kernel(x, scales.astype(word)[:, None], aligned)).astype(np.uint8)

    return by_definition


def decode_kernel(element: str, target: str) -> Callable[..., Any]:
    """Return the plain Python function that decodes a code by the definition."""
    return make_decode(ELEMENTS[element], FLOATS[target])


def decode_loop(element: str, target: str) -> Any:
    """Return the compiled loop that decodes arrays by the definition."""
    return MarkedLoop(formulation.decoding(ELEMENTS[element], FLOATS[target]), None, FLOATS[target].nan_code or 0)


def decode_rows(machine: Machine, element: str, target: str) -> Rows:
    """Return a function that decodes rows of codes, each row under its own scale.

    The values are returned as unsigned bit patterns.
    """
    size = FLOATS[target].bits // 8
    if machine == "loop":
        loop = decode_loop(element, target)

        def by_loop(codes: Array, scales: Array) -> Array:
            values = np.empty(codes.shape, f"i{size}")
            run_rows(loop, codes, scales, values, NO_WORDS)
            return values.view(f"u{size}")

        return by_loop

    kernel = decode_kernel(element, target)
    word = f"i{word_bits(ELEMENTS[element], FLOATS[target]) // 8}"

    def by_definition(codes: Array, scales: Array) -> Array:
        values = kernel(codes.astype(word), scales.astype(word)[:, None])
        return np.asarray(values).astype(f"i{size}").view(f"u{size}")

    return by_definition


def scale_kernel(source: str, element: str, rule: str) -> Callable[..., Any]:
    """Return the plain Python function that finds a block's scale by the definition of a rule."""
    return make_shared_scale(FLOATS[source], ELEMENTS[element], ScaleRule[rule.upper()])


def scale_loop(source: str, element: str, rule: str) -> ScaleLoop:
    """Return the compiled loop that finds the scales of marked blocks."""
    definition = formulation.scaling(FLOATS[source], ELEMENTS[element], ScaleRule[rule.upper()])
    return ScaleLoop(definition, FLOATS[source])


def run_scales(loop: ScaleLoop, amax: Array, scales: Array) -> None:
    """Run a loop that finds scales, on blocks of one element each."""
    walk, arrays = Walk(1, 1, amax.size, 1, 1), (amax, scales, scales, ONE)
    loop.finder.loop(*arrays)(arrays, (walk.shape, walk.whole), np.ones(walk.groups, np.uint8))
