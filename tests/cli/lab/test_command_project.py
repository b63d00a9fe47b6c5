from __future__ import annotations

import pytest

from mxnum.lab.theory import Recipe, project


def test_usual_recipes(run):
    printed = run("lab", "project")
    shares = "account for 95.5% of the FLOPs. MLPs account for 82.1% of the linear layers' FLOPs."
    assert f"Linear layers {shares}" in printed
    for recipe, parts in {"fp4": ("fp4",), "fp8/bf16": ("fp8", "bf16"), "fp6/fp4": ("fp6", "fp4")}.items():
        (line,) = [line for line in printed.splitlines() if line.split()[:1] == [recipe]]
        assert line.split()[1] == f"{project('llama-3-405b', Recipe.of(*parts)).speed_up:.2f}"


def test_json_with_ranges_and_another_shape(run):
    got = run.json(
        "lab",
        "project",
        "fp4",
        "--attention",
        "bf16",
        "--fp4",
        "3:4",
        "--other",
        "0.2",
        "--shape",
        "llama-3-8b",
        "--layers",
        16,
    )
    assert got["shape"]["layers"] == 16
    assert got["shape"]["width"] == 4096
    assert got["parameters"]["fp4"] == [3, 4]
    (found,) = got["projections"]
    from mxnum.lab.theory import TransformerShape

    shape = TransformerShape(**got["shape"])
    for end, rate in (("low", 3.0), ("high", 4.0)):
        want = project(shape, Recipe.of("fp4", attention="bf16"), rates={"fp4": rate}, other=0.2)
        assert found[end] == pytest.approx(want.speed_up)
    assert "to" in run("lab", "project", "fp4", "--conversion", "0:0.1")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["fp5"], "A recipe must be written FORWARD or FORWARD/BACKWARD, each one of"),
        (["fp4/fp8/fp8"], "A recipe must be written"),
        (["--fp8", "fast"], "Option --fp8 must be a number, or two numbers written LOW:HIGH, not 'fast'."),
        (["--fp8", "3:2"], "Option --fp8 must be a number, or two numbers written LOW:HIGH, not '3:2'."),
        (["--fp8=-1"], "Option --fp8 must be a positive rate, not -1.0."),
        (["--other", "1"], "Option --other must be at least 0 and below 1, not 1.0."),
        (["--shape", "llama"], "Option --shape must be one of"),
        (["--layers", "0"], "Option --layers must be at least 1, not 0."),
        (["--attention", "int8"], "Option --attention must be one of"),
    ],
)
def test_what_is_refused(run, options, said):
    told = run("lab", "project", *options, status=2)
    assert said in told
    assert told.count("\n") == 1
