from __future__ import annotations

import dataclasses

import pytest

from mxnum.conformance import check
from mxnum.conformance.operations import DECIDES, OPERATIONS, make_task, task_of
from mxnum.formats import MXFormat


def deciding(operation, **modes):
    """Return the modes that affect an operation; for `mma`, return only a matrix unit."""
    if operation == "mma":
        return {"accumulate": "blackwell_mxfp8"}
    return {name: mode for name, mode in modes.items() if operation in DECIDES[name]}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(
    "modes",
    [
        {},
        {"source": "bfloat16", "rounding": "sr", "sr_bits": 9, "overflow": "ieee"},
        {"nonfinite": "element", "scale_rule": "even", "block": 8, "accumulate": "exact"},
    ],
)
def test_the_header_states_the_task(operation, modes):
    task = make_task(operation, "mxfp6_e3m2", **deciding(operation, **modes))
    again = task_of(task.header())
    assert again.header() == task.header()
    assert (again.inputs, again.outputs) == (task.inputs, task.outputs)


def test_fields():
    task = make_task("quantize", "mxfp4_e2m1", rounding="sr", source="float16")
    assert [(f.name, f.bits, f.count) for f in task.inputs] == [("x", 16, 32), ("random", 32, 32)]
    assert [(f.name, f.digits, f.count) for f in task.outputs] == [("scale", 2, 1), ("codes", 1, 32)]
    assert make_task("encode", "e5m2").format.name == "mxfp8_e5m2"


def test_mistakes():
    with pytest.raises(ValueError, match="'operation' must be one of"):
        make_task("encod", "mxfp8_e4m3")
    with pytest.raises(ValueError, match="'nonfinite' must be one of"):
        make_task("quantize", "mxfp8_e4m3", nonfinite="raise")
    with pytest.raises(ValueError, match="'sr_bits' must be between 1 and 30"):
        make_task("encode", "mxfp8_e4m3", rounding="sr", sr_bits=31)
    with pytest.raises(ValueError, match=r"'modes' must be one of \['source', .*'sr_bit'; did you mean 'sr_bits'"):
        check(lambda x: x, format="mxfp8_e4m3", sr_bit=8)
    with pytest.raises(ValueError, match="must have a line '# format"):
        task_of({"operation": "encode"})
    head = {"operation": "quantize", "format": "mxfp6_e3m2"}
    for wrong, meant in (("scale-rule", "scale_rule"), ("Rounding", "rounding"), ("overfow", "overflow")):
        with pytest.raises(ValueError, match=rf"has a line '# {wrong}: \.\.\.'; did you mean '# {meant}: "):
            task_of(head | {wrong: "rceil"})
    assert task_of(head | {"from": "the simulation of Tuesday"}) == make_task(*head.values())
    with pytest.raises(ValueError, match=r"must have a line '# sr_bits: \.\.\.' if it has '# rounding: sr'"):
        task_of(head | {"rounding": "sr"})


@pytest.mark.parametrize("operation", OPERATIONS)
def test_modes_without_effect_raise(operation):
    # Regression: only the command `mxnum vectors` raised an error for a mode without effect.
    every = {
        "source": "float16", "rounding": "rtz", "scale_rule": "rceil", "overflow": "ieee", "nonfinite": "element",
        "accumulate": "exact", "dot_blocks": 2, "block": 32, "k": 32,
    }  # fmt: skip
    required = deciding(operation)
    assert {*every, "sr_bits"} == set(DECIDES)
    for name, mode in every.items():
        if operation in DECIDES[name]:
            if name not in required:
                make_task(operation, "mxfp8_e4m3", **required, **{name: mode})
            continue
        with pytest.raises(
            ValueError, match=f"'{name}' must be left out for '{operation}'; it is for {DECIDES[name][0]}"
        ):
            make_task(operation, "mxfp8_e4m3", **required, **{name: mode})


def test_random_bits_that_are_not_drawn_are_refused():
    with pytest.raises(ValueError, match="'sr_bits' must be left out for rounding='rna', which draws no random bits"):
        check(lambda x: x, format="mxfp8_e4m3", rounding="rna", sr_bits=8)
    with pytest.raises(ValueError, match="'sr_bits' must be left out for rounding='rne'"):
        task_of({"operation": "encode", "format": "e4m3", "sr_bits": "8"})


@pytest.mark.parametrize("operation", [name for name in OPERATIONS if name != "mma"])  # a unit fixes the format
@pytest.mark.parametrize("text", ["e3m4:bias=3,block=16", "e4m3:specials=none", "int6:block=5", "e2m1:bias=-3,block=4"])
def test_the_header_states_a_format_of_the_users(operation, text):
    task = make_task(operation, text)
    element = dataclasses.replace(task.element, name="my own")
    mine = make_task(operation, MXFormat(element, block=task.block, name="mine"))
    for each in (task, mine):
        again = task_of(each.header())
        assert dataclasses.replace(again.element, name="") == dataclasses.replace(task.element, name="")
        assert (again.block, again.inputs, again.outputs) == (task.block, task.inputs, task.outputs)
