"""M9: bits per element."""

from __future__ import annotations

import numpy as np

from mxnum import formats, quantize
from mxnum.lab.claims.claim import Claim, Context
from mxnum.lab.claims.evidence import Comparison, Evidence, answered

CLAIM = Claim(
    "M9",
    "Bits per element",
    "An element takes its own bits plus its share of the scale, which is 8 bits divided by the block size. In "
    "MXFP4 an element takes 4.25 bits, 3.76 times less than in BF16.",
    "The bits per element follow from the description of the format, and must match the bytes of a packed array.",
)


@CLAIM.check
def _check(context: Context) -> Evidence:
    mxfp4, x = formats.get("mxfp4_e2m1").bits_per_element, np.ones((64, 1024), np.float32)
    comparisons = [
        Comparison("bits per element of MXFP4", 4.25, mxfp4, 0),
        Comparison("times less than bfloat16", 3.76, 16 / mxfp4, 0.005),
    ]
    for name in formats.names("e8m0"):
        for block in (16, 32):
            bits, packed = formats.get(name).element.bits + 8 / block, quantize(x, name, block_size=block).packed_nbytes
            comparisons.append(Comparison(f"{name} in blocks of {block}: packed bits", bits, 8 * packed / x.size, 0))
    answer = (
        f"An element of MXFP4 takes {mxfp4:g} bits, {16 / mxfp4:.2f} times less than bfloat16. Packed arrays have as "
        f"many "
        f"bytes as the formula gives in all {len(comparisons) - 2} cases."
    )
    return answered(Evidence(comparisons), answer, f"{mxfp4:g} bits")
