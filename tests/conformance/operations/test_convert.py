"""Tests of conversions between elements, which are `encode` with an element as the source."""

from __future__ import annotations

import io

import numpy as np
import pytest

import mxnum as mx
from mxnum.conformance import ConformanceError, check, check_stochastic, make_task, operations, verify, write_vectors
from mxnum.conformance.cases.batches import cases
from mxnum.conformance.judging.right import expected
from mxnum.definition.convert import make_encode
from mxnum.formats import ELEMENTS
from mxnum.modes import Overflow, Rounding

ROUNDINGS = [mode.value for mode in Rounding if not mode.is_stochastic]
BYTES = np.arange(256, dtype=np.uint8)
TARGETS = ["e4m3", "e2m1", "int4"]


def converter(source, target, **modes):
    """Return a correct converter that decodes codes to float32 and encodes the float32 numbers.

    The converter returns the same code for every NaN.
    """
    return lambda x, *random: mx.encode(
        mx.decode(x, source), target, **modes, **({"random_bits": random[0]} if random else {})
    )


#: Targets and roundings of converters: each target with rounding to nearest, and each other
#: rounding with only one target. More pairs would take long, because each pair compiles a loop.
ROUNDED = [(target, "rne") for target in TARGETS] + [
    (TARGETS[index % 3], rounding) for index, rounding in enumerate(ROUNDINGS) if rounding != "rne"
]


@pytest.mark.parametrize(("target", "rounding"), ROUNDED)
@pytest.mark.parametrize("source", ["e5m2", "int8", "e2m3"])
def test_all_codes_of_a_right_converter(source, target, rounding):
    report = check(
        converter(source, target, rounding=rounding), format=target, operation="encode", source=source,
        rounding=rounding,
    )  # fmt: skip
    codes, has_nan = 1 << ELEMENTS[source].bits, source == "e5m2"
    assert not report.bugs
    assert [*report.choices] == ["nan_code"] * (has_nan and target == "e4m3")
    tried = f"{codes - 6} of {codes}" if has_nan and target != "e4m3" else f"all {codes}"
    assert f"Tried: {tried} {source} codes" in report.text()
    assert report.text().startswith(f"encode, {mx.formats.of_element(target).name} from {source}: ")


@pytest.mark.parametrize("overflow", [*Overflow])
@pytest.mark.parametrize("target", ELEMENTS)
@pytest.mark.parametrize("source", ELEMENTS)
def test_right_answers_equal_the_definition(source, target, overflow):
    task = make_task("encode", target, source=source, rounding="rtz", overflow=overflow.value)
    (batch, *_) = cases(task)
    encode = make_encode(ELEMENTS[source], ELEMENTS[target], Rounding.RTZ, overflow)
    want = [encode(code, 127, 0) for code in batch["x"][:, 0].tolist()]
    assert expected(task, batch)["code"][:, 0].tolist() == want


def test_random_words_decide_under_stochastic_rounding():
    how = {"format": "e4m3", "operation": "encode", "source": "e5m2", "rounding": "sr", "sr_bits": 8}
    report = check(converter("e5m2", "e4m3", rounding="sr", sr_bits=8), **how)
    assert [*report.choices] == ["nan_code"]
    assert "all 256 e5m2 codes, with a sample of random words" in report.text()
    with pytest.raises(ConformanceError, match="what rounding rne gives"):
        check(lambda x, random: converter("e5m2", "e4m3")(x), **how)


@pytest.mark.parametrize(
    ("source", "target", "wrong", "named"),
    [
        ("e5m2", "e4m3", converter("e5m2", "e4m3", rounding="rna"), "rounding rna"),
        ("e5m2", "e4m3", converter("e5m2", "e4m3", overflow="ieee"), None),
        ("e4m3", "e5m2", lambda x: x, "the codes unchanged"),
        ("e3m2", "e2m1", converter("e2m3", "e2m1"), "reading codes as e2m3"),
        ("e4m3", "e5m2", lambda x: converter("e4m3", "e5m2")(np.where(x & 0x78, x, x & 0x80)), "subnormal codes"),
        ("int8", "e4m3", lambda x: converter("int8", "e4m3")(np.where(x > 127, 128 - x, x)), "sign and magnitude"),
        ("e5m2", "e2m1", lambda x: converter("e5m2", "e2m1")(x) & 7, "losing all signs"),
    ],
    ids=["rna", "ieee", "unchanged", "other element", "no subnormals", "sign and magnitude", "no signs"],
)
def test_a_wrong_converter_is_diagnosed(source, target, wrong, named):
    if named is None:
        report = check(wrong, format=target, operation="encode", source=source)
        assert not report.bugs
        assert set(report.choices) == {"infinity", "overflow", "nan_code"}
        return
    with pytest.raises(ConformanceError, match=named) as caught:
        check(wrong, format=target, operation="encode", source=source)
    assert f"x = {source} code 0x" in str(caught.value)


def test_level_2_has_no_nan_without_an_answer():
    task = make_task("encode", "e2m1", source="e5m2")
    x = np.concatenate([batch["x"] for batch in cases(task, level=2, count=1000)])
    assert sorted({*x[:, 0].tolist()}) == [code for code in BYTES.tolist() if code & 0x7F <= 0x7C]


def test_vectors_are_written_and_verified():
    task, file = make_task("encode", "e2m1", source="e3m2"), io.BytesIO()
    assert write_vectors(task, file) == 64
    assert b"# source: e3m2\n" in file.getvalue()
    assert verify(io.BytesIO(file.getvalue())).is_equal
    wrong = file.getvalue().replace(b"\n1F 7\n", b"\n1F 6\n")
    assert wrong != file.getvalue()
    assert verify(io.BytesIO(wrong)).bugs == 1


def test_sources_of_other_operations_are_floats():
    for call in (
        lambda: make_task("quantize", "mxfp4_e2m1", source="e5m2"),
        lambda: make_task("decode", "e4m3", source="e5m2"),
        lambda: check_stochastic(mx.encode, format="e2m1", operation="encode", source="e5m2"),
    ):
        with pytest.raises(ValueError, match=r"^Argument 'source' must be"):
            call()
    assert operations.OPERATIONS["encode"] is make_task("encode", "e2m1").operation
