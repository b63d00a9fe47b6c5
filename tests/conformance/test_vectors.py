from __future__ import annotations

import io
from dataclasses import replace

import pytest

from mxnum.conformance.operations import OPERATIONS, make_task
from mxnum.conformance.vectors import CHUNK, Incomplete, answer_vectors, verify, write_vectors
from mxnum.modes import Rounding
from tests.conformance.test_task import deciding


def vectors(task, **options):
    out = io.BytesIO()
    count = write_vectors(task, out, **options)
    text = out.getvalue()
    assert sum(not line.startswith(b"#") for line in text.splitlines()) == count
    return text


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("modes", [{}, {"rounding": "sr", "nonfinite": "element"}])
def test_the_vectors_own_answers_conform(operation, modes):
    task = make_task(operation, "mxfp8_e4m3", **deciding(operation, **modes))
    report = verify(io.BytesIO(vectors(task, level=2, count=2000)))
    assert report.cases == 2000
    assert report.is_equal
    assert report.task.header() == task.header()


@pytest.mark.parametrize("options", [{}, {"level": 2, "count": 2 * CHUNK + 1}])
def test_answers_without_inputs_are_verified_with_the_vectors(options):
    task = make_task("encode", "mxfp4_e2m1")
    whole, inputs = vectors(task, **options), vectors(task, answers=False, **options)
    alone = b"\n".join(line.split()[-1] for line in whole.splitlines() if not line.startswith(b"#"))
    for given in (whole, inputs):
        assert verify(io.BytesIO(alone), io.BytesIO(given)).is_equal
    with pytest.raises(ValueError, match="one answer for each case; answers from line"):
        verify(io.BytesIO(alone + b"\n0\n"), io.BytesIO(inputs))
    with pytest.raises(ValueError, match="must hold the answer alone"):
        verify(io.BytesIO(whole), io.BytesIO(inputs))


def test_cases_of_ones_own_with_the_codes_of_a_block_as_one_number():
    head = b"# mxnum-vectors 1\n# operation: quantize\n# format: mxfp6_e2m3:block=4\n"
    x = b"3f800000 3f000000 be000000 00000000 "
    report = verify(io.BytesIO(head + x + b" 7d 18 10 24 00\n" + x + b"7d 24418\n"))
    assert (report.cases, report.is_equal) == (2, True)
    report = verify(io.BytesIO(b"7d 24418\n"), io.BytesIO(head + b"# answers: no\n" + x + b"\n"))
    assert (report.cases, report.is_equal) == (1, True)
    with pytest.raises(ValueError, match="Line 4 must give 'codes' as hexadecimal digits of 24 bits, not '1000000'"):
        verify(io.BytesIO(head + x + b"7d 1000000\n"))


def test_truncated_answers_raise():
    lines = vectors(make_task("encode", "mxfp4_e2m1")).splitlines(keepends=True)
    with pytest.raises(Incomplete, match="for 5648 cases, as the line '# cases: 5648' says, not for 286"):
        verify(io.BytesIO(b"".join(lines[:300])))
    head = [line for line in lines if line.startswith(b"#") and b"cases" not in line]
    with pytest.raises(Incomplete, match="at least one answer"):
        verify(io.BytesIO(b"".join(head)))
    with pytest.raises(Incomplete, match="the stream of answers is empty"):
        verify(io.BytesIO(b""))  # the input is empty if the program before the pipe fails
    with pytest.raises(ValueError, match=r"must repeat the header .* give the vectors as well"):
        verify(io.BytesIO(b"00000000 0\n"))
    with pytest.raises(ValueError, match="must have a line '# operation"):
        verify(io.BytesIO(b"# format: mxfp4_e2m1\n00000000 0\n"))


def test_a_mistake_in_the_arguments_writes_nothing():
    # Regression: the header was written before wrong arguments raised the error.
    out = io.BytesIO()
    with pytest.raises(ValueError, match="'count' must be left out at level 1"):
        write_vectors(make_task("encode", "mxfp4_e2m1"), out, count=5)
    assert out.getvalue() == b""


def test_answers_to_another_task_are_no_answers():
    # Regression: if the answers did not repeat the inputs, their header was not checked.
    task = make_task("encode", "mxfp4_e2m1")
    alone = b"".join(line.split()[-1] + b"\n" for line in vectors(task).splitlines() if not line.startswith(b"#"))
    head = b"# operation: encode\n# rounding: %s\n"
    assert verify(io.BytesIO(head % b"rne" + alone), io.BytesIO(vectors(task))).is_equal
    with pytest.raises(ValueError, match="must state the same task as the vectors: rounding rne, not rtz"):
        verify(io.BytesIO(head % b"rtz" + alone), io.BytesIO(vectors(task)))


@pytest.mark.parametrize(
    ("case", "answer", "good", "bad"),
    [
        ("quantize", "7E 5 7", ("3A0C30C3",), ("00000000", "BF800000", "7F800000", "7FC00000")),
        ("dequantize", "00000000", ("3A0C30C3", "00000000"), ("BF800000", "80000000")),
    ],
)
def test_tensor_scales_of_zero_or_infinity_raise(case, answer, good, bad):
    # Regression: wrong tensor scales, such as infinity or a negative number, raised no error.
    inputs = {"quantize": "3F800000 40000000 40000000", "dequantize": "38 7 40000000"}[case]
    head = f"# operation: {case}\n# format: nvfp4\n# block: 2\n"
    for tensor in good:
        assert answer_vectors(io.BytesIO(f"{head}{inputs} {tensor}\n".encode()), io.BytesIO()) == 1
    for tensor in bad:
        with pytest.raises(ValueError, match="Line 4 must have a tensor scale that is"):
            answer_vectors(io.BytesIO(f"{head}{inputs} {tensor}\n".encode()), io.BytesIO())
        with pytest.raises(ValueError, match="Line 4 must have a tensor scale that is"):
            verify(io.BytesIO(f"{head}{inputs} {tensor} {answer}\n".encode()))


def test_a_wrong_answer_is_named_by_its_line():
    lines = vectors(make_task("encode", "mxfp4_e2m1")).splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if line.startswith(b"3F800000 "))
    lines[at] = b"3F800000 3\n"
    report = verify(io.BytesIO(b"".join(lines)))
    assert report.bugs == 1
    assert (
        f"line {at + 1} [representable]: x = bits:3F800000 (1): got 0x3 (1.5), want 0x2 (1), 1 code too high"
        in report.text()
    )


def test_answers_to_other_cases_than_the_given_ones_raise():
    """Check that `verify` raises ValueError if the answers are right but omit some of the cases."""
    task = make_task("encode", "mxfp4_e2m1")
    lines = vectors(task).splitlines(keepends=True)
    head, body = lines[: -task_cases(lines)], lines[-task_cases(lines) :]
    with pytest.raises(ValueError, match=rf"must repeat the cases .* but line {len(head) + 2} holds another"):
        verify(io.BytesIO(b"".join([*head, *[body[0]] * len(body)])))
    with pytest.raises(ValueError, match=rf"must repeat the cases .* but line {len(lines)} holds another"):
        verify(io.BytesIO(b"".join([*head, *body[:-1], body[0]])))
    assert verify(io.BytesIO(b"".join([*head, *body[::-1]]))).is_equal  # Answers may be in any order.
    # With the header of another mxnum version, `verify` cannot tell which cases are missing.
    other = [line.replace(b"# mxnum: ", b"# mxnum: 9.") for line in head]
    assert verify(io.BytesIO(b"".join([*other, *[body[0]] * len(body)]))).is_equal


def task_cases(lines):
    return sum(not line.startswith(b"#") for line in lines)


def test_repeated_cases_of_level_2_raise():
    task = make_task("quantize", "mxfp8_e4m3", rounding="sr", sr_bits=8)
    whole = vectors(task, level=2, count=9000, seed=3)
    assert verify(io.BytesIO(whole)).is_equal
    lines = whole.splitlines(keepends=True)
    lines[-1] = lines[-2]
    with pytest.raises(ValueError, match="must repeat the cases"):
        verify(io.BytesIO(b"".join(lines)))


def test_a_code_that_does_not_fit_is_a_wrong_answer():
    """Check that a code with too many bits is a wrong answer, in lines with and without inputs."""
    task = make_task("encode", "mxfp4_e2m1")
    text = vectors(task).replace(b"\n40000000 4\n", b"\n40000000 A4\n")
    report = verify(io.BytesIO(text))
    assert report.bugs == 1
    assert "got 0xA4, which does not fit in 4 bits, want 0x4 (2)" in report.text()
    alone = b"\n".join(line.split()[-1] for line in text.splitlines() if not line.startswith(b"#"))
    assert verify(io.BytesIO(alone), io.BytesIO(vectors(task))).bugs == 1


OWN = b"# mxnum-vectors 1\n# operation: encode\n# format: mxfp4_e2m1\n"
STIMULI = b"3F800000\n40000000\n40400000\n40800000\n"


def golden(head=OWN):
    out = io.BytesIO()
    answer_vectors(io.BytesIO(head + STIMULI), out)
    return out.getvalue().splitlines(keepends=True)


def test_missing_answers_to_a_users_cases_raise():
    # Regression: the number of cases was read from the header, where it may be missing.
    lines = golden()
    whole, alone = b"".join(lines), [line.split()[1] + b"\n" for line in lines if line[:1] != b"#"]
    assert (lines[-5], lines[-1]) == (b"3F800000 2\n", b"# cases: 4\n")
    for vectors in (whole, OWN + b"# answers: no\n" + STIMULI):
        assert not verify(io.BytesIO(b"".join(alone)), io.BytesIO(vectors)).unchecked
        with pytest.raises(Incomplete, match="must be answers for the 4 cases of the vectors, not for 2"):
            verify(io.BytesIO(b"".join(alone[:2])), io.BytesIO(vectors))
        with pytest.raises(ValueError, match="one answer for each case; answers from line 5 on have no case"):
            verify(io.BytesIO(b"".join(alone + alone)), io.BytesIO(vectors))
    report = verify(io.BytesIO(whole))
    assert (report.cases, report.unchecked) == (4, "")
    with pytest.raises(Incomplete, match=r"last line must be '# cases: \.\.\.'"):
        verify(io.BytesIO(b"".join(lines[:-3])))
    # The first stream lacks two lines, and the second repeats four lines.
    for some in (lines[:-3] + lines[-1:], lines[:-1] + lines[-5:]):
        with pytest.raises(Incomplete, match="as the line '# cases: 4' says, not for"):
            verify(io.BytesIO(b"".join(some)))


def test_given_number_of_cases_is_written_in_the_header():
    lines = golden(OWN + b"# cases: 4\n")
    assert b"# cases: 4\n" in lines[:12]
    assert lines[-1] == b"40800000 6\n"
    # Some programs write all comments before the answers.
    notes_first = sorted(golden(), key=lambda line: line[:1] != b"#")
    assert verify(io.BytesIO(b"".join(notes_first))).unchecked == ""


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (b"# cases: four\n", b"", "must have a number in its line '# cases:', not 'four'"),
        (b"# cases: stated below\n", b"# cases: 1\n40000000 4\n", "Line 7 must be a comment, since it follows"),
        (b"# cases: 1\n", b"# cases: 1\n", "Line 6 must be a case or a comment"),
    ],
)
def test_wrong_numbers_of_cases_raise(before, after, message):
    with pytest.raises(ValueError, match=message):
        verify(io.BytesIO(OWN + before + b"3F800000 2\n" + after))


def test_report_warns_if_the_number_of_answers_is_unknown():
    report = verify(io.BytesIO(OWN + b"3F800000 2\n"))
    assert "missing answers would go unnoticed" in report.text()
    assert report.as_dict()["unchecked"] in report.text()


def test_cases_of_another_version_cannot_be_checked():
    # Regression: --strict accepted cases of another mxnum version, which cannot be checked.
    lines = vectors(make_task("encode", "mxfp4_e2m1")).splitlines(keepends=True)
    lines = [line.replace(b"# mxnum: ", b"# mxnum: 9.") for line in lines]
    whole = b"".join(lines)
    assert "so missing or changed cases go unnoticed" in verify(io.BytesIO(whole)).text()
    alone = b"".join(line.split()[-1] + b"\n" for line in lines if line[:1] != b"#")
    assert verify(io.BytesIO(alone), io.BytesIO(whole)).unchecked == ""


def test_answers_to_other_cases_are_no_answers():
    # Regression: if the answers did not repeat the inputs, the level and the seed in their header
    # were not checked.
    task = make_task("dequantize", "mxfp4_e2m1")
    first, second = (vectors(task, level=2, count=100, seed=seed) for seed in (0, 1))
    head = b"".join(line for line in first.splitlines(keepends=True) if line[:1] == b"#")
    alone = head + b"".join(line.split()[-1] + b"\n" for line in first.splitlines() if line[:1] != b"#")
    assert verify(io.BytesIO(alone), io.BytesIO(first)).is_equal
    with pytest.raises(ValueError, match="seed 1, not 0"):
        verify(io.BytesIO(alone), io.BytesIO(second))


@pytest.mark.parametrize("line_end", [b"\r\n", b"  \n", b"\n\n"])
def test_line_ends_change_nothing(line_end):
    task = make_task("quantize", "mxfp4_e2m1:block=4")
    whole = vectors(task, level=2, count=50).replace(b"\n", line_end)
    assert ": 50 cases, 50 right, " in verify(io.BytesIO(whole)).text()
    with pytest.raises(Incomplete):
        verify(io.BytesIO(b"".join(line for line in whole.splitlines(keepends=True) if line[:1] == b"#")))


@pytest.mark.parametrize("digits", ["xx", "1X", "0x", "z", "0x1X", "Z4"])
def test_unknown_bits_of_a_simulation_are_one_wrong_answer(digits):
    # Regression: one answer with an X ended the verification with an error.
    task = make_task("encode", "mxfp8_e4m3")
    whole = vectors(task)
    text = whole.replace(b"\n3F800000 38\n", f"\n3F800000 {digits}\n".encode())
    report = verify(io.BytesIO(text))
    assert (report.bugs, report.unknown, report.cases) == (1, 1, whole.count(b"\n") - 14)
    line = text.splitlines().index(f"3F800000 {digits}".encode()) + 1
    said = f"line {line} [unknown bits]: x = bits:3F800000 (1): got {digits} with unknown bits (X or Z), want 38"
    assert said in report.text()
    assert report.as_dict()["unknown"] == 1
    alone = b"\n".join(line.split()[-1] for line in text.splitlines() if not line.startswith(b"#"))
    assert said.replace(f"line {line}", f"line {line - 14}") in verify(io.BytesIO(alone), io.BytesIO(whole)).text()


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("source", ["float32", "float64"])
def test_unknown_bits_in_each_operation(operation, source):
    fmt = "mxfp4_e2m1" if operation == "mma" else "mxfp4_e2m1:block=4"
    task = make_task(operation, fmt, **deciding(operation, source=source))
    lines = vectors(task, level=2, count=40).splitlines(keepends=True)
    outputs = sum(field.count for field in task.outputs)
    for at in (-3, -7):
        words = lines[at].split()
        lines[at] = b" ".join([*words[:-outputs], *[b"x"] * outputs]) + b"\r\n"
    report = verify(io.BytesIO(b"".join(lines)))
    assert (report.cases, report.bugs, report.unknown) == (40, 2, 2)
    assert report.explanations == []
    assert "unknown bits (X or Z), want " in report.text()
    lines = [line if line[:1] == b"#" else b" ".join([*line.split()[:-outputs], *[b"X"] * outputs]) for line in lines]
    # Every answer in the stream has unknown bits (X).
    assert verify(io.BytesIO(b"\n".join(line.rstrip() for line in lines))).bugs == 40


def test_unknown_bits_do_not_hide_explanations_of_other_answers():
    task = make_task("quantize", "mxfp4_e2m1:block=4")
    lines = vectors(replace(task, rounding=Rounding.RNA), level=2, count=300).replace(b": rna", b": rne").splitlines()
    words = lines[-1].split()
    lines[-1] = b" ".join([*words[:-5], b"7f", b"0X1z"])  # "0X1z" has the codes of the whole block
    report = verify(io.BytesIO(b"\n".join(lines)))
    assert report.unknown == 1
    assert "are, given the scales in the answers, what rounding rna gives" in report.text()
    assert "got 7f 0X1z with unknown bits (X or Z), want " in report.text()


@pytest.mark.parametrize("line", [b"3F80000x 38", b"3F800000 3g", b"3F800000 x8 1"])
def test_words_that_are_not_hexadecimal_raise(line):
    with pytest.raises(ValueError, match="Line 4 must"):
        verify(io.BytesIO(b"# operation: encode\n# format: mxfp8_e4m3\n# cases: 1\n" + line + b"\n"))
