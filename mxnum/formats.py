"""Formats as data: elements, scales and their pairing into MX formats.

A format is a frozen description. Nothing here rounds: `mxnum.scalar` turns descriptions into integer functions and
`mxnum.reference` reads the same primary fields independently.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cache, cached_property

from mxnum import aliases, errors

_SPECIALS = ("none", "nan", "ieee")


@dataclass(frozen=True, repr=False)
class ElementFormat:
    """A binary number format of at most 64 bits: an MX element, or the float type of an input or a result.

    Floats are sign | exponent | mantissa with IEEE-like subnormals. With ``exponent_bits=1, bias=1`` the grid of a
    float is uniform; ``integer=True`` then stores it in two's complement, which is how OCP MX writes INT8.
    """

    name: str
    #: Width of the exponent field (1 for integers: one binade above the subnormals makes a uniform grid).
    exponent_bits: int
    #: Explicit fraction bits m.
    mantissa_bits: int
    bias: int
    #: ``none``: every code is finite. ``nan``: only S.1...1 is special, a NaN (e4m3). ``ieee``: the top exponent holds
    #: infinity and NaN.
    specials: str = "none"
    #: Two's complement codes; the most negative code decodes but is never produced.
    integer: bool = False
    #: A NaN that is written has the sign bit clear (float arrays); elements keep the sign of the input.
    canonical_nan: bool = False

    def __post_init__(self) -> None:
        for name, low, high in (("exponent_bits", 1, 11), ("mantissa_bits", 0, 52), ("bias", -1023, 1023)):
            object.__setattr__(self, name, errors.integer(name, getattr(self, name), low, high))
        errors.choose("specials", self.specials, _SPECIALS)
        if self.integer:
            errors.require(
                (self.exponent_bits, self.bias, self.specials) == (1, 1, "none"),
                "integer",
                "combined with exponent_bits=1, bias=1 and specials='none'",
                self.integer,
            )
        if self.specials == "ieee":
            enough = self.exponent_bits >= 2 and self.mantissa_bits >= 1
            errors.require(enough, "specials", "'none' or 'nan' without two exponent bits and a mantissa bit", "ieee")
        if self.specials == "nan":
            enough = self.exponent_bits + self.mantissa_bits >= 2
            errors.require(enough, "specials", "'none' with a single bit beside the sign", "nan")
        if self.canonical_nan:
            errors.require(self.specials == "ieee", "canonical_nan", "False unless specials='ieee'", True)
        least, most = (self.max_code >> self.mantissa_bits) - 1023, 1075 - self.mantissa_bits
        accepted = f"between {max(least, -1023)} and {min(most, 1023)}, so that the values are float64 numbers"
        errors.require(least <= self.bias <= most, "bias", accepted, self.bias)

    def __hash__(self) -> int:
        return hash(self.name)  # (a string remembers its own)

    @classmethod
    def two_complement(cls, name: str, bits: int) -> ElementFormat:
        """A two's complement integer of `bits` bits times 2**-(bits-2), so that values lie in (-2, 2)."""
        bits = errors.integer("bits", bits, 3, 32)
        return cls(name, exponent_bits=1, mantissa_bits=bits - 2, bias=1, integer=True)

    @property
    def bits(self) -> int:
        """Width of a code in bits, sign included."""
        return 1 + self.exponent_bits + self.mantissa_bits

    @cached_property
    def max_code(self) -> int:
        """Magnitude code of the largest finite value."""
        all_ones = (1 << (self.exponent_bits + self.mantissa_bits)) - 1
        match self.specials:
            case "ieee":
                return all_ones - (1 << self.mantissa_bits)
            case "nan":
                return all_ones - 1
            case "none":
                return all_ones
            case _:
                raise NotImplementedError(f"Special values {self.specials!r} are not handled here.")

    @property
    def infinity_code(self) -> int | None:
        return self.max_code + 1 if self.specials == "ieee" else None

    @cached_property
    def nan_code(self) -> int | None:
        """The NaN that is produced: all ones for an element, the quiet bit alone for the NaN of a float array."""
        if self.specials == "none":
            return None
        if self.canonical_nan:
            return self.max_code + 1 + (1 << (self.mantissa_bits - 1))
        return (1 << (self.exponent_bits + self.mantissa_bits)) - 1

    @property
    def emax(self) -> int:
        """Exponent of the largest finite value."""
        return (self.max_code >> self.mantissa_bits) - self.bias

    @property
    def emin(self) -> int:
        """Exponent of the smallest normal value."""
        return 1 - self.bias

    @property
    def max(self) -> float:
        return self.value(self.max_code)

    @property
    def min_normal(self) -> float:
        return math.ldexp(1.0, self.emin)

    @property
    def min_subnormal(self) -> float | None:
        """The smallest positive value where that is not the smallest normal one."""
        return math.ldexp(1.0, self.emin - self.mantissa_bits) if self.mantissa_bits else None

    def value(self, code: int) -> float:
        """The value of one code, as a float (exact: every format here fits float64)."""
        errors.require(0 <= code < 1 << self.bits, "code", f"between 0 and {(1 << self.bits) - 1}", code)
        if self.integer:
            signed = code - (1 << self.bits) if code >> (self.bits - 1) else code
            return math.ldexp(signed, -self.mantissa_bits)
        sign = -1.0 if code >> (self.bits - 1) else 1.0
        magnitude = code & ((1 << (self.bits - 1)) - 1)
        if magnitude > self.max_code:
            return sign * math.inf if magnitude == self.infinity_code else math.nan
        exponent, mantissa = divmod(magnitude, 1 << self.mantissa_bits)
        if exponent == 0:
            return sign * math.ldexp(mantissa, self.emin - self.mantissa_bits)
        return sign * math.ldexp((1 << self.mantissa_bits) + mantissa, exponent - self.bias - self.mantissa_bits)

    def values(self) -> tuple[float, ...]:
        """The value of every code, in code order."""
        errors.require(self.bits <= 16, "format", "at most 16 bits wide to be listed", self.name)
        return tuple(self.value(code) for code in range(1 << self.bits))

    def describe(self) -> str:
        """One paragraph for people: layout, range, special values."""
        layout = (
            f"two's complement x 2^-{self.mantissa_bits}"
            if self.integer
            else f"sign, {_counted(self.exponent_bits, 'exponent bit')} (bias {self.bias}), "
            f"{_counted(self.mantissa_bits, 'mantissa bit')}"
        )
        specials = {
            "none": "no infinity, no NaN",
            "nan": "NaN at S.1...1, no infinity",
            "ieee": "infinity and NaN in the top exponent",
        }
        smallest = self.min_subnormal if self.min_subnormal is not None else self.min_normal
        return (
            f"{self.name}: {self.bits} bits, {layout}; largest {self.max:g}, smallest normal {self.min_normal:g}, "
            f"smallest positive {smallest:g}; {specials[self.specials]}."
        )

    def __repr__(self) -> str:
        return f"<ElementFormat {self.name}: {self.bits} bits, max {self.max:g}>"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


@dataclass(frozen=True, repr=False)
class ScaleFormat:
    """What a block stores beside its elements. Only powers of two so far; the field says so, for those to come."""

    name: str
    bits: int
    bias: int
    nan_code: int
    power_of_two: bool = True

    def value(self, code: int) -> float:
        """The value of one code: 2**(code - bias), or NaN."""
        errors.require(0 <= code < 1 << self.bits, "code", f"between 0 and {(1 << self.bits) - 1}", code)
        return math.nan if code == self.nan_code else math.ldexp(1.0, code - self.bias)

    def __repr__(self) -> str:
        return f"<ScaleFormat {self.name}: {self.bits} bits, 2^(code-{self.bias}), NaN {self.nan_code:#04x}>"


#: MX elements, then the float types of inputs and results.
ELEMENTS = {
    element.name: element
    for element in (
        ElementFormat("e4m3", exponent_bits=4, mantissa_bits=3, bias=7, specials="nan"),
        ElementFormat("e5m2", exponent_bits=5, mantissa_bits=2, bias=15, specials="ieee"),
        ElementFormat("e3m2", exponent_bits=3, mantissa_bits=2, bias=3),
        ElementFormat("e2m3", exponent_bits=2, mantissa_bits=3, bias=1),
        ElementFormat("e2m1", exponent_bits=2, mantissa_bits=1, bias=1),
        ElementFormat.two_complement("int8", 8),
        ElementFormat("e3m0", exponent_bits=3, mantissa_bits=0, bias=3),
        ElementFormat.two_complement("int4", 4),
    )
}

FLOATS = {
    element.name: element
    for element in (
        ElementFormat("float64", 11, 52, 1023, specials="ieee", canonical_nan=True),
        ElementFormat("float32", 8, 23, 127, specials="ieee", canonical_nan=True),
        ElementFormat("bfloat16", 8, 7, 127, specials="ieee", canonical_nan=True),
        ElementFormat("float16", 5, 10, 15, specials="ieee", canonical_nan=True),
    )
}

_BY_NAME = {**ELEMENTS, **FLOATS}

E8M0 = ScaleFormat("e8m0", bits=8, bias=127, nan_code=0xFF)
SCALES = {E8M0.name: E8M0}


def _is_written_out(name: object) -> bool:
    return isinstance(name, str) and ":" in name


def element(name: str | ElementFormat) -> ElementFormat:
    """The element (or float type) of that name, or written out (see `get`); a description passes through."""
    if isinstance(name, ElementFormat):
        return name
    if _is_written_out(name):
        return _written_out(name).element
    return _BY_NAME[aliases.meant("element", name, tuple(_BY_NAME))]


@dataclass(frozen=True, repr=False)
class MXFormat:
    """Elements, the scale they share, and how many share it: ``MXFormat("e4m3", "e8m0", 32)``.

    `element` and `scale` may be names; the scale is E8M0, the only one that is computed so far. Without `name` the
    format is called ``mx_<element>_<block>``.
    """

    element: ElementFormat
    scale: ScaleFormat = E8M0
    block: int = 32
    name: str = ""

    def __init__(
        self,
        element: str | ElementFormat,
        scale: str | ScaleFormat = E8M0,
        block: int = 32,
        name: str = "",
    ) -> None:
        resolved = globals()["element"](element)
        errors.require(resolved.bits <= 8, "element", "at most 8 bits wide", resolved.name)
        if not isinstance(scale, ScaleFormat):
            scale = SCALES[errors.choose("scale", scale, tuple(SCALES))]
        errors.require(scale == E8M0, "scale", "E8M0, the only scale that is computed so far", scale)
        block = errors.positive_integer("block", block)
        for field, value in (
            ("element", resolved),
            ("scale", scale),
            ("block", block),
            ("name", name or f"mx_{resolved.name}_{block}"),
        ):
            object.__setattr__(self, field, value)

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def notation(self) -> str:
        """What `get` reads as a format of the same bits: its name where that is known, otherwise written out."""
        if _FORMATS.get(self.name) == self:
            return self.name
        e = self.element
        known = ELEMENTS.get(e.name)
        if known == e:
            return f"{e.name}:block={self.block}"
        if e.canonical_nan:
            raise ValueError(f"Format {self.name!r} cannot be written out: its element has canonical_nan=True.")
        if e.integer:
            return f"int{e.bits}:block={self.block}"
        fields = f"e{e.exponent_bits}m{e.mantissa_bits}:bias={e.bias}"
        return f"{fields},specials={e.specials},block={self.block}"

    @property
    def bits_per_element(self) -> float:
        """Storage per element with the scale spread over the block: 4.25 for MXFP4."""
        return self.element.bits + self.scale.bits / self.block

    def describe(self) -> str:
        """What a reader wants to know first, on a few lines."""
        return (
            f"{self.name}: {self.block} elements share one {self.scale.name} scale, "
            f"{self.bits_per_element:g} bits per element.\n{self.element.describe()}"
        )

    def __repr__(self) -> str:
        return (
            f"<MXFormat {self.name}: {self.element.name} x {self.block} per {self.scale.name}, "
            f"{self.bits_per_element:g} bits per element, max {self.element.max:g}>"
        )


_FORMATS = {
    name: MXFormat(element_name, E8M0, 32, name)
    for name, element_name in (
        ("mxfp8_e4m3", "e4m3"),
        ("mxfp8_e5m2", "e5m2"),
        ("mxfp6_e3m2", "e3m2"),
        ("mxfp6_e2m3", "e2m3"),
        ("mxfp4_e2m1", "e2m1"),
        ("mxint8", "int8"),
        ("mxfp4_e3m0", "e3m0"),
        ("mxint4", "int4"),
    )
}


def names() -> tuple[str, ...]:
    """The names `get` knows: the six OCP formats, then the extensions."""
    return tuple(_FORMATS)


def get(name: str | MXFormat) -> MXFormat:
    """The format of that name; an `MXFormat` passes through.

    Capitals and separators do not matter, and a name that fits one format alone is enough: ``MXFP4``, ``mxfp8-e4m3``.

    A format without a name is written out as an element, a colon, and what is not the default:
    ``e3m4:bias=3,block=16``. The element is ``e<exponent bits>m<mantissa bits>``, ``int<bits>``, or a known element or
    MX format. The bias is 2**(exponent bits - 1) - 1 unless given, ``specials`` are none, nan or ieee (see
    `ElementFormat`), and the block is 32. With `bias` or `specials` a known element is its name alone:
    ``e4m3:specials=none`` has no NaN.

    >>> from mxnum import formats
    >>> formats.get("e3m4:bias=3,block=16")
    <MXFormat mx_e3m4_16: e3m4 x 16 per e8m0, 8.5 bits per element, max 31>
    >>> formats.get("mxfp4_e2m1:block=16").bits_per_element
    4.5
    """
    if isinstance(name, MXFormat):
        return name
    if _is_written_out(name):
        return _written_out(name)
    if str(name) not in _FORMATS and re.fullmatch(r"(e\d+m|int)\d+", str(name).lower()):
        raise ValueError(
            f"Argument 'format' must be one of {list(_FORMATS)}, or written out with a colon like "
            f"'{name}:block=32', not {name!r}."
        )
    return _FORMATS[aliases.meant("format", name, names())]


def of_element(name: str) -> MXFormat:
    """The known format whose elements have that name."""
    return next(fmt for fmt in _FORMATS.values() if fmt.element.name == name)


@cache
def _written_out(text: str) -> MXFormat:
    """The format that a notation with a colon describes."""
    base, _, rest = text.partition(":")
    base = aliases.find("format", base, (*ELEMENTS, *_FORMATS)) or base.lower()
    given: dict[str, str] = {}
    for part in filter(None, rest.split(",")):
        key, _, value = part.partition("=")
        given[errors.choose("format key", key, ("bias", "specials", "block"))] = value
    block = _number(text, "block", given["block"]) if "block" in given else 32
    if base in _FORMATS:
        if set(given) - {"block"}:
            raise ValueError(f"Format {text!r} must give nothing but block: {base!r} says the rest.")
        return MXFormat(_FORMATS[base].element, block=block)
    if base in ELEMENTS and not set(given) - {"block"}:
        return MXFormat(base, block=block)
    if integer := re.fullmatch(r"int(\d{1,6})", base):
        if set(given) - {"block"}:
            raise ValueError(f"Format {text!r} must give nothing but block: an integer has no bias and no specials.")
        if not 3 <= int(integer[1]) <= 8:
            raise ValueError(f"Format {text!r} must have between 3 and 8 bits, not {integer[1]}.")
        return MXFormat(ElementFormat.two_complement(base, int(integer[1])), block=block)
    fields = re.fullmatch(r"e(\d+)m(\d+)", base)
    if fields is None:
        known = errors.joined((*ELEMENTS, *_FORMATS))
        raise ValueError(f"Format {text!r} must begin with e<bits>m<bits>, int<bits>, {known}, not {base!r}.")
    exponent_bits, mantissa_bits = int(fields[1]), int(fields[2])
    bias = _number(text, "bias", given["bias"]) if "bias" in given else (1 << (min(max(exponent_bits, 1), 12) - 1)) - 1
    specials = given.get("specials", "none")
    return MXFormat(ElementFormat(base, exponent_bits, mantissa_bits, bias, specials), block=block)


def _number(text: str, key: str, value: str) -> int:
    if re.fullmatch(r"-?\d{1,6}", value) is None:
        raise ValueError(f"Format {text!r} must give {key} as an integer, not {value!r}.")
    return int(value)


def describe(name: str | MXFormat | None = None) -> str:
    """A description of one format, or a table of all of them."""
    if name is not None:
        return get(name).describe()
    titles = "name", "bits/element", "block", "max", "min normal", "min positive"
    rows = ["{:<12} {:>12} {:>5} {:>9} {:>11} {:>13}  specials".format(*titles)]
    for fmt in _FORMATS.values():
        e = fmt.element
        smallest = e.min_subnormal if e.min_subnormal is not None else e.min_normal
        rows.append(
            f"{fmt.name:<12} {fmt.bits_per_element:>12g} {fmt.block:>5} {e.max:>9g} {e.min_normal:>11g} "
            f"{smallest:>13g}  {e.specials}"
        )
    return "\n".join(rows)
