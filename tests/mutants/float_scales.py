"""Mistakes planted by hand in the code for float scales.

The columns of each row are name, file, old text, new text, effect, tests.
"""

from __future__ import annotations

LOOP, FILE = "mxnum/engine/loops/float_scales.py", "tests/test_float_scales.py"
#: Only `COMPILED` notices mistakes in fast loops. `CASES` runs without compilation, so no fast loop
#: runs, and the definition computes everything.
CASES, COMPILED = (f"{FILE}::test_random_cases_without_compilation",), (f"{FILE}::test_compiled",)
ROUNDING, STACKS = "tests/engine/rounding", ("tests/engine/quantizing/test_by_stack.py",)

FLOAT_SCALES = (
    (
        "float-scales-tail-not-looked-at",
        LOOP,
        "if whole < panel.blocks:",
        "if whole > panel.blocks:",
        "The largest number of a short last block is what lay in memory.",
        COMPILED,
    ),
    (
        "float-scales-infinities-not-marked",
        LOOP,
        "if most <= LIMIT:",
        "if most <= LIMIT + 1:",
        "Blocks with an infinity are not left to the definition.",
        COMPILED,
    ),
    (
        "float-scales-nan-of-the-first-block",
        "mxnum/engine/loops/marked.py",
        "specials[b] = amax[b] > MAX",
        "specials[b] = amax[0] > MAX",
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
        "Of two scales, where floats do not decide, the one with larger errors is kept.",
        CASES,
    ),
    (
        "four-over-six-takes-the-worse-by-vectors",
        "mxnum/engine/loops/four_over_six.py",
        "four if balance < 0 else six",
        "four if balance > 0 else six",
        "Of two scales, where float32 decides, the one with larger errors is taken.",
        COMPILED,
    ),
    (
        "tensor-scale-of-an-infinity",
        "mxnum/engine/quantizing/float_scales.py",
        "largest = largest if largest <= source.max_code else int(",
        "largest = largest if largest <= source.max_code + 1 else int(",
        "One infinity makes the tensor scale, and every other number zero.",
        CASES,
    ),
    (
        "float-scales-divided-by-zero",
        "mxnum/engine/rounding/by_factors.py",
        "store(tables, b, select(factor == 0, _INFINITY, factor))",
        "store(tables, b, factor)",
        "Under a scale that is zero, numbers are not zero.",
        (f"{ROUNDING}/test_by_factors.py::test_elements",),
    ),
    (
        "float-scales-not-doubled",
        "mxnum/engine/rounding/by_factors.py",
        "third = c[2] + doubled",
        "third = c[2]",
        "Above the least normal numbers a place of E2M1 is half of what it should be.",
        (f"{ROUNDING}/test_by_factors.py::test_elements",),
    ),
    (
        "float-scales-maxima-of-all-before",
        "mxnum/engine/loops/panels.py",
        "store(maxima, b, found)",
        "store(maxima, b, max(greatest, found))",
        "The largest magnitude of a block is that of all blocks before it, too.",
        ("tests/engine/quantizing/test_float_scales.py",),
    ),
    (
        "float-scales-drawn-the-other-way",
        "mxnum/engine/rounding/stochastic_over.py",
        "<< SR_BITS) - random)",
        "<< SR_BITS) + random)",
        "Random bits that should take a number up keep it down.",
        (f"{ROUNDING}/test_stochastic_over.py",),
    ),
    (
        "float-scales-values-without-random-bits",
        "mxnum/engine/rounding/formulation.py",
        "factor[2], random), factor[0]",
        "factor[2], 0), factor[0]",
        "Values that are rounded stochastically by the definition all go down.",
        CASES,
    ),
    (
        "float64-products-are-sums",
        "mxnum/engine/machine/float64_words.py",
        '_compiled(multiply_float64, "fmul")',
        '_compiled(multiply_float64, "fadd")',
        "Compiled, a factor is the sum of scale and tensor scale.",
        COMPILED,
    ),
    # Stacks
    (
        "stack-divides-for-multiplying",
        "mxnum/engine/rounding/by_stack.py",
        "if DIVIDES else multiply",
        "if not DIVIDES else multiply",
        "Loops divide by the factor of a stack that multiplies, and multiply by that of one that divides.",
        STACKS,
    ),
    (
        "stack-refuses-infinities",
        "mxnum/engine/quantizing/by_stack.py",
        "except Left:\n        return otherwise()\n    return codes, scales",
        "except Left:\n        raise\n    return codes, scales",
        "A tensor of which loops leave a block is an error, and not left to numpy.",
        STACKS,
    ),
    # The machine
    (
        "nibbles-lose-their-second",
        "mxnum/engine/machine/vectors.py",
        "ir.Constant(_PAIRS, [28] *",
        "ir.Constant(_PAIRS, [24] *",
        "Of two codes packed in a byte by vectors the second is cut off.",
        STACKS,
    ),
    (
        "lanes-of-bytes-with-signs",
        "mxnum/engine/machine/lanes.py",
        "return (builder.sext if signed else builder.zext)(value, _I32)",
        "return builder.sext(value, _I32)",
        "Codes and scales from 128 on are negative in a lane.",
        ("tests/engine/machine/test_lanes.py::test_memory",),
    ),
)
