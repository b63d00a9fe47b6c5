"""Tests of ``mxnum unit``."""

from __future__ import annotations

import json

from mxnum.units.identify import Problem, Rule, evaluate, first_cases
from mxnum.units.identify.text import write_cases

_PROBLEM = Problem("float16", "float16", 4)


def test_probe_writes_the_first_cases(run, tmp_path):
    text = run("unit", "probe", "--operands", "float16", "-k", "4", "--count", "20")
    assert text == write_cases(_PROBLEM, first_cases(_PROBLEM, 20))
    path = tmp_path / "cases.txt"
    run("unit", "probe", "--operands", "float16", "-k", "4", "--count", "20", "-o", str(path))
    assert path.read_text() == text


def test_identify_reads_answers(run, tmp_path):
    cases = first_cases(_PROBLEM, 40)  # too few to tell all rules apart
    path, further = tmp_path / "answers.txt", tmp_path / "more.txt"
    path.write_text(write_cases(_PROBLEM, cases, evaluate(Rule(4, fraction_bits=23), _PROBLEM, cases)))
    found = json.loads(run("unit", "identify", str(path), "--json", "--further", str(further)))
    assert "volta_float16" in found["registered"]
    assert 23 in found["fields"]["fraction_bits"]
    assert further.read_text().startswith("# mxnum-unit 1\n# a: float16\n")


def test_identify_ends_with_status_1_if_no_rule_fits(run, tmp_path):
    cases = first_cases(_PROBLEM)
    answers = evaluate(Rule(4, fraction_bits=23), _PROBLEM, cases) ^ 5
    path = tmp_path / "answers.txt"
    path.write_text(write_cases(_PROBLEM, cases, answers & 0x7F7FFFFF))
    assert "No rule of the family" in run("unit", "identify", str(path), status=1)
