from __future__ import annotations

import io
import re

import numpy as np
import pytest

from mxnum.conformance.bits import Generator
from mxnum.conformance.operations import OPERATIONS, make_task
from mxnum.conformance.vectors import Reader, format_lines, parse_lines
from tests.conformance.test_task import deciding

NAMES = [f"Line {number}" for number in range(1, 21)]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(("fmt", "source"), [("mxfp4_e2m1", "float64"), ("mxfp6_e3m2", "bfloat16")])
def test_what_is_written_is_read(operation, fmt, source):
    task = make_task(operation, fmt, **deciding(operation, source=source, rounding="sr"))
    fields = (*task.inputs, *task.outputs)
    columns = {
        f.name: Generator(i).integers(0, (1 << min(f.bits, 52)) - 1, (20, f.count)).astype(np.uint64)
        for i, f in enumerate(fields)
    }
    for f in fields:
        columns[f.name][0] = (1 << f.bits) - 1
    lines = format_lines(fields, columns).splitlines(keepends=True)
    assert len(lines) == 20
    fast = parse_lines(fields, lines, NAMES)
    slow = parse_lines(fields, [b"  " + line.lower().replace(b"\n", b"\r\n") for line in lines], NAMES)
    for f in fields:
        assert np.array_equal(fast[f.name], columns[f.name])
        assert np.array_equal(slow[f.name], columns[f.name])


def test_lines_are_plain():
    task = make_task("encode", "mxfp4_e2m1")
    line = format_lines((*task.inputs, *task.outputs), {"x": np.array([[0x3F800000]]), "code": np.array([[2]])})
    assert line == b"3F800000 2\n"
    assert parse_lines((*task.inputs, *task.outputs), [b"0x3f800000 0x2"], NAMES)["x"].tolist() == [[0x3F800000]]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"3F800000\n", r"Line 7 must hold 2 numbers \(x\[1\], code\[1\]\), not 1\."),
        (b"3F800000 1_0\n", "as hexadecimal digits of at most 4 bits, not '1_0'"),
        (b"3F800000 zz\n", "Line 7 must give 'code' as hexadecimal digits of at most 4 bits, not 'zz'"),
        (b"3F800000 10\n", "as hexadecimal digits of at most 4 bits, not '10'"),
        (b"3F8000000 1\n", "Line 7 must give 'x' as hexadecimal digits of at most 32 bits"),
        (b"3F800000 -0\n", "Line 7 must give 'code' as hexadecimal digits of at most 4 bits, not '-0'"),
        (b"-3F80000 1\n", "Line 7 must give 'x' as hexadecimal digits of at most 32 bits"),
    ],
)
def test_what_cannot_be_read(line, message):
    task = make_task("encode", "mxfp4_e2m1")
    with pytest.raises(ValueError, match=message):
        parse_lines((*task.inputs, *task.outputs), [line], ["Line 7"])


def test_answers_may_have_too_many_bits():
    task = make_task("quantize", "mxfp4_e2m1", block=2)
    fields = (*task.inputs, *task.outputs)
    line = b"3F800000 40000000 17D A2 4\n"
    found = parse_lines(fields, [line], NAMES, task.outputs)
    assert (found["scale"].tolist(), found["codes"].tolist()) == ([[0x17D]], [[0xA2, 4]])
    assert found["x"].dtype == np.uint32
    with pytest.raises(
        ValueError, match="Line 1 must give 'codes' as hexadecimal digits of at most 4 bits, not 'FFFFFFFFFFFFFFFF'"
    ):
        parse_lines(fields, [line.replace(b"A2", b"F" * 16)], NAMES, task.outputs)


def test_one_number_may_hold_all_codes():
    # A bus is one number that holds all codes. The operands of a dot product can be buses, and
    # answers can be buses too.
    task = make_task("dot", "mxfp6_e3m2:block=4", dot_blocks=1)
    fields = (*task.inputs, *task.outputs)
    one_by_one = b"7F 01 02 03 04 80 3F 3E 3D 3C 42000000\n"
    as_buses = b"7f 103081 80 F3DFBF 42000000\n"
    wanted, found = (parse_lines(fields, [line], NAMES, task.outputs) for line in (one_by_one, as_buses))
    assert {name: column.tolist() for name, column in found.items()} == {
        name: column.tolist() for name, column in wanted.items()
    }
    with pytest.raises(ValueError, match="must give 'b' as hexadecimal digits of 24 bits, not '1F3DFBF'"):
        parse_lines(fields, [as_buses.replace(b"F3D", b"1F3D")], NAMES, task.outputs)


def test_reader_keeps_line_numbers():
    stream = io.BytesIO(b"# mxnum-vectors 1\n# operation: encode\n#\n\n1 2\n# note\n\n3 4\n5 6\n")
    reader = Reader(stream)
    assert reader.header == {"operation": "encode"}
    assert list(reader.chunks()) == [(5, [b"1 2\n"]), (8, [b"3 4\n", b"5 6\n"])]
    with pytest.raises(ValueError, match="must have the format version 1, not '2'"):
        Reader(io.BytesIO(b"# mxnum-vectors 2\n"))


HEAD = b"# mxnum-vectors 1\n# operation: encode\n# format: mxfp4_e2m1\n# from: Tuesday\n# from: a simulation\n"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (b"# rounding: rtz\n# rounding: rna\n3F800000 2\n", "have one line '# rounding: ...', not 'rtz' and 'rna'."),
        (b"# rounding = rtz\n3F800000 2\n", "must have a line '# rounding: rtz', not '# rounding = rtz'."),
        (b"3F800000 2\n# rounding: rtz\n", "a case or a comment, not the header line '# rounding: rtz'; the header"),
        (b"3F800000 2\n# rounding=rtz\n", "must have a line '# rounding: rtz', not '# rounding=rtz'."),
        (b"3F800000 2\n" + HEAD + b"3F800000 2\n", "Line 7 must be a case or a comment, not the header line '# mx"),
    ],
)  # fmt: skip
def test_contradictory_headers_raise(lines, message):
    # Regression: if a header occurred twice, one of the two was silently ignored.
    with pytest.raises(ValueError, match=re.escape(message)):
        list(Reader(io.BytesIO(HEAD + lines)).chunks())


def test_comments_that_are_not_headers_are_ignored():
    comments = b"# rounding: rtz\n# rounding: rtz\n# rounding is rtz\n# a = b\n#\n3F800000 2\n# x: 3\n# seed, of 4\n"
    reader = Reader(io.BytesIO(HEAD + comments))
    assert list(reader.chunks()) == [(11, [b"3F800000 2\n"])]
    assert {"rounding": "rtz", "from": "a simulation"}.items() <= reader.header.items()
