from __future__ import annotations

import io

import pytest

from mxnum.conformance.stream import Incomplete, verify, write_vectors
from mxnum.conformance.task import OPERATIONS, make_task


def vectors(task, **options):
    out = io.BytesIO()
    count = write_vectors(task, out, **options)
    text = out.getvalue()
    assert sum(not line.startswith(b"#") for line in text.splitlines()) == count
    return text


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("modes", [{}, {"rounding": "sr", "nonfinite": "element"}])
def test_the_vectors_own_answers_conform(operation, modes):
    task = make_task(operation, "mxfp8_e4m3", **modes)
    report = verify(io.BytesIO(vectors(task, level=2, count=2000)))
    assert report.cases == 2000
    assert report.is_equal
    assert report.task.header() == task.header()


def test_answers_alone():
    task = make_task("encode", "mxfp4_e2m1")
    whole, inputs = vectors(task), vectors(task, answers=False)
    alone = b"\n".join(line.split()[-1] for line in whole.splitlines() if not line.startswith(b"#"))
    for given in (whole, inputs):
        assert verify(io.BytesIO(alone), io.BytesIO(given)).is_equal
    with pytest.raises(ValueError, match="as many as the cases, not more"):
        verify(io.BytesIO(alone + b"\n0\n"), io.BytesIO(inputs))


def test_truncated_answers_are_no_success():
    lines = vectors(make_task("encode", "mxfp4_e2m1")).splitlines(keepends=True)
    with pytest.raises(Incomplete, match="must be of 5584 cases, as the header says, not 286"):
        verify(io.BytesIO(b"".join(lines[:300])))
    head = [line for line in lines if line.startswith(b"#") and b"cases" not in line]
    with pytest.raises(Incomplete, match="at least one case"):
        verify(io.BytesIO(b"".join(head)))
    with pytest.raises(ValueError, match="must have a line '# operation"):
        verify(io.BytesIO(b"00000000 0\n"))


def test_a_wrong_answer_is_named_by_its_line():
    lines = vectors(make_task("encode", "mxfp4_e2m1")).splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if line.startswith(b"3F800000 "))
    lines[at] = b"3F800000 3\n"
    report = verify(io.BytesIO(b"".join(lines)))
    assert report.bugs == 1
    assert (
        f"line {at + 1} [representable]: x = 0x3F800000 (1): got 0x3 (1.5), want 0x2 (1), 1 code too high"
        in report.text()
    )
