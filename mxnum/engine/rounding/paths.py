"""The table of fast formulations, each with its formats and the theorems that prove it right.

The engine uses a fast formulation only for formats and modes that the table covers, and the
definition for all others.
"""

from __future__ import annotations

from dataclasses import dataclass

from mxnum.formats import ELEMENTS, FLOATS, SCALES, ElementFormat, ScaleFormat
from mxnum.modes import FloatScaleRule, Rounding, ScaleRule

#: The greatest width of a code, because loops store each code in a byte.
MOST_BITS = 8
#: The formats that theorems are about by name. An element format that is not listed here uses a
#: fast formulation only if the theorems about any element format cover it (see `FastPath.covers`).
_ELEMENTS = "e4m3", "e5m2", "e3m2", "e2m3", "e2m1", "int8", "e3m0", "int4"
_FLOATS = "float64", "float32", "bfloat16", "float16"
_FLOAT_SCALES = "e4m3", "ue5m3", "float16", "bfloat16", "float32"
_BY_MAGNITUDE = Rounding.RNE, Rounding.RNA, Rounding.RTZ, Rounding.RTO
_NOT_DRAWN = Rounding.RNE, Rounding.RNA, Rounding.RTZ, Rounding.RTP, Rounding.RTN, Rounding.RTO
ROUNDINGS = (*_NOT_DRAWN, Rounding.SR)
RULES = (
    ScaleRule.FLOOR, ScaleRule.CEIL, ScaleRule.EVEN, ScaleRule.RCEIL, ScaleRule.HALF_UP, ScaleRule.FLOOR_PLUS_ONE,
)  # fmt: skip


@dataclass(frozen=True)
class FastPath:
    """One fast formulation, with the formats and modes for which it is proved.

    Loops use the definition for the numbers and scales that are outside the formulation's domain.
    """

    name: str
    #: The float types of inputs when quantizing, or of results when decoding.
    float_types: tuple[str, ...]
    elements: tuple[str, ...]
    #: Names of the theorems in proofs/LEDGER.md. A name with a part in braces, such as {element},
    #: stands for one theorem for each value of this part.
    evidence: tuple[str, ...]
    #: Names of theorems about any element format with m mantissa bits and at most `MOST_BITS` bits;
    #: empty if there are no such theorems.
    evidence_for_any: tuple[str, ...] = ()
    roundings: tuple[Rounding, ...] = ROUNDINGS
    roundings_for_any: tuple[Rounding, ...] = ROUNDINGS
    #: `scales` names the float scale formats that are covered, and `rules` holds the scale rules
    #: that are covered.
    scales: tuple[str, ...] = ()
    rules: tuple[ScaleRule | FloatScaleRule, ...] = ()

    def covers(
        self,
        float_type: ElementFormat,
        element: ElementFormat | None = None,
        *,
        rounding: Rounding | None = None,
        scale: ScaleFormat | None = None,
        rule: ScaleRule | FloatScaleRule | None = None,
    ) -> bool:
        """Return True if the formulation is proved for these formats and modes.

        A user's format may have the name of a standard format. The theorems about the standard
        format cover the user's format only if both formats are equal.
        """
        if float_type.name not in self.float_types or float_type != FLOATS[float_type.name]:
            return False
        if scale is not None and (scale.name not in self.scales or scale != SCALES[scale.name]):
            return False
        if rounding not in (None, *self.roundings) or rule not in (None, *self.rules):
            return False
        if element is None or (element.name in self.elements and element == ELEMENTS[element.name]):
            return True
        is_any = element.bits <= MOST_BITS and not element.canonical_nan
        return is_any and bool(self.evidence_for_any) and rounding in (None, *self.roundings_for_any)


ROUNDING = FastPath(
    name="float32 additions round",
    float_types=("float32",),
    elements=_ELEMENTS,
    evidence=("magic/code/{element}/{rounding}/{overflow}", "magic/scale/{rule}"),
    evidence_for_any=("any/code/m{m}/{rounding}/{overflow}", "any/scale/m{m}/{type}"),
    rules=RULES,
)
WIDENED = FastPath(
    name="numbers of 16 bits are first widened to float32",
    float_types=("bfloat16", "float16"),
    elements=_ELEMENTS,
    evidence=("magic/widen/{type}", "widening/{type}/{element}"),
    evidence_for_any=("any/source/m{m}/{type}", "any/scale/m{m}/{type}"),
    rules=RULES,
)
NARROWED = FastPath(
    name="float64 numbers are first narrowed to float32",
    float_types=("float64",),
    elements=_ELEMENTS,
    evidence=("narrowing/{element}/{rounding}/{overflow}", "narrowing/scale/{rule}", "narrowing/conversion"),
    evidence_for_any=("any/source/m{m}/{type}", "any/scale/m{m}/{type}", "narrowing/conversion"),
    roundings_for_any=_NOT_DRAWN,
    rules=RULES,
)
VALUES = FastPath(
    name="float32 additions round to a value of the element",
    float_types=("float32",),
    elements=_ELEMENTS,
    evidence=("magic/value/{element}/{rounding}/{overflow}",),
)
DECODING = FastPath(
    name="fields moved into place",
    float_types=_FLOATS,
    elements=_ELEMENTS,
    evidence=("magic/decode/{element}", "magic/convert/{element}/{type}"),
    evidence_for_any=("any/decode/m{m}/{type}",),
)
PRODUCTS = FastPath(
    name="a code is decoded as a number times a power of two",
    float_types=_FLOATS,
    elements=_ELEMENTS,
    evidence=("magic/product/{element}", "magic/convert/{element}/{type}"),
)
BEYOND = FastPath(
    name="numbers are divided by a scale of any size and rounded at scale 1",
    float_types=("float32", "bfloat16", "float16"),
    elements=_ELEMENTS,
    evidence=("beyond/code/{element}/{rounding}/{overflow}", "beyond/decode/{element}"),
)
OFFSETS = FastPath(
    name="float32 additions subtract and add offsets",
    float_types=("float32", "bfloat16", "float16"),
    elements=_ELEMENTS,
    evidence=("magic/difference/{type}", "magic/sum/{element}"),
)
PLACES = FastPath(
    name="magnitudes are compared with thresholds times the factor",
    float_types=_FLOATS,
    elements=("e2m1", "e3m0", "int4"),
    evidence=(
        "factors/places/{type}/{element}/{rounding}",
        "factors/first/at",
        "factors/first/above",
        "factors/exact/{scale}",
    ),
    roundings=_BY_MAGNITUDE,
    scales=_FLOAT_SCALES,
)
QUOTIENTS = FastPath(
    name="x / factor in float64 is rounded by float32 additions",
    float_types=_FLOATS,
    elements=_ELEMENTS,
    evidence=(
        "factors/digits/{type}/m{m}",
        "factors/rounded/{element}/{rounding}/{overflow}",
        "factors/gap",
        "factors/exact/{scale}",
        "narrowing/conversion",
        "magic/code/{element}/{rounding}/{overflow}",
    ),
    roundings=_NOT_DRAWN,
    scales=_FLOAT_SCALES,
)
DRAWN = FastPath(
    name="magnitudes are compared with a product of factor and random bits",
    float_types=("float32", "bfloat16", "float16"),
    elements=("e2m1", "e3m0"),
    evidence=(
        "factors/stochastic-digits/{type}/m{m}",
        "factors/stochastic-threshold/{element}",
        "factors/stochastic/compared",
        "factors/stochastic/product",
        "factors/stochastic/decided/{element}/64",
        "factors/stochastic/decided/{element}/32",
        "factors/stochastic/constants",
        "factors/stochastic/chosen/{element}/code",
        "factors/stochastic/chosen/{element}/{type}",
        "factors/places/{type}/{element}/rtz",
        "factors/exact/{scale}",
    ),
    roundings=(Rounding.SR,),
    scales=_FLOAT_SCALES,
)
MULTIPLIED = FastPath(
    name="values are multiplied by the factor in float64",
    float_types=_FLOATS,
    elements=_ELEMENTS,
    evidence=("factors/values/{element}/{type}", "factors/narrowed/{type}", "factors/exact/{scale}"),
    scales=_FLOAT_SCALES,
)
FOUND = FastPath(
    name="scales that are floats are found by float64 division",
    float_types=_FLOATS,
    elements=_ELEMENTS,
    evidence=("factors/scale/{scale}/{float_rule}", "factors/scale-digits/{type}/{scale}", "factors/gap"),
    scales=_FLOAT_SCALES,
    rules=(FloatScaleRule.NEAREST, FloatScaleRule.RCEIL),
)
PATHS = (
    ROUNDING, WIDENED, NARROWED, VALUES, DECODING, PRODUCTS, BEYOND, OFFSETS, PLACES, QUOTIENTS, DRAWN,
    MULTIPLIED, FOUND,
)  # fmt: skip


def rounds_fast(source: ElementFormat, element: ElementFormat, rounding: Rounding, rule: ScaleRule) -> bool:
    """Return True if `float_additions` may compute the scales and codes of a conversion.

    Inputs that are not float32 are converted by `as_float32` first.
    """
    return any(path.covers(source, element, rounding=rounding, rule=rule) for path in (ROUNDING, WIDENED, NARROWED))
