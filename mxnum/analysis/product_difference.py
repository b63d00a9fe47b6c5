"""Find out why two stacks of software and hardware give different matrix products."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mxnum import errors, products
from mxnum.analysis.expected_sums import Error, Sums, rounded_to_nearest, truncated
from mxnum.array import MXArray
from mxnum.array.mx_array import parts_of
from mxnum.formats import MXFormat
from mxnum.memory.dtypes import ML_DTYPES, Array, numpy_dtype
from mxnum.modes import Accumulate
from mxnum.ops import encode, quantize
from mxnum.output.text_table import text_table
from mxnum.units import MatrixUnit
from mxnum.units.unit import CLAUSES, OPERANDS, Evidence

#: The names of the parts of a difference, in the order in which `compare_products` adds them.
PARTS = ("quantizer", "order", "truncation", "promotion", "tensor scale")
PLACES = ("after", "in turn")
#: A part counts as expected if its size is at most this multiple of the size that `expected_sums`
#: predicts.
FACTOR = 2.0
#: The number of results from which expected errors are computed.
SAMPLE = 256


@dataclass(frozen=True)
class ProductStack:
    """A stack of software and hardware that multiplies two matrices.

    `accumulate` is a matrix unit, its name, or a mode of `Accumulate`. `quantize` is a format, the
    name of an operand type ("e4m3", "float16"), or a dictionary of keywords of `mxnum.quantize`. It
    can also be a function f(matrix, axis) that returns the operand for a sum along `axis`. If
    `quantize` is None, the stack does not quantize matrices.

    Each operand may have a scale for its tensor or for each row. If `tensor_scale` is "after", the
    stack multiplies a unit's sum by the product of both operands' scales. If `tensor_scale` is "in
    turn", the stack multiplies the sum by the first operand's scale and then by the second's.
    """

    accumulate: str | Accumulate | MatrixUnit
    quantize: str | MXFormat | Mapping[str, Any] | Callable[[Array, int], Any] | None = None
    tensor_scale: str = "after"
    name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "accumulate", products.accumulation(self.accumulate))
        errors.choose("tensor_scale", self.tensor_scale, PLACES)
        object.__setattr__(self, "name", self.name or getattr(self.accumulate, "name", str(self.accumulate)).lower())

    def operand(self, x: Any, axis: int) -> Any:
        """Return the quantized operand that the stack multiplies in place of x."""
        asked, unit = self.quantize, self.accumulate
        if callable(asked):
            made = asked(x, axis)
        elif isinstance(asked, str) and asked in OPERANDS:
            made = _as_type(np.asarray(x), asked)
        elif asked is None:
            made = x
        else:
            options = dict(asked) if isinstance(asked, Mapping) else {"format": asked}
            made = quantize(x, axis=axis, **options)
        if isinstance(unit, MatrixUnit) and "tf32" in unit.operands and not isinstance(made, MXArray):
            made = (np.ascontiguousarray(made).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
        return made


@dataclass(frozen=True)
class DifferencePart:
    """One part of the difference between the products of two stacks, or the whole difference.

    Only results that are finite in both stacks count. `rms`, `largest` and `expected` are relative
    to the root mean square of the exact results. `bias` is the mean of part * sign(result),
    relative to the mean magnitude of the results. `bias` is below 0 if the second stack's results
    are nearer zero.
    """

    name: str
    rms: float
    bias: float
    largest: float
    expected: float

    @property
    def verdict(self) -> str:
        """The verdict: "equal", "expected", or "larger than expected" (above twice `expected`)."""
        if self.rms == 0:
            return "equal"
        return "expected" if self.rms <= FACTOR * self.expected else "larger than expected"


@dataclass(frozen=True, eq=False)
class ProductDifference:
    """The difference of two stacks' products, split into parts that add up to the difference.

    `values` maps the name of each part, and "total", to a float64 array. `nonfinite` counts results
    that are NaN or infinite in either stack.
    """

    stacks: tuple[str, str]
    parts: tuple[DifferencePart, ...]
    total: DifferencePart
    size: int
    nonfinite: int
    values: dict[str, Array] = field(repr=False)

    def text(self) -> str:
        """Return a sentence and a table of all parts.

        The sentence names the largest part and the parts that are larger than expected.
        """
        rows = [
            (p.name, f"{p.rms:.2e}", f"{p.largest:.2e}", f"{p.bias:+.2e}", f"{p.expected:.2e}", p.verdict)
            for p in (*self.parts, self.total)
        ]
        rows[-1] = (*rows[-1][:-1], "")
        table = text_table(("part", "rms", "largest", "bias", "expected rms", "verdict"), rows)
        return f"{self._sentence()}\n\n{table}"

    def _sentence(self) -> str:
        first, second = self.stacks
        if self.total.rms == 0:
            return f"{first} and {second} give equal results."
        largest = max(self.parts, key=lambda part: part.rms)
        odd = [part.name for part in self.parts if part.verdict.startswith("larger")]
        said = f"larger than expected: {', '.join(odd)}" if odd else "every part is expected"
        left = f"; {self.nonfinite} of {self.size} results are not finite and are left out" if self.nonfinite else ""
        return f"{second} - {first}: the largest part is {largest.name}; {said}{left}."

    def as_dict(self) -> dict[str, Any]:
        """Return all numbers and names, without the arrays, for scripts."""
        parts = {part.name: {**vars(part), "verdict": part.verdict} for part in (*self.parts, self.total)}
        for part in parts.values():
            del part["name"]
        return {"stacks": list(self.stacks), "size": self.size, "nonfinite": self.nonfinite, "parts": parts}


def compare_products(
    a: Any, b: Any, *, units: Sequence[str | Accumulate | MatrixUnit | ProductStack]
) -> ProductDifference:
    """Divide the difference of two stacks' matrix products into parts.

    The difference is the second stack's result minus the first stack's. Each stack's result is
    computed in steps: first with exact sums, then with one more property of the stack in each step.
    The change from one step to the next is the effect of a property. A part of the difference is
    the effect in the second stack minus the effect in the first. The parts add up to the
    difference:

    - **quantizer**: exact sums of each stack's operands, rounded once to float32;
    - **order**: fused sums, or float32 sums, in the stack's order, each rounded to nearest;
    - **truncation**: terms and results keep only as many bits as the unit keeps, and results have
      the unit's type;
    - **promotion**: after every `MatrixUnit.promotion` products, the sum is added to a float32
      total. If promotions also apply block scales, promotions count as part of **order**;
    - **tensor scale**: sums are multiplied in float32 by the scales of whole tensors or rows.

    Parameters
    ----------
    a, b
        Matrices of shapes (M, K) and (K, N). Each stack quantizes both matrices. If a stack's
        `quantize` is None, a and b must already be operands that the stack's unit accepts.
    units
        The two stacks. Each stack is a `ProductStack`, a matrix unit, the name of a unit, or a mode
        of `Accumulate`.

    Examples
    --------
    >>> import numpy as np, mxnum as mx
    >>> x = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float16)
    >>> found = mx.analysis.compare_products(x, x.T, units=["ampere_float16", "hopper_float16"])
    >>> [part.verdict for part in found.parts]
    ['equal', 'expected', 'expected', 'equal', 'equal']
    """
    errors.require(len(units) == 2, "units", "two stacks", len(units))
    for each in units:
        known = isinstance(each, (ProductStack, MatrixUnit, Accumulate, str))
        errors.require(known, "units", "ProductStacks, matrix units, or names of units or modes", type(each).__name__)
    stacks = [each if isinstance(each, ProductStack) else ProductStack(each) for each in units]
    first, second = (_Chain(stack, stack.operand(a, -1), stack.operand(b, -2)) for stack in stacks)
    with np.errstate(invalid="ignore"):
        values = _differences(first.steps, second.steps)
        squares = _expected_squares(first, second, values)
    finite = np.isfinite(values["total"])
    made = {name: _part(name, values[name], squares[name], first.steps[0], finite) for name in (*PARTS, "total")}
    names = (stacks[0].name, stacks[1].name)
    parts = tuple(made[name] for name in PARTS)
    return ProductDifference(names, parts, made["total"], finite.size, int((~finite).sum()), values)


class _Chain:
    """The results of a stack after each step of the computation.

    The first step computes exact sums, and each further step adds one property of the stack.
    """

    def __init__(self, stack: ProductStack, a: Any, b: Any) -> None:
        self.a, self.b = (_values(x) for x in (a, b))
        for name, x in (("a", self.a), ("b", self.b)):
            errors.require(x.ndim == 2, name, "a matrix", x.shape)
        self.unit = products.accumulation(stack.accumulate)
        self.block = a.blocks[-1] if isinstance(a, MXArray) else 1
        exact = _product(a, b, Accumulate.EXACT)
        if not isinstance(self.unit, MatrixUnit):
            self.steps, self.variants = [exact, *[_product(a, b, self.unit)] * 4], []
            return
        (x, left), (y, right) = _without_factor(a), _without_factor(b)
        self.variants = _variants(self.unit, keeps_promotion=isinstance(x, MXArray))
        sums = [_product(x, y, each) for each in self.variants]
        factor = _float64(left) * _float64(right)
        self.steps = [exact, *(each * factor for each in sums), _scaled(sums[-1], left, right, stack.tensor_scale)]

    def expected(self, i: Array, j: Array) -> list[Error]:
        """Return, for each part except "quantizer", the expected errors of the results [i, j]."""
        sums = Sums(self.a[i], self.b.T[j])
        nothing = sums.no_error()
        if not isinstance(self.unit, MatrixUnit):
            steps = {Accumulate.EXACT: self.a.shape[1], Accumulate.BLOCK: self.block}
            return [rounded_to_nearest(sums, steps.get(self.unit, 1)), nothing, nothing, nothing]
        _, plain, promoted = self.variants
        kept, moved = (truncated(sums, self.unit, each.promotion) for each in (plain, promoted))
        is_moved = plain.promotion != promoted.promotion
        promotion = Error(moved.mean - kept.mean, moved.variance + kept.variance) if is_moved else nothing
        once = rounded_to_nearest(sums, self.a.shape[1]).variance
        scaled = Error(nothing.mean, 2 * once)  # multiplying by both scales rounds twice
        return [rounded_to_nearest(sums, self.unit.terms), kept, promotion, scaled]


def _expected_squares(first: _Chain, second: _Chain, values: dict[str, Array]) -> dict[str, float]:
    """Return the expected mean squares of the parts and the total, for a sample of results.

    The differences between operands and the errors of the stacks are assumed to be independent. A
    part that is zero in all results does not count in the expected total.
    """
    results = np.argwhere(np.isfinite(values["total"]))
    if not len(results):
        return dict.fromkeys(values, 0.0)
    i, j = results[np.random.default_rng(0).integers(0, len(results), SAMPLE)].T
    of_a, of_b = (second.a - first.a)[i], (second.b - first.b).T[j]
    a, b = ((second.a + first.a) / 2)[i], ((second.b + first.b) / 2).T[j]
    variance = np.sum((of_a * b) ** 2 + (a * of_b) ** 2, axis=1)
    found = [Error(np.zeros_like(variance), variance)]
    for one, other in zip(first.expected(i, j), second.expected(i, j), strict=True):
        found.append(Error(other.mean - one.mean, one.variance + other.variance))
    there = {name: error for name, error in zip(PARTS, found, strict=True) if values[name].any()}
    mean = sum((error.mean for error in there.values()), np.zeros(SAMPLE))
    total = Error(mean, sum((error.variance for error in there.values()), np.zeros(SAMPLE)))
    return {name: there[name].square if name in there else 0.0 for name in PARTS} | {"total": total.square}


def _variants(unit: MatrixUnit, keeps_promotion: bool) -> list[MatrixUnit]:
    """Return three variants of `unit`.

    The first variant keeps the most bits possible and rounds to nearest. The second variant adds in
    the same way as `unit`, and the third is `unit` itself. If `keeps_promotion` is False, the first
    and the second variant have no promotion. Only the third variant warns about rules that no
    output of a real chip confirms.
    """
    silent = tuple(Evidence(clause, "replayed") for clause in CLAUSES)
    promotion = unit.promotion if keeps_promotion else 0  # a promotion also applies block scales
    nearest = unit.but(
        fraction_bits=unit.most_fraction_bits, accumulator="float32", result_bits=23, rounding="rne",
        promotion=promotion, evidence=silent,
    )  # fmt: skip
    return [nearest, unit.but(promotion=promotion, evidence=silent), unit]


def _product(a: Any, b: Any, accumulate: Accumulate | MatrixUnit) -> Array:
    if not isinstance(accumulate, MatrixUnit):  # other modes multiply decoded values
        a, b = (x if isinstance(x, MXArray) else _values(x) for x in (a, b))
    return np.asarray(products.matmul(a, b, accumulate=accumulate)).astype(np.float64)


def _values(x: Any) -> Array:
    """Return the values of an operand in float64."""
    return np.asarray(x.dequantize("float64") if isinstance(x, MXArray) else x).astype(np.float64)


def _as_type(x: Array, name: str) -> Array:
    """Return an array rounded to nearest even to an operand type.

    For "tf32", the array is rounded to float32.
    """
    if name in ("tf32", "float16"):
        return x.astype(np.float32 if name == "tf32" else np.float16)
    dtype = numpy_dtype(OPERANDS[name])
    if name in ML_DTYPES and OPERANDS[name].bits <= 8:
        return np.asarray(encode(x, name)).view(dtype)
    return x.astype(dtype)


def _without_factor(x: Any) -> tuple[Any, Array | None]:
    """Return an operand without the scale of its tensor or rows, and this scale in float32."""
    if not isinstance(x, MXArray):
        return x, None
    codes, scales, _ = parts_of(x)
    if x.tensor_scale is not None:
        one = MXArray.from_parts(codes, scales, x.format, tensor_scale=1.0, blocks=x.blocks)
        return one, np.atleast_2d(np.asarray(x.tensor_scale, np.float32))
    axis = int(x.blocks[0] > x.blocks[1]) if x.ndim == 2 else 0
    spans = x.format.scale.name == "float32" and max(x.blocks) >= codes.shape[1 - axis]
    if spans and scales.shape[1 - axis] == 1:
        return codes.view(numpy_dtype(x.format.element)), scales
    return x, None


def _differences(first: list[Array], second: list[Array]) -> dict[str, Array]:
    """Return the parts of the difference of two stacks, and the difference ("total")."""
    _round_to_a_grid([*first, *second])
    values = {"quantizer": second[0] - first[0]}
    for index, name in enumerate(PARTS[1:], 1):
        values[name] = (second[index] - second[index - 1]) - (first[index] - first[index - 1])
    return {**values, "total": second[-1] - first[-1]}


def _round_to_a_grid(steps: list[Array]) -> None:
    """Round the arrays in `steps`, in place, so that their differences are exact in float64.

    At each index, all arrays are rounded to multiples of one power of two. This power of two is at
    most 2**-48 v, where v is the largest magnitude of any array at the index. Float32 numbers of
    magnitude 2**-25 v or more do not change.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        largest = np.max([np.where(np.isfinite(step), abs(step), 0) for step in steps], axis=0)
        grid = np.ldexp(1.0, np.frexp(largest)[1] - 49)
        for step in {id(step): step for step in steps}.values():
            step[...] = np.rint(step / grid) * grid


def _float64(factor: Array | None) -> Array | float:
    return 1.0 if factor is None else factor.astype(np.float64)


def _scaled(sums: Array, left: Array | None, right: Array | None, place: str) -> Array:
    """Return the sums multiplied by the tensor scales in float32."""
    if left is None and right is None:
        return sums
    one: Array = np.ones((1, 1), np.float32)
    total, x, y = sums.astype(np.float32), one if left is None else left, one if right is None else right
    with np.errstate(all="ignore"):
        return np.asarray(total * (x * y) if place == "after" else total * x * y).astype(np.float64)


def _part(name: str, values: Array, square: float, exact: Array, finite: Array) -> DifferencePart:
    values, results = values[finite], exact[finite]
    if not values.size:
        return DifferencePart(name, 0.0, 0.0, 0.0, 0.0)
    size, magnitude = float(np.sqrt(np.mean(results**2))) or 1.0, float(np.mean(abs(results))) or 1.0
    return DifferencePart(
        name,
        float(np.sqrt(np.mean(values**2))) / size,
        float(np.mean(values * np.sign(results))) / magnitude,
        float(abs(values).max()) / size,
        square**0.5 / size,
    )
