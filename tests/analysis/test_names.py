"""Tests that the public names of mxnum.analysis exist, have docstrings and load when used."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from mxnum import analysis


def test_every_public_name_is_defined_where_the_table_says_and_documented():
    assert sorted(analysis.__all__) == sorted({*analysis._HOMES, "synthetic"})
    for name, home in analysis._HOMES.items():
        value = getattr(analysis, name)
        assert value is getattr(importlib.import_module(f"mxnum.analysis.{home}"), name)
        assert value.__doc__, name
        assert name not in set(analysis._HOMES.values()), "a module of that name would hide the function"


def test_names_are_listed_and_unknown_ones_refused():
    assert set(analysis._HOMES) <= set(dir(analysis))
    with pytest.raises(AttributeError, match="no attribute 'gama_bias'"):
        _ = analysis.gama_bias


def test_importing_the_package_loads_none_of_them():
    code = "import mxnum, sys; print([m for m in sys.modules if m.startswith('mxnum.analysis.')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
