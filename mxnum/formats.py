"""Describe number formats as data: elements, scales, and the MX formats that combine them.

A format is a frozen dataclass. This module does not round. `mxnum.definition` makes integer
functions from a format's fields. `mxnum.reference` uses these fields to compute exact fractions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from mxnum import errors
from mxnum.output.text_table import text_table

_SPECIALS = ("none", "nan", "ieee")

#: The public functions of this module. The package `mxnum` exports the classes of this module.
__all__ = ["describe", "element", "get", "names"]


@dataclass(frozen=True, repr=False)
class ElementFormat:
    """A binary number format of at most 64 bits: an MX element, or the float type of an array.

    Floats are sign | exponent | mantissa with subnormals as in IEEE 754. With
    ``exponent_bits=1, bias=1`` the values of a float are evenly spaced. With ``integer=True``
    evenly spaced values are stored in two's complement, as OCP MX stores INT8.
    """

    name: str
    #: Width of the exponent field. For integers the width is 1, because then subnormal and normal
    #: values are evenly spaced.
    exponent_bits: int
    #: The number m of stored fraction bits.
    mantissa_bits: int
    bias: int
    #: The special values. ``none``: every code is finite. ``nan``: the code of all ones (S.1...1,
    #: with either sign) is NaN, as in e4m3. ``ieee``: the top exponent has infinity and NaN.
    specials: str = "none"
    #: True if codes are in two's complement. Decoding accepts the most negative code, but encoding
    #: never gives it.
    integer: bool = False
    #: True if a NaN is written without a sign, as in float arrays; False if a NaN keeps the input's
    #: sign.
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
            errors.require(enough, "specials", "'none' or 'nan' if exponent_bits < 2 or mantissa_bits < 1", "ieee")
        if self.specials == "nan":
            enough = self.exponent_bits + self.mantissa_bits >= 2
            errors.require(enough, "specials", "'none' in a format with only one bit besides the sign", "nan")
        if self.canonical_nan:
            errors.require(self.specials == "ieee", "canonical_nan", "False unless specials='ieee'", True)
        least, most = (self.max_code >> self.mantissa_bits) - 1023, 1075 - self.mantissa_bits
        accepted = "at most 10 unless specials='ieee', because float64 must hold all values"
        errors.require(least <= 1023, "exponent_bits", accepted, self.exponent_bits)
        accepted = f"between {max(least, -1023)} and {min(most, 1023)}, because float64 must hold all values"
        errors.require(least <= self.bias <= most, "bias", accepted, self.bias)

    def __hash__(self) -> int:
        return hash(self.name)  # fast path: Python caches the hash of a string

    @property
    def bits(self) -> int:
        """The width of a code in bits, sign included."""
        return 1 + self.exponent_bits + self.mantissa_bits

    @cached_property
    def max_code(self) -> int:
        """The code of the largest finite value; its sign bit is 0."""
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
        """The code written for NaN: all ones in an element, the quiet NaN in a float array."""
        if self.specials == "none":
            return None
        if self.canonical_nan:
            return self.max_code + 1 + (1 << (self.mantissa_bits - 1))
        return (1 << (self.exponent_bits + self.mantissa_bits)) - 1

    @property
    def emax(self) -> int:
        """The exponent of the largest finite value."""
        return (self.max_code >> self.mantissa_bits) - self.bias

    @property
    def emin(self) -> int:
        """The exponent of the smallest normal value."""
        return 1 - self.bias

    @property
    def max(self) -> float:
        return self.value(self.max_code)

    @property
    def min_normal(self) -> float:
        return math.ldexp(1.0, self.emin)

    @property
    def min_subnormal(self) -> float | None:
        """The smallest subnormal value, or None for an element without fraction bits."""
        return math.ldexp(1.0, self.emin - self.mantissa_bits) if self.mantissa_bits else None

    def value(self, code: int) -> float:
        """Return the exact value of one code. A Python float holds every value of every format."""
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
        """Return the value of every code, in code order."""
        errors.require(self.bits <= 16, "format", "at most 16 bits wide to be listed", self.name)
        return tuple(self.value(code) for code in range(1 << self.bits))

    def __repr__(self) -> str:
        return f"<ElementFormat {self.name}: {self.bits} bits, max {self.max:g}>"


def two_complement(name: str, bits: int) -> ElementFormat:
    """Return the format of two's complement numbers k * 2**-(bits-2) with `bits` bits.

    Encoding never gives the most negative number, -2.
    """
    bits = errors.integer("bits", bits, 3, 32)
    return ElementFormat(name, exponent_bits=1, mantissa_bits=bits - 2, bias=1, integer=True)


@dataclass(frozen=True, repr=False)
class ScaleFormat:
    """The format of a block's scale: a power of two, or an unsigned float.

    The code of a float scale is the code of the same number in the float format `number`, without
    the sign bit. Scales of 8 bits are stored as codes in an array of uint8. Scales of 16 or 32 bits
    are stored in an array of their float type.
    """

    name: str
    #: Width of a stored code in bits.
    bits: int
    bias: int
    #: The code written for NaN.
    nan_code: int
    #: The float format whose codes are used as scales; None if a code means 2**(code - bias).
    number: ElementFormat | None = None

    def __hash__(self) -> int:
        return hash(self.name)  # fast path: Python caches the hash of a string

    @property
    def power_of_two(self) -> bool:
        """True if a code means 2**(code - bias), False if it encodes a float."""
        return self.number is None

    @property
    def max_code(self) -> int:
        """The code of the largest scale."""
        return self.nan_code - 1 if self.number is None else self.number.max_code

    def value(self, code: int) -> float:
        """Return the value of one code, as a float."""
        if self.number is not None:
            greatest = (1 << (self.number.bits - 1)) - 1
            errors.require(0 <= code <= greatest, "code", f"between 0 and {greatest}, without a sign", code)
            return self.number.value(code)
        errors.require(0 <= code < 1 << self.bits, "code", f"between 0 and {(1 << self.bits) - 1}", code)
        return math.nan if code == self.nan_code else math.ldexp(1.0, code - self.bias)

    def __repr__(self) -> str:
        if self.number is not None:
            return f"<ScaleFormat {self.name}: {self.bits} bits, unsigned float, max {self.number.max:g}>"
        return f"<ScaleFormat {self.name}: {self.bits} bits, 2^(code-{self.bias}), NaN {self.nan_code:#04x}>"


#: The MX elements. FLOATS has the float types of inputs and results.
ELEMENTS = {
    element.name: element
    for element in (
        ElementFormat("e4m3", exponent_bits=4, mantissa_bits=3, bias=7, specials="nan"),
        ElementFormat("e5m2", exponent_bits=5, mantissa_bits=2, bias=15, specials="ieee"),
        ElementFormat("e3m2", exponent_bits=3, mantissa_bits=2, bias=3),
        ElementFormat("e2m3", exponent_bits=2, mantissa_bits=3, bias=1),
        ElementFormat("e2m1", exponent_bits=2, mantissa_bits=1, bias=1),
        two_complement("int8", 8),
        ElementFormat("e3m0", exponent_bits=3, mantissa_bits=0, bias=3),
        two_complement("int4", 4),
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


def _unsigned(name: str, number: ElementFormat) -> ScaleFormat:
    """Return the scale format whose scales are the nonnegative numbers of a float format."""
    bits = number.bits if number.bits in (8, 16, 32) else number.bits - 1
    return ScaleFormat(name, bits, number.bias, number.nan_code or 0, number)


E8M0 = ScaleFormat("e8m0", bits=8, bias=127, nan_code=0xFF)
SCALES = {
    scale.name: scale
    for scale in (
        E8M0,
        _unsigned("e4m3", ELEMENTS["e4m3"]),
        _unsigned("ue5m3", ElementFormat("e5m3", exponent_bits=5, mantissa_bits=3, bias=15, specials="nan")),
        *(_unsigned(name, FLOATS[name]) for name in ("float32", "bfloat16", "float16")),
    )
}
#: The types that a tensor scale may have. Formats with a scale in _REACH_ALL have no tensor scale,
#: because the range of these scales is wide enough.
TENSOR_SCALES, _REACH_ALL = ("float32",), ("e8m0", "float32", "bfloat16")


def _is_written_out(name: object) -> bool:
    return isinstance(name, str) and ":" in name


#: The formats that each short name may mean. `find` removes separators before it looks a name up
#: here, so these names have none.
_SHORT = {
    "mxfp8": ("mxfp8_e4m3", "mxfp8_e5m2"),
    "mxfp6": ("mxfp6_e3m2", "mxfp6_e2m3"),
    "mxfp4": ("mxfp4_e2m1",),  # the only 4-bit format of the standard
}


def meant(argument: str, name: object, known: Sequence[str], settings: str | None = None) -> str:
    """Return the known name that equals `name` apart from case and separators, or raise an error.

    If the argument may also be a notation (see `get`), pass example settings such as ``block=32``.
    If `name` is only the name of an element, the error then suggests ``name:settings``.
    """
    found = find(argument, name, known) if isinstance(name, str) else None
    if found is None and settings is not None and isinstance(name, str) and _is_element(name):
        raise ValueError(
            f"Argument {argument!r} must be one of {list(known)}, or written out with a colon like "
            f"'{name}:{settings}', not {name!r}."
        )
    return found if found is not None else errors.choose(argument, name, known)


def find(argument: str, name: str, known: Sequence[str]) -> str | None:
    """Return the known name that equals `name` apart from case and separators, or None."""
    if name in known:
        return name
    plain = _plain(name)
    fitting = [each for each in _SHORT.get(plain, ()) if each in known]
    if len(fitting) > 1:
        raise errors.ambiguous(argument, name, fitting)
    fitting += [each for each in known if _plain(each) == plain]
    return fitting[0] if fitting else None


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "").replace(" ", "")


def element(name: str | ElementFormat) -> ElementFormat:
    """Return the element or float type that a name or a notation describes (see `get`).

    An `ElementFormat` is returned unchanged. A notation that sets a block length or a scale raises
    ValueError, because an element has no blocks and no scales.
    """
    if isinstance(name, ElementFormat):
        return name
    if _is_written_out(name):
        if of_blocks := re.search(f"[:,]({'|'.join(_OF_BLOCKS)})=", name):
            raise ValueError(f"Element {name!r} must not set {of_blocks[1]}, which only a format has.")
        return _written_out(name).element
    return _BY_NAME[meant("element", name, tuple(_BY_NAME), "")]


@dataclass(frozen=True, repr=False)
class MXFormat:
    """An MX format, made of element, scale and block length: ``MXFormat("e4m3", "e8m0", 32)``.

    `element` and `scale` may be names. The names of scales are the keys of `SCALES`. With
    ``tensor_scale="float32"`` all elements of an array, or of each row, share a second scale, a
    float32. The default of `name` is ``mx_<element>_<block>``. If the scale is not E8M0, the names
    of the scales follow.
    """

    element: ElementFormat
    scale: ScaleFormat = E8M0
    block: int = 32
    name: str = ""
    #: "float32", or None if arrays of the format have no tensor scale.
    tensor_scale: str | None = None

    def __init__(
        self,
        element: str | ElementFormat,
        scale: str | ScaleFormat = E8M0,
        block: int = 32,
        name: str = "",
        tensor_scale: str | None = None,
    ) -> None:
        resolved = globals()["element"](element)
        errors.require(resolved.bits <= 8, "element", "at most 8 bits wide", resolved.name)
        if not isinstance(scale, ScaleFormat):
            scale = SCALES[errors.choose("scale", scale, tuple(SCALES))]
        errors.require(SCALES.get(scale.name) == scale, "scale", f"one of {list(SCALES)}", scale)
        if tensor_scale is not None:
            tensor_scale = errors.choose("tensor_scale", tensor_scale, TENSOR_SCALES)
            accepted = f"left out with {scale.name} scales, whose range is wide enough for every tensor"
            errors.require(scale.name not in _REACH_ALL, "tensor_scale", accepted, tensor_scale)
        block = errors.positive_integer("block", block)
        scales = "" if scale.power_of_two else f"_{scale.name}" + (f"_{tensor_scale}" if tensor_scale else "")
        for field, value in (
            ("element", resolved),
            ("scale", scale),
            ("block", block),
            ("name", name or f"mx_{resolved.name}_{block}{scales}"),
            ("tensor_scale", tensor_scale),
        ):
            object.__setattr__(self, field, value)

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def notation(self) -> str:
        """The string from which `get` makes this format: a known name, or a list of settings.

        The settings do not include a name that the caller chose for the format. The format that
        `get` makes from the settings therefore has the default name, but it encodes each number to
        the same bits as this format.
        """
        if _FORMATS.get(self.name) == self:
            return self.name
        e, rest = self.element, f"block={self.block}"
        rest += "" if self.scale.power_of_two else f",scale={self.scale.name}"
        rest += f",tensor_scale={self.tensor_scale}" if self.tensor_scale else ""
        known = ELEMENTS.get(e.name)
        if known == e:
            return f"{e.name}:{rest}"
        if e.canonical_nan:
            raise ValueError(f"Format {self.name!r} cannot be written out: its element has canonical_nan=True.")
        if e.integer:
            return f"int{e.bits}:{rest}"
        return f"e{e.exponent_bits}m{e.mantissa_bits}:bias={e.bias},specials={e.specials},{rest}"

    @property
    def bits_per_element(self) -> float:
        """The bits of an element, plus the bits of a scale divided by the block length.

        MXFP4 has 4.25 bits per element. The bits of a tensor scale are not counted.
        """
        return self.element.bits + self.scale.bits / self.block

    def __repr__(self) -> str:
        return (
            f"<MXFormat {self.name}: {self.element.name} x {self.block} per {scale_names(self)}, "
            f"{self.bits_per_element:g} bits per element, max {self.element.max:g}>"
        )


def scale_names(fmt: MXFormat) -> str:
    """Return the names of a format's scales, for example ``e8m0`` or ``e4m3 (and float32)``.

    The name in parentheses is the type of the tensor scale.
    """
    return fmt.scale.name + (f" (and {fmt.tensor_scale})" if fmt.tensor_scale else "")


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
_FORMATS["nvfp4"] = MXFormat("e2m1", "e4m3", 16, "nvfp4", "float32")


def names(scale: str | None = None) -> tuple[str, ...]:
    """Return the names that `get` knows: the six OCP formats, then the extensions.

    If `scale` is given, return only the names of formats with scales of that name.

    >>> from mxnum import formats
    >>> formats.names("e4m3")
    ('nvfp4',)
    """
    if scale is not None:
        errors.choose("scale", scale, tuple(SCALES))
    return tuple(name for name, fmt in _FORMATS.items() if scale in (None, fmt.scale.name))


def get_e8m0(name: str | MXFormat, what: str) -> MXFormat:
    """Return `get(name)`; raise ValueError unless the format's scales are powers of two.

    The error message begins with `what`, the name of the function that needs powers of two.
    """
    fmt = get(name)
    if not fmt.scale.power_of_two:
        raise ValueError(
            f"{what} supports only formats with E8M0 scales, not {fmt.name!r}, whose scales are {scale_names(fmt)}."
        )
    return fmt


def get(name: str | MXFormat) -> MXFormat:
    """Return the format that a name or a notation describes; return an `MXFormat` unchanged.

    Case and separators do not matter (``mxfp8-e4m3``). A shorter name that fits only one format is
    accepted (``MXFP4``).

    A format without a name is described by a notation: an element, a colon, and each setting that
    differs from its default, as in ``e3m4:bias=3,block=16``. The part before the colon is
    ``e<exponent bits>m<mantissa bits>``, ``int<bits>``, or the name of a known element or MX
    format. The default of ``bias`` is 2**(exponent bits - 1) - 1, and the default of ``block`` is
    32. The value of ``specials`` is none (the default), nan or ieee (see `ElementFormat`). The
    value of ``scale`` is e8m0 (the default) or another key of `SCALES`, as in
    ``e4m3:block=128,scale=float32``. The setting ``tensor_scale=float32`` adds a tensor scale,
    which some types of ``scale`` do not allow. A known element has its own ``bias`` and
    ``specials``. A notation that sets only one of these two resets the other to its default, so
    ``e4m3:bias=8`` has no NaN.

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
    return _FORMATS[meant("format", name, names(), "block=32")]


def _is_element(name: str) -> bool:
    """Return True if `name` names an element that MX formats can have."""
    try:
        return re.fullmatch(r"(e\d+m|int)\d+", name.lower()) is not None and bool(_written_out(f"{name}:"))
    except ValueError:
        return False


def of_element(name: str) -> MXFormat:
    """Return the first known format whose element has this name."""
    return next(fmt for fmt in _FORMATS.values() if fmt.element.name == name)


@cache
def _written_out(text: str) -> MXFormat:
    """Return the format that a notation with a colon describes."""
    try:
        return _parsed(text)
    except ValueError as problem:  # the message must name the caller's text, not an argument of a constructor
        raise ValueError(str(problem).replace("Argument ", f"In format {text!r}, ", 1)) from None


def _parsed(text: str) -> MXFormat:
    """Return the format that a notation describes.

    An error may name an argument of `ElementFormat` or `MXFormat` instead of a part of `text`.
    """
    base, _, rest = text.partition(":")
    base = find("format", base, (*ELEMENTS, *_FORMATS)) or base.lower()
    given: dict[str, str] = {}
    for part in filter(None, rest.split(",")):
        key, _, value = part.partition("=")
        errors.choose("format key", key, (*_OF_ELEMENTS, *_OF_BLOCKS))
        if key in given:
            raise ValueError(f"Format {text!r} must set {key} once, not to {given[key]!r} and {value!r}.")
        given[key] = value
    of_element = [key for key in _OF_ELEMENTS if key in given]
    if base in _FORMATS:
        if set(given) - {"block"}:
            raise ValueError(f"Format {text!r} must set nothing but 'block': {base!r} fixes all other settings.")
        known = _FORMATS[base]
        return MXFormat(known.element, known.scale, _block(text, given), tensor_scale=known.tensor_scale)
    if base in ELEMENTS and not of_element:
        return _around(text, ELEMENTS[base], given)
    if integer := re.fullmatch(r"int(\d{1,6})", base):
        if of_element:
            raise ValueError(f"Format {text!r} must not set {of_element[0]}: an integer has no bias and no specials.")
        if not 3 <= int(integer[1]) <= 8:
            raise ValueError(f"Format {text!r} must have between 3 and 8 bits, not {integer[1]}.")
        return _around(text, two_complement(base, int(integer[1])), given)
    fields = re.fullmatch(r"e(\d+)m(\d+)", base)
    if fields is None:
        known_names = errors.joined((*ELEMENTS, *_FORMATS))
        raise ValueError(f"Format {text!r} must begin with e<bits>m<bits>, int<bits>, {known_names}, not {base!r}.")
    exponent_bits, mantissa_bits = int(fields[1]), int(fields[2])
    bias = _number(text, "bias", given["bias"]) if "bias" in given else (1 << (min(max(exponent_bits, 1), 12) - 1)) - 1
    specials = given.get("specials", "none")
    return _around(text, ElementFormat(base, exponent_bits, mantissa_bits, bias, specials), given)


#: The keys of a notation: those that describe the element, and those that describe the blocks and
#: the scales.
_OF_ELEMENTS, _OF_BLOCKS = ("bias", "specials"), ("block", "scale", "tensor_scale")


def _around(text: str, element: ElementFormat, given: dict[str, str]) -> MXFormat:
    """Return the MX format of `element` whose block length and scales are set by `given`."""
    return MXFormat(element, given.get("scale", E8M0), _block(text, given), tensor_scale=given.get("tensor_scale"))


def _block(text: str, given: dict[str, str]) -> int:
    return _number(text, "block", given["block"]) if "block" in given else 32


def _number(text: str, key: str, value: str) -> int:
    if re.fullmatch(r"-?\d{1,6}", value) is None:
        raise ValueError(f"Format {text!r} must set {key} to an integer of at most six digits, not {value!r}.")
    return int(value)


def describe(name: str | MXFormat | ElementFormat | None = None) -> str:
    """Return a description of a format or an element, or a table of all known formats.

    >>> from mxnum import formats
    >>> print(formats.describe("nvfp4").splitlines()[0])
    nvfp4: 16 elements share one e4m3 scale, all share one float32 scale, 4.5 bits per element.
    """
    if isinstance(name, ElementFormat):
        return _described(name)
    if name is not None:
        fmt = get(name)
        tensor = f", all share one {fmt.tensor_scale} scale" if fmt.tensor_scale else ""
        return (
            f"{fmt.name}: {fmt.block} elements share one {fmt.scale.name} scale{tensor}, "
            f"{fmt.bits_per_element:g} bits per element.\n{_described(fmt.element)}"
        )
    titles = "name", "bits per element", "block", "max", "min normal", "min positive", "specials", "scales"
    rows = []
    for fmt in _FORMATS.values():
        e = fmt.element
        smallest = e.min_subnormal if e.min_subnormal is not None else e.min_normal
        powers = (f"2^{math.frexp(x)[1] - 1}" for x in (e.min_normal, smallest))
        rows.append(
            (fmt.name, f"{fmt.bits_per_element:g}", fmt.block, f"{e.max:.9g}", *powers, e.specials, scale_names(fmt))
        )
    return text_table(titles, rows, width=80)


def _described(e: ElementFormat) -> str:
    """Return a paragraph that describes an element: layout, range, special values."""
    layout = (
        f"two's complement x 2^-{e.mantissa_bits}"
        if e.integer
        else f"sign, {_counted(e.exponent_bits, 'exponent bit')} (bias {e.bias}), "
        f"{_counted(e.mantissa_bits, 'mantissa bit')}"
    )
    specials = {
        "none": "no infinity, no NaN",
        "nan": "NaN at S.1...1, no infinity",
        "ieee": "infinity and NaN in the top exponent",
    }
    smallest = e.min_subnormal if e.min_subnormal is not None else e.min_normal
    return (
        f"{e.name}: {e.bits} bits, {layout}; largest {e.max:g}, smallest normal {e.min_normal:g}, "
        f"smallest positive {smallest:g}; {specials[e.specials]}."
    )


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
