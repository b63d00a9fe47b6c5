from __future__ import annotations

import mxnum as mx


def test_list(run):
    printed = run("formats")
    assert all(name in printed for name in mx.formats.names())
    assert [row["format"] for row in run.json("formats")] == list(mx.formats.names())


def test_scales(run):
    """Check that the table of formats shows the scales of nvfp4."""
    rows = {row["format"]: row for row in run.json("formats")}
    assert (rows["nvfp4"]["scale"], rows["nvfp4"]["tensor scale"]) == ("e4m3", "float32")
    assert (rows["mxint8"]["scale"], rows["mxint8"]["tensor scale"]) == ("e8m0", None)
    assert run.json("formats", "nvfp4") == rows["nvfp4"]
    head, _, *lines = [line.split() for line in run("formats").splitlines() if line.strip()]
    assert head[2:5] == ["scale", "tensor", "scale"]
    cells = {line[0]: line[1:5] for line in lines}
    assert cells["nvfp4"] == ["16", "e4m3", "float32", "4.5"]
    assert cells["mxfp4_e2m1"] == ["32", "e8m0", "none", "4.25"]


def test_values(run):
    assert run.json("formats", "e2m1", "--values")["values"] == list(mx.formats.element("e2m1").values())
    printed = run("formats", "mxfp8_e5m2", "--values")
    assert "0x7C  01111100" in printed
    assert printed.count("nan") == 6


def test_mistakes(run):
    assert "did you mean 'e2m1'?" in run("formats", "e2m11", status=2)
    assert "Option --values must be used with the name" in run("formats", "--values", status=2)


def test_a_format_of_the_users(run):
    assert "31" in run("formats", "e3m4:bias=3,block=16", "--values")
    assert run.json("formats", "e3m4:bias=3,block=16")["bits/element"] == 8.5
    assert "must set bias to an integer" in run("formats", "e3m4:bias=three", status=2)
    assert "written out with a colon like 'e2m2:block=32'" in run("formats", "e2m2", status=2)
