"""Tests of conformance checks with float scales: cases, right answers and verdicts."""

from __future__ import annotations

import io
from dataclasses import replace
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import mxnum as mx
from mxnum import formats, reference, stacks
from mxnum.conformance import ConformanceError, check, explain, make_task, verify, write_vectors
from mxnum.conformance.bits import Generator, as_floats
from mxnum.conformance.calling import Implementation
from mxnum.conformance.cases.batches import cases
from mxnum.conformance.cases.float_scales import joined
from mxnum.conformance.explain import explain_block, explain_element, explain_scale
from mxnum.conformance.hypotheses import hypotheses
from mxnum.conformance.hypotheses.float_scales import answer_of_stack, applicable_stacks
from mxnum.conformance.judging.collector import Collector
from mxnum.conformance.judging.judge import BUG, judge
from mxnum.conformance.judging.right import expected, scaled, tensor_scales, unsigned
from mxnum.conformance.operations import OPERATIONS, task_of
from mxnum.definition import by_numpy
from mxnum.memory.dtypes import scale_dtype
from mxnum.modes import FloatScaleRule
from tests.conformance import nvfp4_kernels as kernels
from tests.conformance.test_task import deciding

WIDE = "e4m3:block=128,scale=float32"
TASKS = (
    ("nvfp4", {}),
    ("nvfp4", {"source": "bfloat16", "rounding": "sr", "sr_bits": 7, "scale_rule": "rceil"}),
    ("nvfp4", {"source": "float64", "rounding": "rtp", "nonfinite": "element"}),
    ("nvfp4", {"scale_rule": "four_over_six_squared", "block": 8}),
    (WIDE, {"overflow": "ieee", "block": 5}),
    ("e2m1:block=16,scale=e4m3", {"source": "float16"}),
    ("int4:block=6,scale=float16", {"rounding": "rna"}),
    ("e3m2:block=4,scale=ue5m3,tensor_scale=float32", {"rounding": "rto"}),
)


def some(task, count):
    """Return random cases of level 1, followed by the first cases of level 2."""
    whole = next(cases(task))
    rows = Generator(0).integers(0, len(next(iter(whole.values()))) - 1, count)
    more = next(cases(task, level=2, count=count))
    return {name: np.concatenate([whole[name][rows], more[name]]) for name in whole}


@pytest.mark.parametrize(("fmt", "modes"), TASKS)
def test_answers_are_those_of_the_reference(fmt, modes):
    task = make_task("quantize", fmt, **modes)
    inputs = some(task, 40)
    got = expected(task, inputs)
    of_scale = {name: column for name, column in inputs.items() if name != "random"}
    assert np.array_equal(expected(replace(task, operation=OPERATIONS["scale"]), of_scale)["scale"], got["scale"])
    tensors = tensor_scales(inputs)
    for i, x in enumerate(as_floats(inputs["x"], task.source)):
        want = reference.quantize(
            x, task.format, rounding=task.rounding, scale_rule=task.scale_rule, overflow=task.overflow,
            nonfinite=task.nonfinite, random_bits=inputs["random"][i] if task.is_stochastic else None,
            sr_bits=task.sr_bits, tensor_scale=None if tensors is None else tensors[i],
        )  # fmt: skip
        assert got["scale"][i].tolist() == unsigned(want.scales).tolist()
        known = ~np.isnan(x)  # converting a NaN to Python may lose its sign
        assert got["codes"][i][known].tolist() == want.codes[known].tolist()
    if task.has_tensor:
        for i in range(0, len(tensors), 7):
            largest = as_floats(inputs["largest"][i], task.source)
            whole = reference.quantize(np.append(largest, as_floats(inputs["x"][i], task.source)), task.format)
            # A case has one block, and the largest number of the tensor that the block belongs to.
            assert whole.tensor_scale == tensors[i]


@pytest.mark.parametrize("fmt", ["nvfp4", WIDE, "e5m2:scale=float16,tensor_scale=float32"])
@pytest.mark.parametrize("target", ["float32", "bfloat16"])
def test_values_are_those_of_the_reference(fmt, target):
    task = make_task("dequantize", fmt, source=target)
    inputs = some(task, 150)
    got, tensors = expected(task, inputs)["value"], tensor_scales(inputs)
    for i, code in enumerate(inputs["code"]):
        scales = inputs["scale"][i].astype(f"u{task.format.scale.bits // 8}").view(scale_dtype(task.format.scale))
        tensor = None if tensors is None else tensors[i]
        want = reference.dequantize(code, scales, task.format, dtype=target, tensor_scale=tensor)
        assert got[i].tolist() == unsigned(want).tolist()


@pytest.mark.parametrize(("fmt", "modes"), TASKS)
def test_the_header_states_the_task(fmt, modes):
    for operation in ("quantize", "scale", "dequantize", "encode"):
        task = make_task(operation, fmt, **deciding(operation, **modes))
        again = task_of(task.header())
        assert (again.header(), again.inputs, again.outputs) == (task.header(), task.inputs, task.outputs)


def test_fields():
    task = make_task("quantize", "nvfp4", source="bfloat16")
    assert [(f.name, f.bits, f.count) for f in task.inputs] == [
        ("x", 16, 16),
        ("largest", 16, 1),
        ("tensor_scale", 32, 1),
    ]
    assert [(f.name, f.bits, f.digits) for f in task.outputs] == [("scale", 7, 2), ("codes", 4, 1)]
    assert make_task("scale", WIDE).outputs[0].digits == 8


@pytest.mark.parametrize("fmt", ["nvfp4", "mxfp4_e2m1", WIDE])
def test_rounded_quotients_compare_like_exact_ones(fmt):
    """Check that rounding never moves a quotient across a value or midpoint, or onto one."""
    task = make_task("quantize", fmt, source="float64")
    scales = {"nvfp4": 0x2D, "mxfp4_e2m1": 130, WIDE: 0x3FAAAAAB}[fmt]
    t = np.float32(1 / 3)
    factor = Fraction(formats.get(fmt).scale.value(scales)) * (Fraction(float(t)) if fmt == "nvfp4" else 1)
    points = [Fraction(p) for p in (0.25, 0.75, 1.0, 1.25, 5.0, 6.0)]
    x = np.array([float(p * factor) for p in points for _ in range(3)])
    x[0::3], x[2::3] = np.nextafter(x[0::3], 0), np.nextafter(x[2::3], np.inf)
    tensor = np.full((len(x), 1), t) if fmt == "nvfp4" else None
    y = scaled(task, unsigned(x.reshape(-1, 1)), np.full((len(x), 1), scales), tensor)[:, 0]
    for stand_in, number in zip(y, x, strict=True):
        for p in points:
            exact = Fraction(number) / factor
            assert (stand_in > p, stand_in < p) == (exact > p, exact < p)


# Kernels that compute NVFP4 as other software does (torchao, vLLM, ...)


@pytest.mark.parametrize("name", kernels.STACKS)
def test_the_arithmetic_of_a_stack_is_recognized(name):
    with pytest.raises(ConformanceError) as caught:
        check(kernels.STACKS[name], format="nvfp4", shrink=name == "torchao")
    report, text = caught.value.report, str(caught.value)
    assert not report.conforms
    assert report.stacks == (name,)
    assert f"All answers, right or wrong, are what {name} computes (see mxnum.stacks)." in text
    assert {e.field for e in report.explanations} == {"scale", "codes"}
    for explanation in report.explanations:
        assert f"{name}'s arithmetic" in explanation.names
    assert report.as_dict()["stacks"] == [name]
    assert sum(bugs for _, bugs in report.classes.values()) == report.bugs
    if name == "torchao":
        smallest = caught.value.smallest
        assert f"Smallest failing input found: {smallest.body(report.task)}" in text
        found = judge(
            report.task, smallest.inputs, Implementation(kernels.torchao).answers(report.task, smallest.inputs)
        )
        assert found.verdicts[0] & BUG


def test_stack_with_a_mistake_is_not_recognized():
    def kernel(x):
        codes, scales = kernels.torchao(x)
        codes[(codes == 5) & (x > 1)] = 4
        return codes, scales

    with pytest.raises(ConformanceError) as caught:
        check(kernel, format="nvfp4", shrink=False)
    report = caught.value.report
    assert report.stacks == ()
    # Only the codes are wrong; the scales are right.
    assert [e.field for e in report.explanations] == ["scale"]
    assert "torchao's arithmetic" in report.explanations[0].names


@pytest.mark.parametrize("source", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", stacks.STACKS)
def test_hypotheses_are_what_stacks_compute(name, source):
    """Check that the hypothesis about each stack gives the same bits as `mxnum.stacks.quantize`."""
    stack, task = stacks.STACKS[name], make_task("quantize", "nvfp4", source=source)
    dtype = ml_dtypes.bfloat16 if source == "bfloat16" else np.float32
    draw = np.random.default_rng(5)
    for size in (1.0, 3e-30, 1e37):
        sizes = np.exp2(draw.uniform(-20, 0, (200, 1)))
        x = (draw.standard_normal((200, 16)) * sizes * size / 6).astype(dtype)
        x[7] = 0
        made = stacks.quantize(x, stack)
        largest = np.full((200, 1), abs(x).max(), dtype)
        inputs = {"x": unsigned(x), "largest": unsigned(largest), "scale": made.scales.reshape(-1, 1)}
        for field, want in (("scale", made.scales.reshape(-1, 1)), ("codes", made.codes)):
            got = answer_of_stack(stack, field)(task, {**inputs, "answered": np.full_like(want, 99)})
            assert np.array_equal(got, want)
        of_value = make_task("dequantize", "nvfp4")
        pairs = {
            "code": made.codes[:, :1], "scale": made.scales.reshape(-1, 1),
            "largest": unsigned(largest.astype(np.float32)),
        }  # fmt: skip
        if source == "float32":
            got = answer_of_stack(stack, "value")(of_value, pairs)
            want = stacks.dequantize(made, stack)[:, :1]
            known = ~np.isnan(want)
            assert np.array_equal(got[known], unsigned(want)[known])


def test_applicable_stacks_of_each_task():
    def names(*arguments, **modes):
        return [stack.name for stack in applicable_stacks(make_task(*arguments, **modes))]

    assert names("quantize", "nvfp4") == list(stacks.STACKS)
    assert names("scale", "e2m1:block=16,scale=e4m3") == ["torchao_single"]
    for other in ({"rounding": "rtz"}, {"source": "float64"}, {"overflow": "ieee"}):
        assert names("quantize", "nvfp4", **other) == []
    # torchao does not quantize float16 tensors, but can dequantize to float16.
    without = [name for name in stacks.STACKS if not name.startswith("torchao")]
    assert names("quantize", "nvfp4", source="float16") == names("scale", "nvfp4", source="float16") == without
    assert names("dequantize", "nvfp4", source="float16") == list(stacks.STACKS)
    assert names("encode", "nvfp4") == names("quantize", "mxfp4_e2m1") == names("quantize", WIDE) == []


# Kernels with mistakes


@pytest.mark.parametrize("kernel", kernels.MISTAKES)
def test_planted_mistakes_are_named(kernel):
    field, name = kernels.MISTAKES[kernel]
    with pytest.raises(ConformanceError) as caught:
        check(kernel, format="nvfp4", shrink=False)
    report = caught.value.report
    (explanation,) = [e for e in report.explanations if e.field == field]
    assert name in explanation.names
    assert explanation.wrong > 10
    assert report.stacks == ()


def test_the_exact_definition_conforms():
    """Check that the engine's compiled loops conform to the definition."""

    def engine(x, tensor_scale):
        q = mx.quantize(x, "nvfp4", tensor_scale=tensor_scale)
        assert q.tensor_scale == mx.quantize(x, "nvfp4").tensor_scale
        return q.codes, q.scales

    assert check(engine, format="nvfp4", strict=True).is_equal

    def wide(x):
        q = mx.quantize(x, WIDE)
        return q.codes, q.scales

    assert check(wide, format=WIDE, strict=True).is_equal
    random = check(wide, format=WIDE, level=2, count=100)
    assert (random.cases, random.is_equal) == (100, True)


def test_quotients_rounded_twice():
    """Check that the report names a division in float32, although only some answers are wrong."""

    def kernel(x):
        m = np.where(np.isfinite(x).all(axis=1), abs(x).max(axis=1), np.float32(np.nan))
        scales = m / np.float32(448)
        over = x / scales[:, None]
        codes = np.clip(np.where(scales[:, None] == 0, x * np.float32(0), over), -448, 448)
        codes = codes.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
        return np.where(np.isnan(scales)[:, None], np.uint8(0), codes), scales

    with pytest.raises(ConformanceError) as caught:
        check(kernel, format=WIDE, shrink=False)
    report = caught.value.report
    assert [e.field for e in report.explanations] == ["codes"]
    assert "x / (s t) in float32 (x: number, s: scale, t: tensor scale)" in report.explanations[0].names
    assert 0 < report.explanations[0].wrong < report.cases


def test_quotients_rounded_twice_are_found_beside_divisions_by_zero():
    """Check that the report explains a mistake even if a few blocks show a second mistake."""

    def kernel(x):
        with np.errstate(all="ignore"):
            scales = abs(x).max(axis=1) / np.float32(448)
            return (x / scales[:, None]).astype(ml_dtypes.float8_e4m3fn), scales

    with pytest.raises(ConformanceError) as caught:
        check(kernel, format=WIDE, shrink=False)
    explanation = next(e for e in caught.value.report.explanations if e.field == "codes")
    assert "x / (s t) in float32 (x: number, s: scale, t: tensor scale)" in explanation.names
    assert {"ordinary", "maximum beyond the largest"} <= set(explanation.classes)
    assert "scale zero" not in explanation.classes


@pytest.mark.parametrize("operation", ["quantize", "scale", "dequantize"])
@pytest.mark.parametrize("fmt", ["nvfp4", WIDE])
def test_each_hypothesis_differs_somewhere_and_fits(fmt, operation):
    """Check that each hypothesis gives answers of the right shape, and that some are wrong.

    The hypotheses listed at the end of the test may give only right answers in these cases.
    """
    task = make_task(operation, fmt)
    inputs = joined(list(cases(task)))
    want = expected(task, inputs)
    same = []
    for one in hypotheses(task):
        given = {**inputs, **({"scale": want["scale"]} if one.field == "codes" else {}), "answered": want[one.field]}
        got = one.answer(task, given)
        assert got.shape == want[one.field].shape
        if np.array_equal(got, want[one.field]) and not one.name.startswith("the right codes in the lowest"):
            same.append(one.name)
    assert {name.split(" (m: ")[0] for name in same} <= {
        "m / L / t in float32",
        "m / (L t) in float32",
        "m / L in float32",
    }


# Answers of kernels


def test_scales_may_be_answered_in_several_types():
    task = make_task("scale", "nvfp4")
    inputs = {name: column[:4] for name, column in next(cases(task)).items()}

    def scales(answer_of_stack, fmt=None):
        return Implementation(lambda x: answer_of_stack(len(x))).answers(fmt or task, inputs)["scale"][:, 0].tolist()

    assert scales(lambda n: np.full(n, 0x38)) == [0x38] * 4
    assert scales(lambda n: np.full(n, 1.5, ml_dtypes.float8_e4m3fn)) == [0x3C] * 4
    # A NaN scale has no sign, so both NaN codes are the same.
    assert scales(lambda n: np.full(n, -np.nan, ml_dtypes.float8_e4m3fn)) == [0x7F] * 4
    assert scales(lambda n: np.full(n, 0xFF, np.uint8)) == [0x7F] * 4
    # A scale with a sign bit is wrong, so reading the answer must not drop the bit.
    assert scales(lambda n: np.full(n, 0xB8, np.uint8)) == [0xB8] * 4
    wide = make_task("scale", "e2m1:block=16,scale=float32")
    assert scales(lambda n: np.full(n, 1.5, np.float32), wide) == [0x3FC00000] * 4
    with pytest.raises(TypeError, match="an array of integers or float32, not 'float64'"):
        scales(lambda n: np.full(n, 1.5), wide)
    with pytest.raises(TypeError, match="an array of integers or float8_e4m3fn, not 'float32'"):
        scales(lambda n: np.full(n, 1.5, np.float32))


def test_a_function_is_called_once_for_each_tensor_and_told_of_it_by_name():
    task = make_task("quantize", "nvfp4")
    inputs = next(cases(task))
    seen = []

    def kernel(x, largest, tensor_scale):
        assert type(largest) is type(tensor_scale) is np.float32
        # `largest` and `tensor_scale` belong to the tensor x.
        assert np.where(np.isfinite(x), abs(x), 0).max() == largest
        assert kernels.tensor_scale_of(x) == tensor_scale
        assert len(x) == 2 or np.isfinite(x).all()
        seen.append(len(x) - 1)
        return kernels.exact(x)

    got, want = Implementation(kernel).answers(task, inputs), expected(task, inputs)
    assert sum(seen) == len(inputs["x"])
    assert all(np.array_equal(got[name], want[name]) for name in want)
    values = make_task("dequantize", "nvfp4")

    def decode(codes, scales, tensor_scale):
        numbers = scales.view(ml_dtypes.float8_e4m3fn).astype(np.float64) * float(tensor_scale)
        found = (np.array(task.element.values())[codes] * numbers).astype(np.float32)
        return np.where(np.isnan(found), np.float32(np.nan), found)

    assert check(decode, format="nvfp4", operation="dequantize").is_equal
    with pytest.raises(ValueError, match="'function' must have a parameter called largest or tensor_scale"):
        Implementation(lambda codes, scales: codes).answers(values, next(cases(values)))


def test_tensors_of_torch():
    torch = pytest.importorskip("torch", reason="torch is not installed")

    def kernel(x, tensor_scale):
        assert isinstance(tensor_scale, torch.Tensor)
        codes, scales = kernels.exact(x.numpy(), tensor_scale=float(tensor_scale))
        return torch.from_numpy(codes), torch.from_numpy(scales).view(torch.float8_e4m3fn)

    assert check(kernel, format="nvfp4", arrays="torch").is_equal


def test_a_scale_that_does_not_fit():
    report = check_all(make_task("scale", "nvfp4"), lambda want: {"scale": want["scale"].astype(np.int64) | 0x80})
    assert "does not fit in 7 bits" in report.text()


def test_choices():
    """Check that a kernel may choose the scale of blocks of zeros, and how to treat infinity."""
    task = make_task("quantize", "nvfp4", nonfinite="block")

    def ones_for_zeros(inputs):
        want = expected(task, inputs)
        zero = (as_floats(inputs["x"], task.source) == 0).all(axis=1, keepdims=True)
        return {**want, "scale": np.where(zero, 0x38, want["scale"])}

    report = judged(task, ones_for_zeros)
    assert (report.conforms, list(report.choices)) == (True, ["zero_scale"])
    element = replace(task, nonfinite=mx.Nonfinite.ELEMENT)
    infinite = judged(task, lambda inputs: finite_or(task, element, inputs))
    assert infinite.conforms
    assert "nonfinite" in " ".join(infinite.choices)


def finite_or(task, other, inputs):
    """Return the right answers of `other` for blocks with infinity but no NaN, else of `task`."""
    x = as_floats(inputs["x"], task.source)
    rows = (np.isinf(x).any(axis=1) & ~np.isnan(x).any(axis=1))[:, None]
    first, second = expected(task, inputs), expected(other, inputs)
    return {name: np.where(rows, second[name], first[name]) for name in first}


def judged(task, answer_of_stack):
    judge_of_all = Collector(task)
    for inputs in cases(task):
        judge_of_all.add(inputs, answer_of_stack(inputs))
    return judge_of_all.report()


def check_all(task, change):
    return judged(task, lambda inputs: change(expected(task, inputs)))


# Vectors of cases


@pytest.mark.parametrize("operation", ["quantize", "scale", "dequantize"])
@pytest.mark.parametrize("fmt", ["nvfp4", "e2m1:block=16,scale=float32"])
def test_vectors_go_out_and_come_back(fmt, operation):
    stream = io.BytesIO()
    task = make_task(operation, fmt)
    count = write_vectors(task, stream, level=2, count=64)
    text = stream.getvalue()
    assert b"# scale_rule: nearest" in text or operation == "dequantize"
    assert (b"largest[1] tensor_scale[1]" in text) == (fmt == "nvfp4")
    report = verify(io.BytesIO(text))
    assert (report.cases, report.is_equal) == (count, True)
    lines = text.splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if not line.startswith(b"#"))
    words = lines[first].split()
    at = -17 if operation == "quantize" else -1
    words[at] = b"%0*X" % (len(words[at]), int(words[at], 16) ^ 1)
    lines[first] = b" ".join(words) + b"\n"
    assert verify(io.BytesIO(b"".join(lines))).bugs == 1


# Explained steps


@pytest.mark.parametrize(("fmt", "modes"), TASKS)
def test_explanations_agree_with_the_reference(fmt, modes):
    """Check that the steps of explanations lead to the right answers.

    `explain_block` raises an error if they do not.
    """
    task = make_task("quantize", fmt, **modes)
    inputs = some(task, 6)
    tensors = tensor_scales(inputs)
    for i, x in enumerate(inputs["x"]):
        if task.element.nan_code is None and task.nonfinite == "element" and np.isnan(as_floats(x, task.source)).any():
            continue
        word = inputs["random"][i] if task.is_stochastic else None
        block = explain_block(task, x, word, None if tensors is None else float(tensors[i, 0]))
        assert block.scale.sentence().endswith(".")
        assert len(block.elements) == task.block
        for step in block.elements:
            if step.magnitude is not None:
                assert step.below.value <= step.magnitude < step.above.value


def bits(*values):
    return np.array(values, np.float32).view(np.uint32)


def test_explanation_puts_a_scale_that_is_a_product_in_parentheses():
    step = explain_element(make_task("quantize", "e2m2:scale=ue5m3"), int(bits(2.0**-14)[0]), 7)
    assert step.sentence().startswith("1 * 2^-14 / (1.75 * 2^-15) = 1.142857143... lies between 1 (0x04) and 1.25")


def test_explanation_gives_the_reason():
    task = make_task("quantize", "nvfp4")
    tie = explain_scale(task, bits(9, 1), float(np.float32(12 / 2688)))
    assert tie.sentence() == (
        "the largest magnitude is 9 (element 0); 9 / (6 * 0.004464285914...) = 335.999985... lies between 320 (0x7A) "
        "and 352 (0x7B), at 1/2 - 4.69e-07 of the gap; nearest rounds to the nearer one: 320 (0x7A)."
    )
    assert "a tie, which rounds to the even code: 320" in explain_scale(task, bits(2016), 1.0).sentence()
    assert (
        "is beyond the largest scale, so the scale is the largest: 448 (0x7E)"
        in explain_scale(task, bits(2689), 1.0).sentence()
    )
    assert "= 448 is a scale; it is the largest scale: 448" in explain_scale(task, bits(2688), 1.0).sentence()
    assert explain_scale(task, bits(0, 0), 1.0).sentence() == "no nonzero finite element: the scale is 0."
    assert "element 1 is inf, so the block is NaN: code 0x7F" in explain_scale(task, bits(1, np.inf), 1.0).rule
    up = make_task("quantize", "nvfp4", scale_rule="rceil")
    assert "rceil rounds to the one above: 352" in explain_scale(up, bits(2016), 1.0).sentence()
    both = explain_scale(make_task("quantize", "nvfp4", scale_rule="four_over_six_absolute"), bits(6, 4.9), 1.0)
    assert "four over six maps the maximum to 4: the sum of absolute errors is" in both.rule
    step = explain_element(task, int(bits(1.25)[0]), 0x30, 0, 2.0)
    assert (step.factor, step.divisor, step.value) == (1, "(0.5 * 2)", 1.0)
    assert explain_element(task, int(bits(1)[0]), 0, 0, 1.0).rule == "the scale is zero, so the element is zero"
    wide = make_task("quantize", WIDE)
    assert "the scale is infinite" in explain_element(wide, int(bits(1)[0]), 0x7F800000).rule
    assert " / 1.5 = 2 is representable" in explain_element(wide, int(bits(3)[0]), 0x3FC00000).sentence()


def test_a_wrong_explanation_raises(monkeypatch):
    monkeypatch.setattr(explain, "_rounded", lambda *args: (3, 2, 3, Fraction(1, 2), "nonsense"))
    with pytest.raises(AssertionError, match="but the definition gives 35"):
        explain_scale(make_task("scale", "nvfp4"), bits(1), 1.0)


def test_scale_rules_are_those_of_float_scales():
    assert make_task("quantize", "nvfp4").scale_rule is FloatScaleRule.NEAREST
    with pytest.raises(ValueError, match=r"'scale_rule' must be one of \['nearest'"):
        make_task("quantize", "nvfp4", scale_rule="floor")
    with pytest.raises(ValueError, match="'scale_rule' must be 'nearest' or 'rceil' for e4m3 elements"):
        make_task("quantize", WIDE, scale_rule="four_over_six_squared")
    assert by_numpy.looks_at_elements(FloatScaleRule.FOUR_OVER_SIX_SQUARED)
