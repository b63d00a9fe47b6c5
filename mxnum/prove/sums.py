"""Proofs of dot products in two steps: each product, then the sum of arbitrary products.

Solvers need hours for a sum of four multipliers, but only seconds for one product or for a sum of
arbitrary numbers. So the proof treats the products and their sum separately. The first step proves
that certain terms of the implementation are multiples of products. Each of these terms depends on
only one pair of codes. The second step replaces each product by a symbol, in the implementation and
in the definition, and proves that both sums are equal.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import z3

from mxnum.formats import ElementFormat
from mxnum.prove.claims import Claim, hypotheses, make_product, make_sum
from mxnum.prove.sym import Sym

WORD = 64


class Cut(NamedTuple):
    """Two questions that together prove a dot product: about the products, and about their sum."""

    #: The first question: for all codes, does each term of `_leaves` equal factor * product?
    products: z3.BoolRef
    #: The second question: with symbols in place of products, does the implementation's result
    #: `found` equal the definition's result `right`? `premises` are assumptions about the symbols,
    #: for example that each symbol lies in the range of products. `promises` are the conditions
    #: under which the implementation's behaviour is defined.
    found: z3.BitVecRef
    right: z3.BitVecRef
    premises: list[z3.BoolRef]
    promises: list[z3.BoolRef]


def cut(
    claim: Claim,
    symbols: Mapping[str, z3.BitVecRef],
    found: z3.BitVecRef,
    premises: Sequence[z3.BoolRef],
    promises: Sequence[z3.BoolRef],
) -> Cut | None:
    """Return the `Cut` of a claim about a dot product.

    The result is None if a code occurs outside the terms that `_leaves` lists.
    """
    element, sides = claim.format.element, claim.inputs[:2]
    codes = [[z3.BitVec(f"{side.name}[{i}]", side.bits) for i in range(side.count)] for side in sides]
    whole = [
        (symbols[side.name], z3.Concat(*reversed(each)) if side.count > 1 else each[0])
        for side, each in zip(sides, codes, strict=True)
    ]
    roots = [z3.simplify(z3.substitute(each, *whole)) for each in (found, *premises, *promises)]
    pairs = list(zip(*codes, strict=True))
    right = [_product(element, a, b) for a, b in pairs]
    places = {each.get_id(): i for i, pair in enumerate(pairs) for each in pair}
    leaves = _leaves(roots, places, element, pairs)
    if leaves is None:
        return None
    numbers = [z3.BitVec(f"product_{i}", WORD) for i in range(len(pairs))]
    most = max(make_product(element)(code, code) for code in range(1 << element.bits))
    proved, replaced = [], []
    for leaf, i, factor in leaves:
        proved.append(leaf == _multiple(factor, right[i], leaf))
        replaced.append((leaf, _multiple(factor, numbers[i], leaf)))
    in_range = [z3.And(each >= -most, each <= most) for each in right]
    about = {side.name: each for side, each in zip(sides, (pair[1] for pair in whole), strict=True)}
    first, *others = (z3.substitute(each, *replaced) for each in roots)
    summed = [Sym(each, []) for each in numbers]
    scales = [symbols.get(q.name, q.default) for q in claim.inputs[2:]]
    wide = [Sym(z3.ZeroExt(WORD - 8, each), []) if z3.is_bv(each) else each for each in scales]
    total = make_sum(element, len(pairs))(summed, *wide)
    return Cut(
        z3.Implies(z3.And(*hypotheses(claim, about)), z3.And(*proved, *in_range)),
        first,
        z3.Extract(31, 0, total.value),
        [
            *others[: len(premises)],
            *hypotheses(claim, {q.name: symbols[q.name] for q in claim.inputs[2:] if q.name in symbols}),
            *(z3.And(each >= -most, each <= most) for each in numbers),
        ],
        others[len(premises) :],
    )


def _product(element: ElementFormat, a: z3.BitVecRef, b: z3.BitVecRef) -> z3.BitVecRef:
    words = (Sym(z3.ZeroExt(WORD - each.size(), each), []) for each in (a, b))
    product: z3.BitVecRef = make_product(element)(*words).value
    return product


def _multiple(factor: bool | int, product: z3.BitVecRef, like: z3.ExprRef) -> z3.ExprRef:
    """Return `factor` times a product, with as many bits as the term `like`.

    If `factor` is True or False, return `factor` as a z3 constant.
    """
    if isinstance(factor, bool):
        return z3.BoolVal(factor)
    change = like.size() - product.size()
    return factor * (z3.SignExt(change, product) if change > 0 else z3.Extract(like.size() - 1, 0, product))


def _leaves(
    roots: Sequence[z3.ExprRef],
    places: Mapping[int, int],
    element: ElementFormat,
    pairs: Sequence[tuple[z3.BitVecRef, z3.BitVecRef]],
) -> list[tuple[z3.ExprRef, int, bool | int]] | None:
    """Return (term, product index, factor) for the outermost terms that are multiples of products.

    `_factor` decides this on a small sample of codes. The list also contains Boolean terms that
    have the same value for all codes of the sample; their factor is this value. The result is None
    if a code occurs outside the listed terms.
    """
    support = _support(roots, places)
    waiting, seen, leaves = list(roots), set(), []
    while waiting:
        term = waiting.pop()
        if term.get_id() in seen or not support[term.get_id()] - {-1}:
            continue
        seen.add(term.get_id())
        if len(support[term.get_id()]) == 1 and (z3.is_bv(term) or z3.is_bool(term)):
            (i,) = support[term.get_id()]
            factor = _factor(term, element, pairs[i])
            if factor is not None:
                leaves.append((term, i, factor))
                continue
        if not term.num_args():
            return None
        waiting += term.children()
    return leaves


def _factor(term: z3.ExprRef, element: ElementFormat, pair: tuple[z3.BitVecRef, z3.BitVecRef]) -> bool | int | None:
    """Return the factor f for which a term equals f times the product, on a small sample of codes.

    For a Boolean term, f is the term's value. The result is None if no f fits all codes of the
    sample.
    """
    product, sign = make_product(element), 1 << (element.bits - 1)
    codes, factor = (1, sign | 3, 2, sign - 1, 0, sign | 1, sign - 2, 2 * sign - 1, sign), None
    for a, b in itertools.product(codes, codes):
        values = [(symbol, z3.BitVecVal(code, symbol.size())) for symbol, code in zip(pair, (a, b), strict=True)]
        value = z3.simplify(z3.substitute(term, *values))
        if z3.is_bool(term):
            found = z3.is_true(value) if z3.is_true(value) or z3.is_false(value) else None
            factor = found if factor is None else factor
            if found is None or found != factor:
                return None
            continue
        if not z3.is_bv_value(value):
            return None
        factor = value.as_signed_long() if factor is None else factor
        if (value.as_long() - factor * product(a, b)) % (1 << term.size()):
            return None
    return factor


def _support(roots: Sequence[z3.ExprRef], places: Mapping[int, int]) -> dict[int, frozenset[int]]:
    """Return a dictionary from a term's id to the indices of the code pairs on which it depends.

    The index -1 means that the term depends on a symbol other than a code.
    """
    found: dict[int, frozenset[int]] = {}
    waiting = list(roots)
    while waiting:
        term = waiting[-1]
        open_ones = [each for each in term.children() if each.get_id() not in found]
        if open_ones:
            waiting += open_ones
            continue
        waiting.pop()
        parts = [found[each.get_id()] for each in term.children()]
        own = frozenset({places.get(term.get_id(), -1)}) if _is_symbol(term) else frozenset()
        found[term.get_id()] = own.union(*parts)
    return found


def _is_symbol(term: z3.ExprRef) -> bool:
    return bool(z3.is_const(term)) and term.decl().kind() == z3.Z3_OP_UNINTERPRETED
