"""The fast formulations: what each covers, and the evidence that ties it to the definition.

Dispatch reads this table; whatever no row covers is done by the definition.
"""

from __future__ import annotations

from dataclasses import dataclass

from mxnum.formats import ELEMENTS, FLOATS, SCALES, ElementFormat, ScaleFormat
from mxnum.modes import FloatScaleRule, Rounding

#: Width of codes that loops store in a byte.
MOST_BITS = 8


@dataclass(frozen=True)
class FastPath:
    """One formulation. Its loop uses it inside the domain that `magic` states, and the definition elsewhere."""

    name: str
    #: Float types of the input of a quantization, or of the result of a decoding.
    float_types: tuple[str, ...]
    elements: tuple[str, ...]
    #: Names of the theorems in proofs/LEDGER.md; what is in braces stands for every case.
    evidence: tuple[str, ...]
    #: Those about every element of at most `MOST_BITS`, by its mantissa bits; empty where there are none.
    evidence_for_any: tuple[str, ...] = ()
    #: What the theorems are about, where that is not all.
    roundings: tuple[Rounding, ...] = tuple(Rounding)
    #: Scales that are floats, and their rules.
    scales: tuple[str, ...] = ()
    rules: tuple[FloatScaleRule, ...] = ()

    def covers(self, float_type: ElementFormat, element: ElementFormat) -> bool:
        """Whether the formulation is proved for these; a format made by a user is another one whatever its name."""
        if float_type.name not in self.float_types or float_type != FLOATS[float_type.name]:
            return False
        if element.name in self.elements and element == ELEMENTS[element.name]:
            return True
        return bool(self.evidence_for_any) and element.bits <= MOST_BITS and not element.canonical_nan


ROUNDING = FastPath(
    name="float32 additions round",
    float_types=("float32",),
    elements=tuple(ELEMENTS),
    evidence=("magic/code/{element}/{rounding}/{overflow}", "magic/scale/{rule}"),
    evidence_for_any=("any/code/m{m}/{rounding}/{overflow}", "any/scale/m{m}/{type}"),
)
WIDENED = FastPath(
    name="16 bits widened to float32 first",
    float_types=("bfloat16", "float16"),
    elements=tuple(ELEMENTS),
    evidence=("magic/widen/{type}", "widening/{type}/{element}"),
    evidence_for_any=("any/source/m{m}/{type}", "any/scale/m{m}/{type}"),
)
NARROWED = FastPath(
    name="64 bits narrowed to float32 first",
    float_types=("float64",),
    elements=tuple(ELEMENTS),
    evidence=("narrowing/{element}/{rounding}/{overflow}", "narrowing/scale/{rule}", "narrowing/conversion"),
    evidence_for_any=("any/source/m{m}/{type}", "any/scale/m{m}/{type}", "narrowing/conversion"),
)
VALUES = FastPath(
    name="float32 additions round to a value",
    float_types=("float32",),
    elements=tuple(ELEMENTS),
    evidence=("magic/value/{element}/{rounding}/{overflow}",),
)
DECODING = FastPath(
    name="fields moved into place",
    float_types=tuple(FLOATS),
    elements=tuple(ELEMENTS),
    evidence=("magic/decode/{element}", "magic/convert/{element}/{type}"),
    evidence_for_any=("any/decode/m{m}/{type}",),
)
PRODUCTS = FastPath(
    name="a number of its own times a power of two",
    float_types=tuple(FLOATS),
    elements=tuple(ELEMENTS),
    evidence=("magic/product/{element}", "magic/convert/{element}/{type}"),
)
BEYOND = FastPath(
    name="products bring every number and scale to scale 1",
    float_types=("float32", "bfloat16", "float16"),
    elements=tuple(ELEMENTS),
    evidence=("beyond/code/{element}/{rounding}/{overflow}", "beyond/decode/{element}"),
)
OFFSETS = FastPath(
    name="float32 additions take offsets away, and add them",
    float_types=("float32", "bfloat16", "float16"),
    elements=tuple(ELEMENTS),
    evidence=("magic/difference/{type}", "magic/sum/{element}"),
)
_BY_MAGNITUDE = Rounding.RNE, Rounding.RNA, Rounding.RTZ, Rounding.RTO
_FLOAT_SCALES = "e4m3", "ue5m3", "float16", "bfloat16", "float32"
PLACES = FastPath(
    name="magnitudes are compared with places times the factor",
    float_types=tuple(FLOATS),
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
    name="quotients of 53 bits by the factor, rounded by float32 additions",
    float_types=tuple(FLOATS),
    elements=tuple(ELEMENTS),
    evidence=(
        "factors/digits/{type}/m{m}",
        "factors/rounded/{element}/{rounding}/{overflow}",
        "factors/gap",
        "factors/exact/{scale}",
        "narrowing/conversion",
        "magic/code/{element}/{rounding}/{overflow}",
    ),
    roundings=(*_BY_MAGNITUDE, Rounding.RTP, Rounding.RTN),
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
    name="values times the factor in float64",
    float_types=tuple(FLOATS),
    elements=tuple(ELEMENTS),
    evidence=("factors/values/{element}/{type}", "factors/narrowed/{type}", "factors/exact/{scale}"),
    scales=_FLOAT_SCALES,
)
FOUND = FastPath(
    name="scales that are floats by quotients of 53 bits",
    float_types=tuple(FLOATS),
    elements=tuple(ELEMENTS),
    evidence=("factors/scale/{scale}/{float_rule}", "factors/scale-digits/{type}/{scale}", "factors/gap"),
    scales=_FLOAT_SCALES,
    rules=(FloatScaleRule.NEAREST, FloatScaleRule.RCEIL),
)
PATHS = (
    ROUNDING, WIDENED, NARROWED, VALUES, DECODING, PRODUCTS, BEYOND, OFFSETS, PLACES, QUOTIENTS, DRAWN,
    MULTIPLIED, FOUND,
)  # fmt: skip


#: Whether the theorems of these paths are about a rounding. One that is new says no first: the definition does it.
ROUNDINGS = {
    Rounding.RNE: True, Rounding.RNA: True, Rounding.RTZ: True, Rounding.RTP: True, Rounding.RTN: True,
    Rounding.RTO: True, Rounding.SR: True,
}  # fmt: skip


def rounds_fast(source: ElementFormat, element: ElementFormat, rounding: Rounding) -> bool:
    """Whether `float_additions.make_code` may be used, after `make_widen` or what `as_float32` has."""
    if not ROUNDINGS[rounding]:
        return False
    if rounding.is_stochastic and NARROWED.covers(source, element):
        return element == ELEMENTS.get(element.name)
    return any(path.covers(source, element) for path in (ROUNDING, WIDENED, NARROWED))


def has_values(element: ElementFormat) -> bool:
    """Whether `float_additions.make_value` may be used where `make_code` may."""
    return VALUES.covers(FLOATS["float32"], element)


def reaches_all(float_type: ElementFormat, element: ElementFormat, rounding: Rounding | None = None) -> bool:
    """Whether `any_scale` may be used, after `as_float32.make_widen`, to codes or float32; None to decode."""
    return (rounding is None or ROUNDINGS[rounding]) and BEYOND.covers(float_type, element)


def subtracts_fast(source: ElementFormat) -> bool:
    """Whether `offsets.make_fast_difference` may be used."""
    return OFFSETS.covers(source, ELEMENTS[OFFSETS.elements[0]])


def adds_fast(element: ElementFormat, target: ElementFormat) -> bool:
    """Whether `offsets.fast_sum` may be used, after `float_additions.value_of_code`."""
    return target.name == "float32" and OFFSETS.covers(target, element)


def decodes_fast(element: ElementFormat, target: ElementFormat) -> bool:
    """Whether `float_additions.value_of_code` may be used, before `as_float32.make_convert_value`."""
    return DECODING.covers(target, element)


def decodes_by_product(element: ElementFormat, target: ElementFormat) -> bool:
    """Whether `float_additions.make_value_by_product` may be used, before `as_float32.make_convert_value`."""
    return PRODUCTS.covers(target, element)


def compares_fast(source: ElementFormat, element: ElementFormat, scale: ScaleFormat, rounding: Rounding) -> bool:
    """Whether `by_factors.by_places` may be used."""
    return rounding in PLACES.roundings and PLACES.covers(source, element) and _has(PLACES, scale)


def divides_fast(source: ElementFormat, element: ElementFormat, scale: ScaleFormat, rounding: Rounding) -> bool:
    """Whether `by_factors.by_quotients` may be used."""
    return rounding in QUOTIENTS.roundings and QUOTIENTS.covers(source, element) and _has(QUOTIENTS, scale)


def draws_fast(source: ElementFormat, element: ElementFormat, scale: ScaleFormat) -> bool:
    """Whether `stochastic_over.by_products` may be used."""
    return DRAWN.covers(source, element) and _has(DRAWN, scale)


def multiplies_fast(element: ElementFormat, scale: ScaleFormat, target: ElementFormat) -> bool:
    """Whether `by_factors.decoding` may be used, and what it and the others make of codes in `target`."""
    return MULTIPLIED.covers(target, element) and _has(MULTIPLIED, scale)


def finds_fast(source: ElementFormat, element: ElementFormat, scale: ScaleFormat, rule: FloatScaleRule) -> bool:
    """Whether `by_factors.make_scale` may be used."""
    return rule in FOUND.rules and FOUND.covers(source, element) and _has(FOUND, scale)


def _has(path: FastPath, scale: ScaleFormat) -> bool:
    return scale.name in path.scales and scale == SCALES[scale.name]
