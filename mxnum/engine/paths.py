"""The fast formulations: what each covers, where it is right, and the evidence that ties it to the definition.

Dispatch reads this table; whatever no row covers is done by the loops over the scalar definition.
"""

from __future__ import annotations

from dataclasses import dataclass

from mxnum.engine import magic
from mxnum.formats import ELEMENTS, ElementFormat
from mxnum.modes import Overflow, Rounding


@dataclass(frozen=True)
class FastPath:
    """One formulation. Its loop uses it where its domain holds and the definition elsewhere."""

    name: str
    #: float type of the input of a quantization, or of the result of a decoding
    float_type: str
    elements: tuple[str, ...]
    roundings: tuple[Rounding, ...]
    #: Names of the theorems in proofs/LEDGER.md, with the element's name in place of {}.
    evidence: tuple[str, ...]

    def covers(self, float_type: ElementFormat, element: ElementFormat) -> bool:
        """Whether the formulation is proved for this element; one made by a user is another element."""
        return (
            float_type.name == self.float_type and element.name in self.elements and element == ELEMENTS[element.name]
        )


NEAREST_EVEN = FastPath(
    name="two float32 additions",
    float_type="float32",
    elements=magic.ELEMENTS,
    roundings=(Rounding.RNE,),
    evidence=("magic/code/{}", "magic/value/{}"),
)
DECODING = FastPath(
    name="fields moved into place",
    float_type="float32",
    elements=tuple(ELEMENTS),
    roundings=(),
    evidence=("magic/decode/{}",),
)
PATHS = (NEAREST_EVEN, DECODING)


def rounds_fast(source: ElementFormat, element: ElementFormat, rounding: Rounding, overflow: Overflow) -> bool:
    """Whether `rows.quantize_rows` and `rows.fake_quantize_rows` may be used."""
    saturates = overflow == Overflow.SATURATE or element.specials == "none"
    return saturates and rounding in NEAREST_EVEN.roundings and NEAREST_EVEN.covers(source, element)


def decodes_fast(element: ElementFormat, target: ElementFormat) -> bool:
    """Whether `rows.dequantize_rows` may be used."""
    return DECODING.covers(target, element)
