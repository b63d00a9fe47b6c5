"""I8: how layer norm, GELU and SwiGLU affect the stability of runs."""

from __future__ import annotations

from mxnum.lab.claims import paper_size
from mxnum.lab.claims.claim import BY_TRAINING, Claim, Context
from mxnum.lab.claims.evidence import Evidence, Statement
from mxnum.lab.claims.mlp_runs import command, is_sure, settings
from mxnum.lab.studies import report
from mxnum.lab.studies.statistics import compare, corrected

CLAIM = Claim(
    "I8",
    "Layer norm, GELU and SwiGLU",
    "With layer norm, runs in MX are unstable with GELU and most of all with SwiGLU. Removing layer norm makes "
    "runs in MX more stable, but not runs in FP32.",
    BY_TRAINING,
    "Runs in the set-up of row I6a, for each activation, with and without layer norm, on several seeds, would "
    "decide the claim.",
    needs=("ablations.json",),
    command=command("ablations"),
)
#: For each statement, the arm whose excursions should come sooner, and the arm that it is compared
#: with.
PAIRS = {
    "gelu with layer norm: E2M1 has excursions sooner than FP32": ("gelu, E2M1", "gelu, FP32"),
    "swiglu with layer norm: E2M1 has excursions sooner than FP32": ("swiglu, E2M1", "swiglu, FP32"),
    "with layer norm, E2M1 has excursions sooner with swiglu than with gelu": ("swiglu, E2M1", "gelu, E2M1"),
    "gelu without layer norm: FP32 has excursions sooner than E2M1": ("gelu, no LN, FP32", "gelu, no LN, E2M1"),
    "swiglu without layer norm: FP32 has excursions sooner than E2M1": ("swiglu, no LN, FP32", "swiglu, no LN, E2M1"),
}


@CLAIM.check
def _check(context: Context) -> Evidence:
    table = context.json("ablations.json")
    times = {
        what: (report.arm_of(table, a), report.arm_of(table, b))
        for what, (a, b) in PAIRS.items()
        if {a, b} <= set(table["arms"])
    }
    found = corrected({what: compare([pair]) for what, pair in times.items()})
    statements = []
    for what, test in found.items():
        a, b = times[what]
        comparable = report.is_followed(table) or "without" not in what
        numbers = f"excursions in {a.events} of {a.runs} runs against {b.events} of {b.runs}; {test}"
        numbers += (
            "" if comparable else "; without layer norm, a hundredfold rise of a very low loss is not an excursion"
        )
        statements.append(Statement(what, test.comes_sooner if comparable and is_sure(test) else None, numbers))
    at_size = "only GELU with layer norm was run (row I6a)" if paper_size.table(context)["arms"] else "not run"
    statements.append(Statement(f"the claim holds in E4M3 {paper_size.WHERE}", None, at_size))
    normed = [
        f"{a.events} of {a.runs} runs with {what.split()[0]} (in FP32: {b.events})"
        for what, (a, b) in times.items()
        if "with layer norm: E2M1" in what
    ]
    p = min((test.p for test in found.values() if test.p is not None), default=1.0)
    answer = (
        f"With layer norm, the loss in E2M1 jumps in {' and in '.join(normed)}. Undecided: E4M3 at the paper's size, "
        f"and whether chance explains all {len(found)} differences between arms."
    )
    open_ = bool(normed) and all(s.holds is None for s in statements)
    return Evidence((), statements, report.note(table), settings(table), answer if open_ else "", f"least p {p:.2g}")
