"""Mistakes planted by hand in scales that are floats; the lines are as those of `products`."""

from __future__ import annotations

LOOP, FILE = "mxnum/engine/loops/float_scales.py", "tests/test_float_scales.py"
#: Without compilation the definition does it all: mistakes of fast loops alone are for the others.
CASES, COMPILED = (f"{FILE}::test_random_cases_without_compilation",), (f"{FILE}::test_compiled",)

FLOAT_SCALES = (
    (
        "float-scales-tail-not-looked-at",
        LOOP,
        "if whole < blocks:",
        "if whole > blocks:",
        "The largest number of a short last block is what lay in memory.",
        COMPILED,
    ),
    (
        "float-scales-infinities-not-marked",
        LOOP,
        "elif most > LIMIT:",
        "elif most > LIMIT + 1:",
        "Blocks with an infinity are not left to the definition.",
        COMPILED,
    ),
    (
        "float-scales-nan-of-the-first-block",
        LOOP,
        "scale = wide(NAN_CODE) if specials[b] != 0 else scale",
        "scale = wide(NAN_CODE) if specials[0] != 0 else scale",
        "What is not finite in the first block of a panel makes the scale of every block a NaN, and elsewhere none.",
        CASES,
    ),
    (
        "float-scales-tensor-of-the-first-block",
        LOOP,
        "t = common if step == 0 else wide(load(tensor, place + b))\n",
        "t = common\n",
        "The scales of a panel are found with the tensor scale of its first block.",
        CASES,
    ),
    (
        "float-scales-tail-rounded-by-its-neighbour",
        LOOP,
        "constants = at(tables, b, room)\n                        for i in",
        "constants = at(tables, max(b - 1, 0), room)\n                        for i in",
        "A short last block is divided by the factor of the block before it.",
        CASES,
    ),
    (
        "four-over-six-takes-the-worse",
        "mxnum/engine/quantizing/choosing.py",
        "if errors[1] < errors[0]:",
        "if errors[1] > errors[0]:",
        "Of two scales, where floats do not decide, the one with larger errors is kept.",
        CASES,
    ),
)
