from __future__ import annotations

import mxnum as mx


def test_list(run):
    printed = run("formats")
    assert all(name in printed for name in mx.formats.names())
    assert [row["format"] for row in run.json("formats")] == list(mx.formats.names())


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
    assert "must give bias as an integer" in run("formats", "e3m4:bias=three", status=2)
