"""Tests of the check of matrix units: right answers, mistakes that reports name, and vectors."""

from __future__ import annotations

import io
import re
import warnings
from functools import cache

import ml_dtypes
import numpy as np
import pytest

import mxnum as mx
from mxnum.conformance import ConformanceError, check, make_task, verify, write_vectors
from mxnum.conformance.bits import as_bits, as_floats
from mxnum.conformance.calling import Implementation
from mxnum.conformance.cases.batches import cases
from mxnum.conformance.hypotheses.units import right_bits, unit_mistakes
from mxnum.conformance.judging.collector import Collector
from mxnum.conformance.shrink import smallest_failure
from mxnum.conformance.task import ArrayFormat, number_of, select
from mxnum.definition.fused_by_numpy import fma
from mxnum.memory.dtypes import numpy_dtype
from mxnum.reference import Blocked
from mxnum.reference.matrix_units import unit_dot
from mxnum.units import MatrixUnit, get
from mxnum.units.unit import EvidenceWarning

TASKS = [
    ("mma", "e4m3", "hopper_fp8"), ("mma", "e5m2", "hopper_fp8_mma_acc16"), ("mma", "float16", "volta_float16_acc16"),
    ("dot", "bfloat16", "hopper_bfloat16"), ("dot", "e4m3", "blackwell_fp8_mma"),
    ("mma", "mxfp8_e4m3", "blackwell_mxfp8"), ("dot", "nvfp4", "blackwell_nvfp4"),
    ("dot", "e4m3:block=128,scale=float32", "hopper_fp8_promoted"),
    pytest.param("mma", "tf32", "ampere_tf32", marks=pytest.mark.full),
    pytest.param("dot", "e4m3", "hopper_fp8_promoted", marks=pytest.mark.full),
]  # fmt: skip
EQUAL = ("products in reverse order", "(mod 4) first")


@pytest.fixture(autouse=True)
def without_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvidenceWarning)
        yield


@cache
def level_1(task):
    batches = list(cases(task))
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def report_of(task, answers):
    """Return the report on the answers that `answers(task, inputs)` gives."""
    collector = Collector(task)
    inputs = level_1(task)
    collector.add(inputs, {"value": answers(task, inputs)})
    return collector.report()


def by_reference(task, row):
    """Return the answer to one case by the reference, which shares no code with the definition."""
    sides = []
    for side in ("a", "b"):
        if isinstance(task.format, ArrayFormat):
            sides.append(row[side].view(numpy_dtype(task.element))[0])
        else:
            scales = row[f"{side}_scale"][0]
            scales = scales.view(np.float32) if scales.itemsize == 4 else scales
            sides.append(Blocked(row[side][0], scales, task.format.notation, task.block))
    k = task.k if task.operation.name == "mma" else None
    return unit_dot(*sides, task.unit, as_floats(row["c"], task.source)[0, 0], k)


@cache
def given(operation, fmt, unit):
    """Return the task of a row of `TASKS`, its cases and the right answers.

    The results are cached, so callers must not change them.
    """
    # A row needs at least two scaled blocks, so that a promotion adds to the result of another
    # promotion.
    task = make_task(operation, fmt, accumulate=unit, **({"k": 256} if "block=128" in fmt else {}))
    return task, level_1(task), right_bits(task, level_1(task))


@pytest.mark.parametrize(("operation", "fmt", "unit"), TASKS)
def test_right_answers_are_those_of_the_reference(operation, fmt, unit):
    task, inputs, right = given(operation, fmt, unit)
    count, size = number_of(inputs), 30 if task.unit.promotion else 60
    rng = np.random.default_rng(0)
    for index in {*rng.integers(0, count, size).tolist(), *rng.integers(2048, count, size).tolist()}:
        assert right[index, 0] == by_reference(task, select(inputs, [index])), index


@pytest.mark.parametrize(("operation", "fmt", "unit"), TASKS)
def test_every_mistake_changes_an_answer(operation, fmt, unit):
    task, inputs, right = given(operation, fmt, unit)
    # A few cases suffice to show most mistakes. All cases are computed only for mistakes that these
    # few do not show.
    parts = [(select(inputs, slice(None, None, step)), right[::step]) for step in (192, 16, 1)]
    same = [name for name, answer in unit_mistakes(task) if all(np.array_equal(answer(task, x), y) for x, y in parts)]
    allowed = EQUAL if not task.unit.order and task.unit.terms == task.unit.k[-1] else ()
    # blackwell_fp8_mma adds the addend after each instruction of 32 products, so promoting the sum
    # every 32 products changes nothing.
    allowed += ("promotes its sum every 32",) if unit == "blackwell_fp8_mma" else ()
    # In blackwell_nvfp4, a product of zero still has the exponents of its scales. Alignment to
    # these exponents removes the bits of a subnormal result, so no case has a subnormal result.
    allowed += ("flushing subnormal results",) if unit == "blackwell_nvfp4" else ()
    is_far = task.source.bits == 16 or task.unit.promotion or task.unit.addend == "after" or task.unit.group > 1
    # The exponent of a zero has no effect if all addends in a sum are far larger.
    allowed += ("a unit whose zero operands",) if is_far else ()
    allowed += ("the scales of the first block",) if task.k == task.block else ()
    assert [name for name in same if not any(part in name for part in allowed)] == []


@pytest.mark.parametrize(
    ("operation", "fmt", "unit", "wrong", "named"),
    [
        ("mma", "e4m3", "hopper_fp8", {"fraction_bits": 12}, "keeps 12 fraction bits where 'hopper_fp8' keeps 13"),
        ("mma", "e4m3", "hopper_fp8", {"result_bits": 23}, "truncates results to 23 fraction bits"),
        ("mma", "e4m3", "hopper_fp8", {"addend": "after"}, "adds the addend after the sum"),
        ("mma", "e4m3", "hopper_fp8", "ada_fp8", "the unit 'ada_fp8'"),
        ("mma", "e5m2", "blackwell_fp8_mma", "blackwell_fp8", "the unit 'blackwell_fp8'"),
        ("mma", "e4m3", "hopper_fp8_mma_acc16", {"order": ()}, "takes products in index order"),
        ("mma", "float16", "hopper_float16", "ampere_float16", "the unit 'ampere_float16'"),
        ("mma", "float16", "volta_float16_acc16", {"rounding": "rtz"}, "truncates results to 10 fraction bits"),
        ("mma", "e5m2", "hopper_fp8", {"zero_exponent": -133}, "zero operands have the exponent -133"),
        ("mma", "float16", "volta_float16", {"rounding": "rne"}, "rounds results to nearest where"),
        ("mma", "mxfp8_e4m3", "blackwell_mxfp8", {"terms": 16}, "adds 16 products at once where 'blackwell_mxfp8'"),
        *(
            pytest.param(*case, marks=pytest.mark.full)
            for case in (
                ("mma", "e4m3", "hopper_fp8", {"fraction_bits": 25}, "keeps 25 fraction bits where 'hopper_fp8' keeps"),
                ("dot", "e4m3", "hopper_fp8_promoted", "hopper_fp8", "the unit 'hopper_fp8'"),
                ("dot", "e4m3", "hopper_fp8_promoted", {"promotion": 64}, "promotes its sum every 64 products where"),
                ("dot", "bfloat16", "hopper_bfloat16", {"terms": 8, "fraction_bits": 24}, "the unit 'ampere_bfloat16'"),
                ("dot", "nvfp4", "blackwell_nvfp4", {"fraction_bits": 34}, "keeps 34 fraction bits where"),
            )
        ),
    ],
)  # fmt: skip
def test_a_wrong_unit_is_named(operation, fmt, unit, wrong, named):
    task = make_task(operation, fmt, accumulate=unit)
    rules = wrong if "zero_exponent" in wrong else {}
    other = get(wrong) if isinstance(wrong, str) else task.unit if rules else task.unit.but(**wrong)
    report = report_of(task, lambda task, inputs: right_bits(task, inputs, other, **rules))
    assert report.bugs > 0
    (explanation,) = report.explanations
    assert named in explanation.names[0]
    assert report.unexplained == 0
    assert explanation.wrong + explanation.right == report.cases


@cache
def partial_sums(a, b, count):
    """Return, for each of `count` rows of 256 E4M3 codes, the two sums of 128 products."""
    a, b = (np.frombuffer(x, ml_dtypes.float8_e4m3fn).reshape(count, 2, 128) for x in (a, b))
    return mx.matmul(a[:, :, None], b[..., None], accumulate="hopper_fp8")[..., 0, 0]


@pytest.mark.parametrize(
    ("promote", "named"),
    [
        (lambda x, y, s, t: x * y * s + t, "x y s + t without FMA"),
        pytest.param(lambda x, y, s, t: s * x * y + t, "s x y + t without FMA", marks=pytest.mark.full),
        pytest.param(lambda x, y, s, t: fma(s * x, y, t), "fma(s x, y, t)", marks=pytest.mark.full),
        (lambda x, y, s, t: fma(x * y, s, t), None),
    ],
)
def test_another_order_of_a_promotion_is_named(promote, named):
    def kernel(a, a_scale, b, b_scale, c):
        sums = partial_sums(a.tobytes(), b.tobytes(), len(a))
        with np.errstate(all="ignore"):
            for x, y, s in zip(a_scale.T, b_scale.T, sums.T, strict=True):
                c = promote(x, y, s, c)
        return c

    asked = {"operation": "dot", "accumulate": "hopper_fp8_promoted", "k": 256, "shrink": False}
    if named is None:
        assert check(kernel, format="e4m3:block=128,scale=float32", accept="nan_code", **asked).bugs == 0
        return
    with pytest.raises(ConformanceError) as caught:
        check(kernel, format="e4m3:block=128,scale=float32", **asked)
    (explanation,) = caught.value.report.explanations
    assert explanation.names == (f"a promotion that computes {named} (s: partial sum, x and y: scales)",)
    assert explanation.classes == ()


@pytest.mark.parametrize(("operation", "fmt", "unit"), TASKS)
def test_level_1_has_every_kind_of_result(operation, fmt, unit):
    task, _, right = given(operation, fmt, unit)
    values = as_floats(right, task.source)[:, 0]
    assert np.isnan(values).any()
    assert (values == np.inf).any()
    assert (values == -np.inf).any()
    assert 0 < (values == 0).mean() < 0.2
    assert np.isfinite(values).mean() > 0.55
    small = (values != 0) & (abs(values) < float(np.finfo(values.dtype).smallest_normal))
    assert small.any() or unit == "blackwell_nvfp4"  # no result of blackwell_nvfp4 is subnormal


def test_a_rule_outside_the_family_is_not_named():
    task = make_task("mma", "e4m3", accumulate="hopper_fp8")

    def two_rules(task, inputs):
        """Keep 12 fraction bits if the addend is negative, and 14 fraction bits otherwise."""
        negative = inputs["c"] >> 31 == 1
        bits = [right_bits(task, inputs, task.unit.but(fraction_bits=kept)) for kept in (12, 14)]
        return np.where(negative, *bits)

    report = report_of(task, two_rules)
    assert report.bugs > 100
    assert all(explanation.classes for explanation in report.explanations)


def test_check_calls_functions_with_arrays_of_the_operands_type():
    seen = []

    def kernel(a, b, c):
        seen.append((a.dtype, a.shape[1:], b.dtype, c.dtype, c.ndim))
        return mx.mma(a[:, None], b[..., None], c[:, None, None], "blackwell_fp8")[:, 0, 0]

    report = check(kernel, format="e4m3", operation="mma", accumulate="Blackwell FP8")
    assert report.is_equal
    assert set(seen) == {(np.dtype(ml_dtypes.float8_e4m3fn), (32,), seen[0][0], np.dtype(np.float32), 1)}
    lines = report.text().splitlines()
    assert lines[0].startswith("mma, e4m3, unit 'blackwell_fp8', K = 32: ")
    assert lines[1].startswith("No outputs of a GPU confirm these clauses of unit 'blackwell_fp8': products published")


def test_check_of_scaled_operands_with_their_addend():
    def kernel(a, a_scale, b, b_scale, c):
        x, y = (mx.MXArray.from_parts(p[:, None], s[:, None], "mxfp8_e4m3") for p, s in ((a, a_scale), (b, b_scale)))
        return mx.mma(x, y.transpose(0, 2, 1), c[:, None, None], "blackwell_mxfp8")[:, 0, 0]

    assert check(kernel, format="mxfp8_e4m3", operation="mma", accumulate="blackwell_mxfp8").is_equal


@pytest.mark.parametrize(
    ("fmt", "unit", "dtype"),
    [
        ("e4m3", "hopper_fp8", "float8_e4m3fn"),
        ("bfloat16", "hopper_bfloat16", "bfloat16"),
        ("e2m1", "blackwell_fp8", "uint8"),
    ],
)
def test_tensors(fmt, unit, dtype):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    task = make_task("mma", fmt, accumulate=unit)

    def kernel(a, b, c):
        assert a.dtype == b.dtype == getattr(torch, dtype)
        codes = [x.contiguous().view(torch.uint8).numpy() for x in (a, b)]
        columns = {"a": codes[0], "b": codes[1], "c": c.numpy().view(np.uint32)[:, None]}
        if task.element.bits == 16:
            columns |= {name: columns[name].view(np.uint16) for name in ("a", "b")}
        return torch.from_numpy(right_bits(task, columns)[:, 0].view(np.float32))

    assert check(kernel, format=fmt, operation="mma", accumulate=unit, arrays="torch").is_equal


def test_a_failure_is_shrunk_to_few_products():
    def without_addend(a, b, c):
        return mx.mma(a[:, None], b[..., None], None, "ampere_tf32")[:, 0, 0]

    with pytest.raises(ConformanceError, match="what a unit that ignores the addend gives") as caught:
        check(without_addend, format="tf32", operation="mma", accumulate="ampere_tf32")
    smallest = caught.value.smallest.inputs
    assert np.count_nonzero(smallest["a"]) <= 1
    assert smallest["c"][0, 0] != 0


def test_failing_case_shrinks_to_few_nonzero_codes():
    task = make_task("mma", "e4m3", accumulate="hopper_fp8")
    other = get("ada_fp8")

    def kernel(a, b, c):
        columns = {"a": as_bits(a, task.element), "b": as_bits(b, task.element), "c": c.view(np.uint32)[:, None]}
        return right_bits(task, columns, other).view(np.float32)[:, 0]

    with pytest.raises(ConformanceError, match="what the unit 'ada_fp8' gives") as caught:
        check(kernel, format="e4m3", operation="mma", accumulate="hopper_fp8", shrink=False)
    report = caught.value.report
    first, smallest = next(iter(report.failures)), smallest_failure(Implementation(kernel), report, examples=100)
    counts = [np.count_nonzero(case.inputs["a"] & 0x7F) for case in (first, smallest)]
    assert counts[1] <= 6
    assert counts[1] < counts[0]


def test_distances_are_in_last_places_of_the_result():
    task = make_task("mma", "e4m3", accumulate="hopper_fp8")

    def three_steps_up(task, inputs):
        """Add 3 units of fraction bit 13 to positive numbers, and -1 unit to negative numbers."""
        bits = right_bits(task, inputs)
        magnitude = bits & 0x7FFFFFFF
        ordinary = (magnitude > 1 << 23) & (magnitude < 0x7F000000)
        return np.where(ordinary, bits + np.where(bits >> 31, 1 << 10, 3 << 10).astype(np.uint32), bits)

    report = report_of(task, three_steps_up)
    found = report.distances
    positive = as_floats(right_bits(task, level_1(task)), task.source)[:, 0] > 0
    assert found.count == report.bugs
    assert found.nearer == 0
    assert found.farther == report.bugs
    assert found.largest == 3
    assert found.median == (3 if positive.sum() * 2 > report.bugs else -1)
    assert "largest +3 (case " in report.text()
    assert report.as_dict()["distances"] == {
        "largest": 3.0, "median": found.median,
        "count": report.bugs, "nearer zero": 0, "farther from zero": report.bugs,
    }  # fmt: skip


def test_truncation_is_seen_as_a_distance_toward_zero():
    task = make_task("mma", "float16", accumulate="hopper_float16")
    report = report_of(task, lambda task, inputs: right_bits(task, inputs, task.unit.but(result_bits=15)))
    assert report.distances.nearer == report.bugs
    assert report.distances.farther == 0
    assert abs(report.distances.largest) < 1 << 8


MINE = MatrixUnit(
    "mine", ("e4m3", "e2m1"), k=(8, 16), terms=8, fraction_bits=20, rounding="rne", promotion=32, order=(),
)  # fmt: skip


@pytest.mark.parametrize(("fmt", "unit"), [("e5m2", "hopper_fp8"), ("e2m1", MINE), ("nvfp4", "blackwell_nvfp4")])
def test_vectors_hold_the_unit_and_the_addend(fmt, unit):
    task = make_task("dot", fmt, accumulate=unit)
    file = io.BytesIO()
    assert write_vectors(task, file, level=2, count=50) == 50
    text = file.getvalue().decode()
    assert re.search(r"^# inputs: .*\bc\[1\]$", text, re.M)
    assert re.search(f"^# k: {task.k}$", text, re.M)
    report = verify(io.BytesIO(file.getvalue()))
    assert report.is_equal
    assert report.task.unit == (get(unit) if isinstance(unit, str) else unit)
    said = report.as_dict()
    assert unit in said["accumulate"] if isinstance(unit, str) else '"promotion": 32' in said["accumulate"]


def test_wrong_vectors_are_explained():
    task = make_task("mma", "e4m3", accumulate="hopper_fp8")
    file = io.BytesIO()
    write_vectors(task, file)
    head = [line for line in file.getvalue().splitlines(keepends=True) if line.startswith(b"#")]
    inputs = level_1(task)
    from mxnum.conformance.vectors import format_lines

    answers = {**inputs, "value": right_bits(task, inputs, get("blackwell_fp8"))}
    report = verify(io.BytesIO(b"".join(head) + format_lines((*task.inputs, *task.outputs), answers)))
    assert "All " in report.text()
    assert "what the unit 'blackwell_fp8' gives" in report.text()


def test_a_row_of_operands_may_be_one_number():
    task = make_task("mma", "e2m1", accumulate="blackwell_fp8")
    file = io.BytesIO()
    write_vectors(task, file, level=2, count=3, answers=False)
    lines = file.getvalue().decode().splitlines()
    joined = ["".join(line.split()[31::-1]) + " " + "".join(line.split()[63:31:-1]) + " " + line.split()[64]
              for line in lines if not line.startswith("#")]  # fmt: skip
    head = [line for line in lines if line.startswith("#")]
    inputs = level_2(task, 3)
    answers = right_bits(task, inputs)[:, 0]
    text = "\n".join([*head, *(f"{line} {value:08X}" for line, value in zip(joined, answers, strict=True))]) + "\n"
    assert verify(io.BytesIO(text.encode())).is_equal


def level_2(task, count):
    (batch,) = cases(task, level=2, count=count)
    return batch


@pytest.mark.parametrize(
    ("operation", "fmt", "modes", "message"),
    [
        ("mma", "e4m3", {}, "'accumulate' must be a matrix unit or its name"),
        ("mma", "e4m3", {"accumulate": "exact"}, "'accumulate' must be a matrix unit or its name"),
        ("mma", "e4m3", {"accumulate": "hoper_fp8"}, "did you mean 'hopper_fp8'"),
        ("mma", "mxfp4_e2m1", {"accumulate": "hopper_fp8"},
         "'format' must be the format of an array of e4m3 or e5m2 for unit 'hopper_fp8', not 'mxfp4_e2m1'"),
        ("dot", "float16", {"accumulate": "hopper_fp8_promoted"},
         "or an MX array of e4m3 or e5m2 elements with float32 scales in blocks of 128 for unit 'hopper_fp8_promoted', "
         "not 'float16'"),
        ("mma", "nvfp4", {"accumulate": "blackwell_mxfp8"}, "with e8m0 scales in blocks of 32 for unit"),
        ("mma", "e4m3", {"accumulate": "hopper_fp8", "k": 16}, "'k' must be 32 for one instruction of 'hopper_fp8'"),
        ("dot", "mxfp8_e4m3", {"accumulate": "blackwell_mxfp8", "k": 40}, "'k' must be a multiple of 32"),
        ("dot", "e4m3", {"accumulate": "hopper_fp8", "dot_blocks": 2}, "for 'dot'; a matrix unit takes k"),
        ("dot", "mxfp8_e4m3", {"k": 64}, "'k' must be left out for 'dot'; it is for mma"),
        ("mma", "e4m3", {"accumulate": '{"name": "x"}'}, "'unit' must have the fields name, operands, k, terms"),
        ("mma", "e4m3", {"accumulate": "{x"}, "'unit' must be a JSON object"),
    ],
)  # fmt: skip
def test_bad_arguments_raise_and_say_what_a_unit_takes(operation, fmt, modes, message):
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        make_task(operation, fmt, **modes)
    assert str(caught.value).count(". ") == 0
