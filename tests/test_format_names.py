"""Tests of the names that people use for formats, and of the messages for ambiguous names."""

from __future__ import annotations

import pytest

import mxnum as mx
from mxnum import formats

NAMES = ("mxfp8_e4m3", "mxfp8_e5m2", "mxfp4_e2m1", "mxint8")


@pytest.mark.parametrize(
    ("name", "meant"),
    [("mxfp8_e4m3", "mxfp8_e4m3"), ("MXFP8-E5M2", "mxfp8_e5m2"), ("MXFP4", "mxfp4_e2m1"), ("mxInt8", "mxint8")],
)
def test_names_as_people_write_them(name, meant):
    assert formats.find("format", name, NAMES) == meant
    assert formats.meant("format", name, NAMES) == meant
    # Regression: `formats.get` raised ValueError for other spellings of a name.
    assert formats.get(name) is formats.get(meant)


def test_unknown_names_raise():
    assert formats.find("format", "e9", NAMES) is None
    with pytest.raises(ValueError, match=r"must be one of .*, not 'e9'"):
        formats.meant("format", "e9", NAMES)
    with pytest.raises(TypeError, match=r"must be one of .*, not 4"):
        formats.meant("format", 4, NAMES)


def test_functions_accept_names_in_any_spelling():
    assert formats.get("MXFP4:block=16") == formats.get("mxfp4_e2m1:block=16")
    assert formats.get("E3M4:bias=3") == formats.get("e3m4:bias=3")
    assert formats.element("E4M3") == formats.element("e4m3")
    assert mx.quantize([1.0], "MXFP4").format.name == "mxfp4_e2m1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("MXFP8", "must be 'mxfp8_e4m3' or 'mxfp8_e5m2', not 'MXFP8', which may mean either"),
        ("mxfp6:block=16", "must be 'mxfp6_e3m2' or 'mxfp6_e2m3', not 'mxfp6', which may mean either"),
        ("E3M4", "or written out with a colon like 'E3M4:block=32', not 'E3M4'"),
    ],
)
def test_messages_for_ambiguous_and_wrong_names(text, message):
    with pytest.raises(ValueError, match=message):
        formats.get(text)


@pytest.mark.parametrize("name", ["e2m2", "int5"])
def test_message_for_an_element_without_a_name_shows_its_notation(name):
    # Regression: the message suggested e5m2 in place of e2m2.
    with pytest.raises(ValueError, match=f"or written out with a colon like '{name}:', not '{name}'"):
        formats.element(name)
    assert formats.element(f"{name}:").bits == 5
