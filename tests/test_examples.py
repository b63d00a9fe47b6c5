"""Tests that every example in the README and in docstrings gives what it says."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in sorted((ROOT / "mxnum").rglob("*.py"))
    if re.search(r"^ *>>> ", path.read_text(), re.M)
]


def test_readme():
    path, flags = str(ROOT / "README.md"), doctest.NORMALIZE_WHITESPACE
    failed, tried = doctest.testfile(path, module_relative=False, optionflags=flags)
    assert tried >= 12
    assert failed == 0


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    if name.startswith("mxnum.lab.language_model"):
        pytest.importorskip("torch", reason="torch is not installed")
    failed, tried = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert tried > 0
    assert failed == 0
