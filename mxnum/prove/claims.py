"""Claims: the operation that an implementation must compute, its inputs, and the assumptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mxnum import errors, formats
from mxnum.definition.convert import SCALE_NAN, make_decode, make_encode
from mxnum.definition.pack import SR_BITS, make_pack
from mxnum.definition.scale import make_shared_scale
from mxnum.definition.unpack import FINITE, make_normalize
from mxnum.definition.word import dialect, select, word_bits
from mxnum.formats import E8M0, ELEMENTS, FLOATS, ElementFormat, MXFormat
from mxnum.modes import Nonfinite, Overflow, Rounding, ScaleRule, scale_rule_of

OPERATIONS = {
    "encode": "converts a number to an element code, under an E8M0 scale if the implementation takes one",
    "decode": "converts an element code to a number, under an E8M0 scale if the implementation takes one",
    "scale": "converts the largest finite magnitude of a block to the E8M0 code of the block's scale",
    "quantize": "converts a block of numbers to its E8M0 scale code and its element codes",
    "dot": "rounds the exact sum of up to four products to float32 (elements have at most six bits)",
}
#: Restrictions on the inputs that a proof may assume.
ASSUMPTIONS = {
    "finite": "the number is neither NaN nor infinite",
    "not_nan": "the number is not NaN",
    "scale_number": "the scale is a number (not 0xFF)",
    "nonnegative": "the number has the sign bit 0",
}
#: Deviations from the definition's answer that a proof may accept, under their names in
#: `mxnum.conformance.CHOICES`.
ACCEPTED = {
    "nan_code": "a NaN code with another sign or payload",
    "minus_zero": "a negative number that rounds to zero loses its sign",
}
#: The operations to which each argument of `make_claim` applies.
DECIDES = {
    "source": ("encode", "decode", "scale", "quantize"), "rounding": ("encode", "quantize"),
    "overflow": ("encode", "quantize"), "scale_rule": ("scale", "quantize"), "nonfinite": ("quantize",),
    "sr_bits": ("encode", "quantize"), "terms": ("dot",), "block": ("quantize",),
}  # fmt: skip
#: Limits of a dot product: the number of its terms, and the bits of an element. Within these
#: limits, 64-bit integers hold every sum exactly.
TERMS, TERM_BITS = 4, 6


@dataclass(frozen=True)
class Quantity:
    """An input or output of an operation: `count` numbers of `bits` bits each."""

    name: str
    bits: int
    #: The format of the numbers; None for scale codes and random integers.
    number: ElementFormat | None = None
    count: int = 1
    #: The value that is passed to the definition's function if the implementation lacks this input;
    #: None if the implementation must have this input.
    default: int | None = None

    @property
    def width(self) -> int:
        return self.bits * self.count

    @property
    def text(self) -> str:
        """The name and the format of the numbers, for messages."""
        return repr(self.name) if self.number is None else f"{self.name!r} ({self.number.name})"

    def parts(self, value: Any) -> list[Any]:
        """Return the numbers in a packed bit-vector or integer, beginning with the lowest bits."""
        places = range(0, self.width, self.bits)
        if isinstance(value, int):
            return [value >> at & ((1 << self.bits) - 1) for at in places]
        import z3

        return [z3.Extract(at + self.bits - 1, at, value) for at in places]


@dataclass(frozen=True)
class Claim:
    """The statement that an implementation computes an operation of the definition."""

    operation: str
    format: MXFormat
    source: ElementFormat
    rounding: Rounding
    overflow: Overflow
    scale_rule: ScaleRule
    nonfinite: Nonfinite
    sr_bits: int
    inputs: tuple[Quantity, ...]
    outputs: tuple[Quantity, ...]
    #: The word length of `function`: 32 or 64 bits.
    word: int
    #: The definition's function, which takes the inputs in order, as Python integers or as symbolic
    #: words. For "quantize" the function returns the scale, but no element codes.
    function: Callable[..., Any] = field(repr=False)
    assumed: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The claim in one line, written like the arguments of `mxnum.conformance.prove`."""
        said = [f"{self.operation} of {self.format.name}"]
        if self.operation in ("encode", "quantize", "scale"):
            said.append(f"from {self.source.name}")
        if self.operation == "decode":
            said.append(f"to {self.source.name}")
        if self.operation in ("encode", "quantize"):
            said.append(f"rounding={self.rounding}")
            if self.rounding.is_stochastic:
                said.append(f"sr_bits={self.sr_bits}")
            said.append(f"overflow={self.overflow}")
        if self.operation in ("scale", "quantize"):
            said.append(f"scale_rule={self.scale_rule}")
        if self.operation == "quantize":
            said.append(f"nonfinite={self.nonfinite}, blocks of {self.format.block}")
        return ", ".join(said)

    @property
    def assumptions(self) -> list[str]:
        """The claim's assumptions and accepted deviations, as sentences for reports."""
        found = [f"Assumed: {ASSUMPTIONS[name]}." for name in self.assumed]
        if self.operation == "scale":
            found.append("Assumed: the maximum is finite and has the sign bit 0.")
        return [*found, *(f"Accepted: {ACCEPTED[name]}." for name in self.accepted)]


def make_claim(
    operation: str,
    format: str | MXFormat,
    *,
    source: str = "float32",
    rounding: str | Rounding = "rne",
    overflow: str | Overflow = "saturate",
    scale_rule: str | ScaleRule | None = None,
    nonfinite: str | Nonfinite = "block",
    sr_bits: int = 30,
    terms: int = TERMS,
    block: int | None = None,
    assume: str | Sequence[str] = (),
    accept: str | Sequence[str] = (),
) -> Claim:
    """Return the claim about an operation; raise ValueError for settings that cannot be proved."""
    errors.choose("operation", operation, tuple(OPERATIONS))
    fmt = formats.of_element(format) if isinstance(format, str) and format in ELEMENTS else formats.get(format)
    if not fmt.scale.power_of_two:
        raise ValueError(
            f"Argument 'format' must have E8M0 scales, or name an element ({fmt.element.name!r}), not {fmt.name!r}: "
            "divisions by float scales are tested (mxnum verify), not proved."
        )
    known = tuple(FLOATS) if operation in ("scale", "quantize") else (*FLOATS, *ELEMENTS)
    number = (FLOATS | ELEMENTS)[errors.choose("source", source, known)]
    mode = errors.choose_member("rounding", rounding, Rounding)
    errors.integer("sr_bits", sr_bits, 1, SR_BITS)
    errors.integer("terms", terms, 1, TERMS)
    rule = scale_rule_of(fmt, scale_rule)
    assert isinstance(rule, ScaleRule)
    assumed, accepted = ((each,) if isinstance(each, str) else tuple(each) for each in (assume, accept))
    for name in assumed:
        errors.choose("assume", name, tuple(ASSUMPTIONS))
    for name in accepted:
        errors.choose("accept", name, tuple(ACCEPTED))
    over = errors.choose_member("overflow", overflow, Overflow)
    policy = errors.choose_member("nonfinite", nonfinite, (Nonfinite.BLOCK, Nonfinite.ELEMENT))
    claim = Claim(
        operation, fmt, number, mode, over, rule, policy, sr_bits, (), (), word_bits(number, fmt.element), _nothing,
        assumed, accepted,
    )  # fmt: skip
    if operation == "dot":
        return _dot(claim, terms)
    if block is not None:
        fmt = MXFormat(fmt.element, fmt.scale, errors.positive_integer("block", block), fmt.name)
    return {"encode": _encode, "decode": _decode, "scale": _scale, "quantize": _quantize}[operation](
        replace(claim, format=fmt)
    )


def _nothing(*_: Any) -> Any:
    raise NotImplementedError


_SCALE = Quantity("scale", 8, default=E8M0.bias)


def _random(claim: Claim) -> tuple[Quantity, ...]:
    return (Quantity("random", claim.sr_bits),) if claim.rounding.is_stochastic else ()


def _encode(claim: Claim) -> Claim:
    element, source, up = claim.format.element, claim.source, SR_BITS - claim.sr_bits
    function = make_encode(source, element, claim.rounding, claim.overflow)

    def encode(x: Any, scale: Any, random: Any = 0) -> Any:
        return function(x, scale, random << up)

    inputs = Quantity("x", source.bits, source), _SCALE, *_random(claim)
    return replace(claim, function=encode, inputs=inputs, outputs=(Quantity("code", element.bits, element),))


def _decode(claim: Claim) -> Claim:
    element, target = claim.format.element, claim.source
    inputs = Quantity("code", element.bits, element), _SCALE
    value = Quantity("value", target.bits, target)
    return replace(claim, function=make_decode(element, target), inputs=inputs, outputs=(value,))


def _scale(claim: Claim) -> Claim:
    function = make_shared_scale(claim.source, claim.format.element, claim.scale_rule)
    inputs = (Quantity("amax", claim.source.bits, claim.source),)
    return replace(claim, function=function, inputs=inputs, outputs=(replace(_SCALE, default=None),))


def _quantize(claim: Claim) -> Claim:
    element, count = claim.format.element, claim.format.block
    inputs = (
        Quantity("x", claim.source.bits, claim.source, count),
        *(replace(each, count=count) for each in _random(claim)),
    )
    outputs = replace(_SCALE, default=None), Quantity("codes", element.bits, element, count)
    MASK, MAX = (1 << (claim.source.bits - 1)) - 1, claim.source.max_code
    shared_scale = make_shared_scale(claim.source, element, claim.scale_rule)

    def scale(x: Sequence[Any]) -> Any:
        amax: Any = 0
        is_finite: Any = 1
        for each in x:
            magnitude = each & MASK
            amax = select(magnitude > MAX, amax, select(magnitude > amax, magnitude, amax))
            is_finite = select(magnitude > MAX, 0, is_finite)
        code = shared_scale(amax)
        return select(is_finite == 0, SCALE_NAN, code) if claim.nonfinite.by_block else code

    return replace(claim, inputs=inputs, outputs=outputs, function=scale)


def element_of(claim: Claim) -> Claim:
    """Return the claim that one element of a block is encoded correctly under the block's scale."""
    return _encode(replace(claim, operation="encode"))


def _dot(claim: Claim, terms: int) -> Claim:
    element, target = claim.format.element, FLOATS["float32"]
    errors.require(
        element.bits <= TERM_BITS, "format", f"one with elements of at most {TERM_BITS} bits for 'dot'", element.name
    )
    function = make_dot(element, terms)
    sides = (Quantity(name, element.bits, element, terms) for name in ("a", "b"))
    scales = (Quantity(name, 8, default=E8M0.bias) for name in ("a_scale", "b_scale"))
    return replace(
        claim, source=target, function=function, word=64, inputs=(*sides, *scales),
        outputs=(Quantity("value", 32, target),),
    )  # fmt: skip


def make_product(element: ElementFormat) -> Callable[..., Any]:
    """Return `product(a, b)`, which multiplies the values of two codes of finite numbers.

    The product is an integer multiple of the square of the element's smallest positive number, and
    `product` returns this integer.
    """
    SIGN, HALF = 1 << (element.bits - 1), element.mantissa_bits

    @dialect
    def fixed(code: Any) -> Any:
        if element.integer:
            return select((code & SIGN) == 0, code, 2 * SIGN - code)
        magnitude = code & (SIGN - 1)
        step = magnitude >> HALF
        fraction = magnitude & ((1 << HALF) - 1)
        significand = select(step == 0, fraction, fraction | (1 << HALF))
        return significand << select(step == 0, 0, step - 1)

    @dialect
    def product(a: Any, b: Any) -> Any:
        magnitude = fixed(a) * fixed(b)
        return select(((a ^ b) & SIGN) == 0, magnitude, 0 - magnitude)

    return product


def make_sum(element: ElementFormat, terms: int) -> Callable[..., Any]:
    """Return `sum_of(products, a_scale, b_scale)`, which rounds the scaled sum once to float32.

    If the exact sum is zero, the result is +0. If a scale code is 0xFF, the result is NaN.
    """
    target, mantissa = FLOATS["float32"], element.mantissa_bits
    # The value of a code is an integer times 2**(emin - mantissa). The significand of a sum has
    # `width` + 1 bits.
    width = 2 * (mantissa + element.emax - element.emin + 2) + 2
    width = max(width, target.mantissa_bits + 1)
    normalize = make_normalize(width)
    pack = make_pack(target, Rounding.RNE, Overflow.IEEE, width, 64)
    UNIT = 2 * (element.emin - mantissa) - 2 * E8M0.bias
    NAN = target.nan_code

    def sum_of(products: Sequence[Any], a_scale: Any, b_scale: Any) -> Any:
        total: Any = 0
        for i in range(terms):
            total = total + products[i]
        sign = select(total < 0, 1, 0)
        exponent, significand = normalize(a_scale + b_scale + (UNIT + width), select(total < 0, 0 - total, total))
        value = pack(sign, exponent, significand, FINITE, 0)
        return select(a_scale == SCALE_NAN, NAN, select(b_scale == SCALE_NAN, NAN, value))

    return sum_of


def make_dot(element: ElementFormat, terms: int) -> Callable[..., Any]:
    """Return `dot(a, b, a_scale, b_scale)`, which computes the dot product of coded vectors."""
    product, sum_of = make_product(element), make_sum(element, terms)

    def dot(a: Sequence[Any], b: Sequence[Any], a_scale: Any, b_scale: Any) -> Any:
        return sum_of([product(a[i], b[i]) for i in range(terms)], a_scale, b_scale)

    return dot


def hypotheses(claim: Claim, values: Mapping[str, Any]) -> list[Any]:
    """Return a claim's conditions on its symbolic inputs (z3 bit-vectors)."""
    found: list[Any] = []
    for name, value in values.items():
        quantity = next(each for each in claim.inputs if each.name == name)
        if name in ("scale", "a_scale", "b_scale") and "scale_number" in claim.assumed:
            found.append(value != SCALE_NAN)
        if quantity.number is None:
            continue
        for one in quantity.parts(value):
            found += _of_number(claim, quantity.number, one)
    return found


def _of_number(claim: Claim, number: ElementFormat, one: Any) -> list[Any]:
    import z3

    sign = 1 << (number.bits - 1)
    magnitude, found = one & (sign - 1), []
    if number.specials != "none":
        if "finite" in claim.assumed or claim.operation == "dot":
            found.append(z3.ULE(magnitude, number.max_code))
        if "not_nan" in claim.assumed:
            found.append(z3.ULE(magnitude, number.max_code + (number.specials == "ieee")))
    if "nonnegative" in claim.assumed:
        found.append(one & sign == 0)
    if claim.operation == "scale":
        found.append(z3.ULE(one, number.max_code))
    return found


def agrees(claim: Claim, output: Quantity, found: Any, right: Any) -> Any:
    """Return the z3 condition that `found` equals `right` or has a deviation the claim accepts."""
    import z3

    conditions = [found == right]
    number = output.number
    if number is not None and number.integer is False:
        sign = 1 << (number.bits - 1)
        if "nan_code" in claim.accepted and number.specials != "none":
            first_nan = number.max_code + (2 if number.specials == "ieee" else 1)
            both = [z3.UGE(each & (sign - 1), first_nan) for each in (found, right)]
            conditions.append(z3.And(*both))
        if "minus_zero" in claim.accepted:
            conditions.append(z3.And(right == sign, found == 0))
    return z3.Or(*conditions) if len(conditions) > 1 else conditions[0]
