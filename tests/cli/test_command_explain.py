from __future__ import annotations

import re
from fractions import Fraction

import numpy as np
import pytest

import mxnum as mx


def test_a_tie(run):
    printed = run("explain", "17", "--scale", 127)
    for part in ("0 10000011 00010000000000000000000", "position  1/2 of the gap: a tie", "0 1011 000   (0x58 = 16)"):
        assert part in printed
    assert "0x59 = 18" in run("explain", "17", "--scale", 127, "--rounding", "rna")


def test_a_block(run):
    facts = run.json("explain", "-f", "mxfp4_e2m1", "--scale-rule", "even", "--", "1", "-500", "0.3")
    q = mx.quantize(np.array([1, -500, 0.3], np.float32), "mxfp4_e2m1", scale_rule="even")
    assert facts["scale"]["code"] == q.scales[0]
    assert [element["code"] for element in facts["elements"]] == q.codes.tolist()


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("-3.5", -3.5),
        ("1e-3", 1e-3),
        ("0x1.8p3", 12.0),
        ("bits:40490FDB", np.pi),
        ("inf", np.inf),
        ("-nan", np.nan),
        ("-0.0", -0.0),
    ],
)  # fmt: skip
def test_numbers_that_can_be_typed(run, typed, value):
    facts = run.json("explain", typed, "--nonfinite", "element")
    got = np.array([int(facts["elements"][0]["bits"], 16)], np.uint32).view(np.float32)[0]
    assert np.array_equal(got, np.float32(value), equal_nan=True)
    assert np.signbit(got) == typed.startswith("-")


def test_random_word(run):
    away = run.json("explain", "17", "--scale", 127, "--rounding", "sr", "--sr-bits", 4, "--random", "8")
    toward = run.json("explain", "17", "--scale", 127, "--rounding", "sr", "--sr-bits", 4, "--random", "7")
    assert [f["elements"][0]["value"] for f in (away, toward)] == [18.0, 16.0]


def test_mistakes(run):
    assert "must be numbers, not 'abc'" in run("explain", "abc", status=2)
    assert "Option --scale must be between 0 and 255" in run("explain", "1", "--scale", 256, status=2)
    assert run("explain", "3", "--formt", "x", status=2).startswith("Error: No such option: --formt.")
    assert "hexadecimal digits of at most 32 bits" in run("explain", "bits:123456789", status=2)
    sr = ("explain", "1", "--rounding", "sr", "--random")
    assert "hexadecimal digits of at most 32 bits" in run(*sr, "xyz", status=2)


def test_ambiguous_numbers_and_options_without_effect_raise(run):
    # Regression: the command read 0x3E800001 as the number 1048576001. It also accepted random bits
    # without stochastic rounding.
    for typed in ("0x3E800001", "-0x3E800001", "0x1.8"):
        told = run("explain", "--", typed, status=2)
        assert f"must be like bits:3E800001 or 0x1p3 in hexadecimal, not '{typed}'." in told
    assert "--random must be left out for --rounding rne, which" in run("explain", "1", "--random", "ff", status=2)
    assert "--sr-bits must be left out for --rounding rna, which" in run(
        "explain", "1", "--rounding", "rna", "--sr-bits", 8, status=2
    )
    for option, mode in (("--scale-rule", "even"), ("--nonfinite", "block")):
        said = run("explain", "1", "--scale", 127, option, mode, status=2)
        assert f"Option {option} must be left out with --scale, which sets the scale." in said


def test_number_beyond_the_source_type_raises(run):
    for typed, source in (("1e300", "float32"), ("-1e300", "float32"), ("1e400", "float64"), ("65520", "float16")):
        told = run("explain", "--source", source, "--", typed, status=2)
        assert f"must be numbers in the range of {source}, or inf, not '{typed}'." in told
    assert "x = -inf" in run("explain", "--", "-Infinity")


@pytest.mark.parametrize(
    ("typed", "source"),
    [
        ("1e-400", "float64"),
        ("-1e-400", "float64"),
        ("0x1p-2000", "float64"),
        ("1e-46", "float32"),
        ("1e-400", "float32"),
    ],
)
def test_number_too_small_for_the_source_type_raises(run, typed, source):
    """Check that a nonzero number that is too small for the source type raises an error."""
    told = run("explain", "--source", source, "--", typed, status=2)
    assert f"must be numbers in the range of {source}, or 0, not '{typed}'." in told


@pytest.mark.parametrize("typed", ["0", "-0e5", "0.000e-999", "0x0p-2000", "0x0.0p3"])
def test_zeros_of_any_exponent_are_zero(run, typed):
    assert run.json("explain", "--", typed)["elements"][0]["x"] == 0


@pytest.mark.parametrize(
    "typed", ["1.00000005960464477539062500001", "0x1.000001000000000000001p0", "0x10000010000000000.0001p-64"]
)
def test_numbers_are_rounded_once(run, typed):
    """Check that a typed number is rounded directly to float32, and not first to float64."""
    assert run.json("explain", typed)["elements"][0]["bits"] == "0x3F800001"
    assert run.json("explain", "--", f"-{typed}")["elements"][0]["bits"] == "0xBF800001"


def test_numbers_in_reports_can_be_typed(run, tmp_path):
    path = tmp_path / "answers.txt"
    run("vectors", "encode", "-f", "mxfp4_e2m1", "-o", path)
    path.write_text(path.read_text().replace("\n3FA00000 2\n", "\n3FA00000 3\n"))
    (typed,) = re.findall(r"x = (\S+) ", run("verify", path, status=1))
    assert run.json("explain", typed, "--scale", 127)["elements"][0]["x"] == 1.25


def test_exact_text_is_printed_only_if_it_differs(run):
    (amax,) = [line for line in run("explain", "-3e-5").splitlines() if "amax" in line]
    assert amax == "  amax      1.96607995... * 2^-16   (element 0)"
    assert "  amax      6 = 1.5 * 2^2   (element 0)" in run("explain", "6")


def test_neighbours_of_a_negative_number(run):
    # Regression: for -3, the explanation said "below 384" instead of "above -384".
    printed = run("explain", "-3")
    rows = [line.split()[:2] for line in printed.splitlines() if line.startswith(("  above", "  below"))]
    assert rows == [["above", "-384"], ["below", "-416"]]
    (element,) = run.json("explain", "-3.1")["elements"]
    assert float(element["below"]) < float(Fraction(element["scaled"])) < float(element["above"])
    assert "position  1/4 of the gap, counted from zero" in run("explain", "--scale", 127, "--", "-16.5")


def test_multiple_of_the_step_beyond_the_largest_is_not_representable(run):
    # Regression: the explanation called 33554432 "representable", although this number exceeds the
    # largest element.
    printed = run("explain", "33554432", "--scale", 127)
    assert "rule      is beyond the largest, 448: it saturates" in printed
    assert "representable" not in printed
    assert "is beyond the largest, -448: it saturates" in run("explain", "--scale", 127, "--", "-512")
    assert "; 480 is beyond the largest, 448: it saturates" in run("explain", "470", "--scale", 127)
    overflowing = run("explain", "512", "--scale", 127, "--overflow", "ieee", "-f", "mxfp8_e4m3")
    assert "is beyond the largest, 448: it overflows to NaN" in overflowing


def test_scales_that_are_floats(run):
    printed = run("explain", "-f", "nvfp4", "9", "1")
    for line in (
        "  tensor    0.003348214319...   (the tensor scale, float32)",
        "  quotient  9 / (6 * 0.003348214319...) = 447.9999955...",
        "  below     416 (0x7D)",
        "  rule      nearest rounds to the nearer one",
        "  scale     0x7E = 1111 110 = 448",
        "  x / (448 * 0.003348214319...) = 0.66666666...",
        "  result    0 00 1   (0x1 = 0.5, times (448 * 0.003348214319...) = 0.7500000075...)",
    ):
        assert line in printed.splitlines()
    given = run.json("explain", "-f", "nvfp4", "--tensor-scale", "0x1p-8", "9", "1")
    assert given["tensor scale"] == 2.0**-8
    assert (given["scale"]["code"], given["scale"]["value"], given["scale"]["quotient"]) == (0x7C, 384.0, "384")
    assert [element["code"] for element in given["elements"]] == [7, 1]
    assert "past the largest" in run("explain", "-f", "e2m1:block=16,scale=e4m3", "2700")
    assert "the scale is zero" in run("explain", "-f", "nvfp4", "--scale", 0, "--tensor-scale", 1, "5")
    assert "Option --tensor-scale must be given with --scale" in run(
        "explain", "-f", "nvfp4", "--scale", 1, "1", status=2
    )
    assert "Option --tensor-scale must be left out for mxint8" in run(
        "explain", "-f", "mxint8", "--tensor-scale", 1, "1", status=2
    )
    assert "Option --tensor-scale must be positive and finite" in run(
        "explain", "-f", "nvfp4", "--tensor-scale", 0, "1", status=2
    )
    assert "Option --scale must be between 0 and 127" in run("explain", "-f", "nvfp4", "--scale", 128, "1", status=2)


def test_a_page(run, tmp_path):
    """Check that the page shows the typed numbers, and that only --force replaces an old page."""
    path = tmp_path / "page.html"
    assert (
        run("explain", "0.3", "bits:FFC00001", "-f", "nvfp4", "--rounding", "sr", "--random", "3F", "--html", path)
        == ""
    )
    (start,) = re.findall('const START = "(.*)";', path.read_text())
    assert "format=nvfp4&rule=nearest&rounding=sr" in start
    assert "x=3E99999A.FFC00001" in start
    assert "random=0000003F" in start
    assert "--force" in run("explain", "1", "--html", path, status=2)
    run("explain", "7", "--scale", 126, "--html", path, "--force")
    assert "x=40E00000&scale=126" in path.read_text()
    run("explain", "7", "-f", "nvfp4", "--tensor-scale", "0x1p-8", "--html", path, "--force")
    assert "tensor=3B800000" in path.read_text()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--source", "float64"], "Option --source must be float32 with --html"),
        (["--json"], "Option --json must be left out with --html"),
        (["--rounding", "sr", "--sr-bits", "8"], "Option --sr-bits must be left out with --html"),
        (["0"] * 32, "'values' must be at most 32 numbers with --html, not 33"),
    ],
)
def test_explanations_without_a_page_raise(run, tmp_path, options, told):
    assert told in run("explain", "1", *options, "--html", tmp_path / "page.html", status=2)
    assert not list(tmp_path.iterdir())
