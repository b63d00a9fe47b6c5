"""Mistakes planted by hand in the code for float scales.

The columns of each row are name, file, old text, new text, effect, tests.
"""

from __future__ import annotations

LOOP, FILE = "mxnum/engine/loops/float_scales.py", "tests/test_float_scales.py"
#: `CASES` runs without compilation, so the definition computes everything, and no fast loop runs.
#: Only `COMPILED` notices mistakes in fast loops.
CASES, COMPILED = (f"{FILE}::test_random_cases_without_compilation",), (f"{FILE}::test_compiled",)
ROUNDING, STACKS = "tests/engine/rounding", ("tests/engine/quantizing/test_by_stack.py",)

FLOAT_SCALES = (
    (
        "float-scales-tail-not-looked-at",
        LOOP,
        "if whole < panel.blocks:",
        "if whole > panel.blocks:",
        "The largest magnitude of a short last block is not computed, so the loop uses what is left in the buffer.",
        COMPILED,
    ),
    (
        "float-scales-infinities-not-marked",
        LOOP,
        "if most <= LIMIT:",
        "if most <= LIMIT + 1:",
        "The loop converts panels with an infinity instead of leaving them to the definition.",
        COMPILED,
    ),
    (
        "float-scales-nan-of-the-first-block",
        "mxnum/engine/loops/marked.py",
        "specials[b] = amax[b] > MAX",
        "specials[b] = amax[0] > MAX",
        "A check of the first block of a panel for NaN and infinity decides for all blocks of the panel.",
        CASES,
    ),
    (
        "float-scales-tensor-of-the-first-block",
        LOOP,
        "t = common if step == 0 else wide(load(tensor, place + b))\n",
        "t = common\n",
        "All scales of a panel are computed with the tensor scale of its first block.",
        CASES,
    ),
    (
        "float-scales-tail-rounded-by-its-neighbour",
        LOOP,
        "constants = at(tables, b, stride)\n                    for i in",
        "constants = at(tables, max(b - 1, 0), stride)\n                    for i in",
        "A short last block is divided by the factor of the block before it.",
        CASES,
    ),
    (
        "four-over-six-takes-the-worse",
        "mxnum/engine/quantizing/choosing.py",
        "if errors[1] < errors[0]:",
        "if errors[1] > errors[0]:",
        "Where float arithmetic cannot decide, the rule four over six takes the scale with the larger error.",
        CASES,
    ),
    (
        "four-over-six-takes-the-worse-by-vectors",
        "mxnum/engine/loops/four_over_six.py",
        "four if balance < 0 else six",
        "four if balance > 0 else six",
        "Where vector code decides, the rule four over six takes the scale with the larger error.",
        COMPILED,
    ),
    (
        "tensor-scale-of-an-infinity",
        "mxnum/engine/quantizing/float_scales.py",
        "largest = largest if largest <= source.max_code else int(",
        "largest = largest if largest <= source.max_code + 1 else int(",
        "An infinity determines the tensor scale, so all other numbers become zero.",
        CASES,
    ),
    (
        "float-scales-divided-by-zero",
        "mxnum/engine/rounding/by_factors.py",
        "store(tables, b, select(factor == 0, _INFINITY, factor))",
        "store(tables, b, factor)",
        "Numbers do not become zero under a scale of zero.",
        (f"{ROUNDING}/test_by_factors.py::test_elements",),
    ),
    (
        "float-scales-not-doubled",
        "mxnum/engine/rounding/by_factors.py",
        "third = c[2] + doubled",
        "third = c[2]",
        "For E2M1 codes of 4 and more, the threshold that decides the last bit is too low.",
        (f"{ROUNDING}/test_by_factors.py::test_elements",),
    ),
    (
        "float-scales-maxima-of-all-before",
        "mxnum/engine/loops/panels.py",
        "store(maxima, b, found)",
        "store(maxima, b, max(greatest, found))",
        "The largest magnitude of a block includes the magnitudes of all blocks before it.",
        ("tests/engine/quantizing/test_float_scales.py",),
    ),
    (
        "float-scales-drawn-the-other-way",
        "mxnum/engine/rounding/stochastic_over.py",
        "<< SR_BITS) - random)",
        "<< SR_BITS) + random)",
        "Stochastic rounding never rounds away from zero.",
        (f"{ROUNDING}/test_stochastic_over.py",),
    ),
    (
        "float-scales-values-without-random-bits",
        "mxnum/engine/rounding/formulation.py",
        "factor[2], random), factor[0]",
        "factor[2], 0), factor[0]",
        "Stochastic rounding to values by the definition ignores the random bits and rounds toward zero.",
        CASES,
    ),
    (
        "float64-products-are-sums",
        "mxnum/engine/machine/float64_words.py",
        '_compiled(multiply_float64, "fmul")',
        '_compiled(multiply_float64, "fadd")',
        "In compiled code, a factor is the sum of scale and tensor scale instead of their product.",
        COMPILED,
    ),
    # Stacks
    (
        "stack-divides-for-multiplying",
        "mxnum/engine/rounding/by_stack.py",
        "if DIVIDES else multiply",
        "if not DIVIDES else multiply",
        "Loops divide by the factor if the stack multiplies, and multiply if the stack divides.",
        STACKS,
    ),
    (
        "stack-refuses-infinities",
        "mxnum/engine/quantizing/by_stack.py",
        "except Left:\n        return otherwise()\n    return codes, scales",
        "except Left:\n        raise\n    return codes, scales",
        "If the loops cannot convert a block of a tensor, quantizing raises an error instead of using numpy.",
        STACKS,
    ),
    # The machine
    (
        "nibbles-lose-their-second",
        "mxnum/engine/machine/vectors.py",
        "ir.Constant(_PAIRS, [28] *",
        "ir.Constant(_PAIRS, [24] *",
        "When vector code packs two codes into a byte, the second code is lost.",
        STACKS,
    ),
    (
        "lanes-of-bytes-with-signs",
        "mxnum/engine/machine/lanes.py",
        "return (builder.sext if signed else builder.zext)(value, _I32)",
        "return builder.sext(value, _I32)",
        "Codes and scales of 128 or more become negative in a lane.",
        ("tests/engine/machine/test_lanes.py::test_memory",),
    ),
)
