"""`MatrixUnit`: a description of how a matrix unit adds, with the evidence for each clause."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from mxnum import errors
from mxnum.formats import ELEMENTS, FLOATS, SCALES, ElementFormat

#: TF32 is the upper 19 bits of a float32.
TF32 = ElementFormat("tf32", 8, 10, 127, specials="ieee", canonical_nan=True)
#: The formats of operands, by name.
OPERANDS = {name: element for name, element in ELEMENTS.items() if not element.integer}
OPERANDS |= {name: FLOATS[name] for name in ("float16", "bfloat16")} | {"tf32": TF32}
#: The types of the addend and the result.
ACCUMULATORS = ("float32", "float16")
ROUNDINGS = ("rtz", "rne")
ADDENDS = ("term", "after")
#: The exponent of a zero operand, addend or scale. It is so low that zero terms do not affect the
#: alignment of other terms.
ZERO_EXPONENT = -(1 << 10)
#: The maximum number of bits of a sum of aligned terms.
SUM_BITS = 60

CLAUSES = ("products", "scales", "addend", "alignment", "result", "chains", "promotion", "special values")
STATUSES = ("replayed", "published", "assumed")


class EvidenceWarning(UserWarning):
    """The warning that a result depends on a clause that no output of a GPU confirms."""


@dataclass(frozen=True)
class Evidence:
    """The evidence for one clause in the description of a unit.

    `clause` is one of products, scales, addend, alignment, result, chains, promotion and special
    values. `status` is "replayed" if outputs of the GPUs that `source` names confirm the clause.
    `status` is "published" if `source` is a paper or a program that states the clause. Otherwise
    `status` is "assumed".
    """

    clause: str
    status: str
    source: str = ""

    def __post_init__(self) -> None:
        errors.choose("clause", self.clause, CLAUSES)
        errors.choose("status", self.status, STATUSES)


@dataclass(frozen=True, repr=False)
class MatrixUnit:
    """A description of how a matrix unit computes d = a·b + c, bit for bit.

    One instruction computes a chain of fused sums. A fused sum has one term for each product or, if
    `group` is above 1, one term for each group of products. The addend may be another term. A term
    is a signed significand times a power of two and is not normalized. The unit shifts all terms to
    the largest exponent and truncates them toward zero to `fraction_bits`. It adds the truncated
    terms exactly and rounds the sum once. The semantics page explains all clauses.

    Examples
    --------
    >>> from mxnum.units import MatrixUnit
    >>> unit = MatrixUnit("mine", ("e4m3",), k=(32,), terms=32, fraction_bits=13, result_bits=13)
    >>> unit.describe().splitlines()[0]
    'mine: e4m3 operands, float32 addend and result, instructions with K = 32.'
    """

    name: str
    #: The formats of operands. The two operands of a product may have different formats.
    operands: tuple[str, ...]
    #: The values of K of the unit's instructions, in ascending order. `matmul` uses only
    #: instructions with the largest K, in a chain.
    k: tuple[int, ...]
    #: The number of products of one fused sum.
    terms: int
    #: The number of fraction bits that an aligned term keeps.
    fraction_bits: int
    #: The number of fraction bits to which a result is rounded. It is at most the number of
    #: fraction bits of the type `accumulator`.
    result_bits: int = 23
    #: The rounding of a result: "rtz" (toward zero) or "rne" (to nearest even).
    rounding: str = "rtz"
    #: The type of the addend and of the result: "float32" or "float16".
    accumulator: str = "float32"
    #: "term": the addend is a term of the first fused sum. "after": the sums start from zero. The
    #: addend is added to their result, and this sum is rounded to nearest even in the type
    #: `accumulator`.
    addend: str = "term"
    #: The indices of an instruction's products, in the order in which the unit adds the products.
    #: () means ascending order.
    order: tuple[int, ...] = ()
    #: The number of products that are added exactly to make one term. If this number is above 1,
    #: the exponent of a term is the sum of the exponents of the two block scales.
    group: int = 1
    #: The pairs (scale format, block length) of MX operands; () if the unit has no scales.
    scales: tuple[tuple[str, int], ...] = ()
    #: The number of products after which software adds the accumulator to a float32 total, rounded
    #: to nearest even, and resets the accumulator to zero. 0 means that software never does this.
    #: The operands may have float32 scales in blocks of `promotion` elements. The new total is then
    #: fma(scale of a * scale of b, accumulator, total).
    promotion: int = 0
    #: The evidence for clauses. A clause that has no evidence here counts as assumed.
    evidence: tuple[Evidence, ...] = ()

    def __post_init__(self) -> None:
        errors.require_type(isinstance(self.name, str), "name", "a string", self.name)
        for name in ("operands", "k", "order", "scales", "evidence"):
            value = getattr(self, name)
            is_listed = isinstance(value, Iterable) and not isinstance(value, str)
            errors.require_type(is_listed, name, "a tuple", value)
            object.__setattr__(self, name, tuple(value))
        for pair in tuple[Any, ...](self.scales):
            is_pair = isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[1], int)
            errors.require_type(is_pair, "scales", "pairs of a format and a block length", pair)
        for argument, value, accepted in (
            ("rounding", self.rounding, ROUNDINGS),
            ("accumulator", self.accumulator, ACCUMULATORS),
            ("addend", self.addend, ADDENDS),
            *(("operands", name, tuple(OPERANDS)) for name in self.operands),
            *(("scales", scale, ("e8m0", "e4m3", "ue5m3")) for scale, _ in self.scales),
        ):
            errors.choose(argument, value, accepted)
        errors.require(bool(self.operands), "operands", "at least one format", self.operands)
        for k in self.k:
            errors.positive_integer("k", k)
        ascends = bool(self.k) and list(self.k) == sorted(self.k)
        errors.require(ascends, "k", "one or more positive lengths, in ascending order", self.k)
        errors.integer("terms", self.terms, 1, max(self.k))
        errors.integer("group", self.group, 1, self.terms)
        errors.require(self.terms % self.group == 0, "terms", f"a multiple of group ({self.group})", self.terms)
        whole = all(k % self.group == 0 for k in self.k)
        errors.require(whole, "k", f"multiples of group ({self.group})", self.k)
        narrow = self.group == 1 or all(OPERANDS[name].bits <= 6 for name in self.operands)
        errors.require(narrow, "group", "1 for operands of more than 6 bits", self.group)
        most = FLOATS[self.accumulator].mantissa_bits
        errors.integer("result_bits", self.result_bits, 1, most)
        is_full = self.rounding == "rtz" or self.result_bits == most
        errors.require(is_full, "result_bits", f"{most} with 'rne'", self.result_bits)
        in_order = not self.order or (len(self.k) == 1 and sorted(self.order) == list(range(self.k[0])))
        errors.require(in_order, "order", f"a permutation of the indices below {self.k[-1]}", self.order)
        errors.require(not (self.order and self.scales), "order", "() for a unit with scales", self.order)
        errors.require(not self.promotion or most == 23, "accumulator", "'float32' with promotion", self.accumulator)
        for _, block in self.scales:
            fits = block % self.group == 0 and (self.group > 1 or block % self.terms == 0)
            errors.require(fits, "scales", "in blocks with a length divisible by terms (by group if group > 1)", block)
        errors.integer("promotion", self.promotion, 0, 1 << 30)
        whole = self.promotion % self.k[-1] == 0 and not (self.promotion and self.scales)
        errors.require(whole, "promotion", f"a multiple of {self.k[-1]}, or 0 if the unit has scales", self.promotion)
        errors.integer("fraction_bits", self.fraction_bits, 1, self.most_fraction_bits)

    @property
    def most_fraction_bits(self) -> int:
        """The maximum number of fraction bits for which a sum of terms fits in `SUM_BITS` bits."""
        # A significand is below 2, so the product of two significands is below 4. The exact sum of
        # a group is not normalized: it needs enough integer bits for products of the largest
        # elements. Float scales have significands below 2, so the product of two scales adds two
        # integer bits.
        product, scale = 2, 2 if any(SCALES[name].number for name, _ in self.scales) else 0
        if self.group > 1:
            product = 2 * max(OPERANDS[name].emax + 1 for name in self.operands) + (self.group - 1).bit_length()
        return SUM_BITS - (product + scale + (self.terms // self.group).bit_length() + 1)

    @property
    def formats(self) -> dict[str, ElementFormat]:
        """The formats of operands, by name."""
        return {name: OPERANDS[name] for name in self.operands}

    @property
    def takes(self) -> str:
        """A phrase that describes the operands of the unit."""
        names = errors.joined(self.operands)
        if self.scales:
            blocks = errors.joined(f"{scale} scales in blocks of {block}" for scale, block in self.scales)
            return f"an MX array of {names} elements with {blocks}"
        promoted = (
            f", or an MX array of {names} elements with float32 scales in blocks of {self.promotion}"
            if self.promotion
            else ""
        )
        return f"an array of {names}{promoted}"

    def but(self, **changes: object) -> MatrixUnit:
        """Return a copy of this unit with some fields changed.

        The copy does not keep this unit's evidence, which is about another rule. Its only evidence
        is the evidence in `changes`. If only the name changes, the copy keeps this unit's evidence.
        """
        errors.known_fields(changes, MatrixUnit, "a unit")
        if set(changes) - {"name"}:
            changes = {"evidence": (), **changes}
        return replace(self, **changes)  # type: ignore[arg-type]

    def status(self, clause: str) -> Evidence:
        """Return the evidence for a clause."""
        errors.choose("clause", clause, CLAUSES)
        found = [one for one in self.evidence if one.clause == clause]
        return found[0] if found else Evidence(clause, "assumed")

    @property
    def clauses(self) -> tuple[str, ...]:
        """The clauses that apply to the unit."""
        absent = {"scales": not self.scales, "promotion": not self.promotion}
        return tuple(clause for clause in CLAUSES if not absent.get(clause))

    def describe(self) -> str:
        """Return a description of the unit, with the evidence for each clause."""
        ks = errors.joined(self.k)
        lines = [
            f"{self.name}: {errors.joined(self.operands)} operands, {self.accumulator} addend and result, "
            f"instructions with K = {ks}.",
            f"products: {self.terms} in a fused sum"
            + (f", each {self.group} added exactly" if self.group > 1 else "")
            + (f", in the order {', '.join(map(str, self.order))}" if self.order else ", in index order"),
            f"scales: {errors.joined(f'{scale}, blocks of {block}' for scale, block in self.scales)}"
            if self.scales
            else "scales: none",
            f"addend: {'a term of the first sum' if self.addend == 'term' else 'added after the sums, to nearest'}",
            f"alignment: toward zero to {self.fraction_bits} fraction bits",
            f"result: {'toward zero' if self.rounding == 'rtz' else 'to nearest even'} to {self.result_bits} "
            "fraction bits",
        ]
        if self.promotion:
            lines.append(f"promotion: every {self.promotion} products, the sum is added to a float32 total, to nearest")
        lines += [f"evidence: {self._evidence_text(clause)}" for clause in self.clauses]
        return "\n".join(lines)

    def _evidence_text(self, clause: str) -> str:
        one = self.status(clause)
        return f"{clause} {one.status}" + (f" ({one.source})" if one.source else "")

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"<MatrixUnit {self.name}>"


_warned: set[tuple[str, str]] = set()


def warn_of(unit: MatrixUnit, clauses: Iterable[str]) -> None:
    """Warn once about each of the given clauses that no output of a GPU confirms."""
    new = [c for c in clauses if unit.status(c).status != "replayed" and (unit.name, c) not in _warned]
    if not new:
        return
    _warned.update((unit.name, clause) for clause in new)
    told = "; ".join(unit._evidence_text(clause) for clause in new)
    warnings.warn(
        f"Unit {unit.name!r} relies on clauses that no outputs of a GPU confirm: {told}.", EvidenceWarning, stacklevel=5
    )
