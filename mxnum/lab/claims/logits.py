"""The check of what the gradient of the logits does to a small language model: B11.

The tests and their limits are those of `docs/lab/results/logits/README.md`, written before the study was run.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from mxnum.lab.claims import last_layer
from mxnum.lab.claims.decoders import ONE_SOURCE, gaps
from mxnum.lab.claims.evidence import Comparison, Evidence, Statement
from mxnum.lab.claims.judged import decided, unanimous
from mxnum.lab.claims.registry import Context, check
from mxnum.lab.studies.inference import sign_flip

STUDY, MORE, MOST = (f"logits/{name}.json" for name in ("logits", "logits-more", "logits-4096"))
#: How far above the entropy float32 is at it.
AT_THE_ENTROPY = 0.02
#: The same until float32 is near the entropy, and what counts as near (by the README, too).
LONG = {
    f"logits/logits-{name}.json": near
    for name, near in (("256-long", 0.1), ("1024-long", 0.1), ("4096-long", 0.1), ("4096-rest", 0.1),
                       ("4096-classes", AT_THE_ENTROPY))
}  # fmt: skip
#: All arms of the first two until float32 is at the entropy, and four of them without Adam.
CONVERGED, DESCENT = "logits/logits-converged.json", "logits/logits-sgd.json"
#: Where nothing but targets overflows, and where p is just below a power of two.
FAR, BELOW = "logits/logits-24.json", "logits/logits-1024-classes.json"
#: Factors in other formats.
FACTORS = "logits/logits-factors.json"
#: Studies beside the first, which the check takes where they are there.
FURTHER = (MORE, MOST, *LONG, CONVERGED, DESCENT, FAR, BELOW, FACTORS)
#: What is trained where the stored study is not at hand: one seed, half of the steps.
QUICK: dict[str, dict[str, Any]] = {
    "float32": {},
    "last x 1": {"where": "last", "recipe": {"gradients": "mxfp8_e4m3"}},
    "last x 2^(2/8)": {"where": "last", "recipe": {"gradients": "mxfp8_e4m3"}, "factor": 1.189207},
    "last x 1, rceil": {"where": "last", "recipe": {"gradients": {"format": "mxfp8_e4m3", "scale_rule": "rceil"}}},
}
QUICK_SEED, QUICK_STEPS = 10090111, 200
#: Limits of the README.
SIZE, SIZE_REFUTED, BIAS, BIAS_REFUTED, NEAR_ENOUGH = 0.015, 0.03, 0.005, 0.02, 0.05
ALIKE, OTHER = 0.01, 0.02


def leaves(what: str, left: Sequence[float], whole: Sequence[float]) -> Statement:
    """A fifth of the gap holds, a half refutes."""
    share = float(np.mean(left) / np.mean(whole))
    holds = decided(share < 0.2, share > 0.5)
    p = f", p {sign_flip(list(np.subtract(whole, left))):.2g} on {len(left)} seeds" if len(left) > 1 else ", one seed"
    return Statement(what, holds, f"{np.mean(left):+.4f} of {np.mean(whole):+.4f} nats, {share:.0%}{p}")


@check("B11")
def overflowing_logits(context: Context) -> Evidence:
    """The seven tests of the stored study; or, without it, the first and the fifth on one seed."""
    if context.has(STUDY):
        found = _of_the_study(context.json(STUDY))
        further: tuple[tuple[Callable[..., Sequence[Statement]], tuple[str, ...]], ...] = (
            (_of_other_settings, (MORE,)), (_of_many_symbols, (MOST,)),
            *((partial(_trained_longer, near=near), (name,)) for name, near in LONG.items()),
            (_to_the_end, (CONVERGED,)), (_without_adam, (DESCENT, CONVERGED)), (_far_from_a_power_of_two, (FAR,)),
            (_just_below_one, (BELOW,)), (_of_factors, (FACTORS,)), (_without_notice, (FACTORS, CONVERGED)),
        )  # fmt: skip
        told = [
            statement
            for statements_of, names in further if all(map(context.has, names))
            for statement in statements_of(*map(context.json, names))
        ]  # fmt: skip
        for of_the_last_layer in last_layer.STATEMENTS:
            told += of_the_last_layer(context)
        statements = (*found.statements, *told)
        return replace(found, statements=statements, answer=_answer(context, statements))
    missing = [name for name in ("torch", "scipy") if importlib.util.find_spec(name) is None]
    if missing:
        return Evidence(note=f"To train it here, install {missing[0]} (extras torch and experiments).")
    return _of_one_seed(_trained(context))


def _what_decides(table: dict[str, Any], sequences: int) -> Sequence[Statement]:
    """The tests that `logits` and `logits-converged` share."""
    one, everywhere = gaps(table, "last x 1"), gaps(table, "all")
    centred, drawn = gaps(table, "last x 1, centred"), gaps(table, "last x 1, stochastic")
    kept = float(np.mean(drawn) / np.mean(one))
    worse = all(a > b for a, b in zip(one, centred, strict=True))
    return (
        leaves("it is overflow: factors from 2^(2/8) to 2^(7/8) take it away", _mended(table), one),
        Statement(
            "the drift hurts: centring the rounded gradient ends lower on every seed", worse,
            f"{np.mean(centred):+.4f} against {np.mean(one):+.4f} nats",
        ),
        Statement("it is not rounding: stochastic rounding keeps at least half", kept >= 0.5, f"{kept:.0%}"),
        leaves("the rule rceil takes it away", gaps(table, "last x 1, rceil"), one),
        leaves("a batch that is no power of two takes it away", gaps(table, f"last x 1, {sequences} sequences"), one),
        leaves("it is the last layer: E4M3 in all others has none of it", gaps(table, "all but last"), everywhere),
        leaves("E4M3 everywhere with rceil has none of it", gaps(table, "all, rceil"), everywhere),
    )  # fmt: skip


def _of_the_study(table: dict[str, Any]) -> Evidence:
    statements = (*_what_decides(table, 12), *_biases(table))
    comparisons = tuple(
        Comparison(what, table["arms"][arm]["at_rest"], float(np.mean(gaps(table, arm))), SIZE)
        for what, arm in (
            ("gap at rest, where nothing drifts, in nats", "last x 1, centred"),
            ("the same at 2^(1/8)", "last x 2^(1/8)"),
        )
    )
    note = (
        f"Where it fails: E2M1 costs {np.mean(gaps(table, 'last x 1, E2M1')):.2f} nats and NVFP4 "
        f"{np.mean(gaps(table, 'last x 1, NVFP4')):.3f}, as their other "
        "components are not right on average, which the derivation assumes. One model, one source, one N."
    )
    number = f"{np.mean(gaps(table, 'last x 1')):.2f} nats"
    configuration = {"study": "logits", "seeds": len(gaps(table, "all"))}
    return Evidence(comparisons, statements, f"{note} {ONE_SOURCE}", configuration, number=number)


def _answer(context: Context, statements: Sequence[Statement]) -> str:
    """Return what overflow costs, and how far off the size is that the kernels predict, near the entropy and not."""
    table = context.json(CONVERGED if context.has(CONVERGED) else STUDY)
    one, left = (float(np.mean(gaps(table, arm))) for arm in ("last x 1", "last x 1, rceil"))
    if not unanimous(s for s in statements if "it is overflow" in s.what):
        return ""
    off: dict[str, list[float]] = {"near": [], "farther from it": [], "in 4 bits": []}
    for name in filter(context.has, (STUDY, *FURTHER)):
        each = context.json(name)
        for arm, found in each["arms"].items():
            recipe = str(found["experiment"]["recipe"].get("gradients"))
            if ", centred" in arm and found.get("sampled_rest") is not None:
                near = _above(each, each["controls"].get(arm, each["control"])) < AT_THE_ENTROPY
                kind = ("near" if near else "farther from it") if "mxfp8" in recipe else "in 4 bits"
                if "mxfp6" not in recipe:
                    off[kind].append(abs(float(np.mean(gaps(each, arm))) - found["sampled_rest"]))
    sizes = {kind: f"{max(values):.3f}" for kind, values in off.items() if values}
    told = "near" in sizes and len(sizes) > 1
    met = (
        f" With float32 near the entropy the size that the kernels predict is met to {sizes.pop('near', '')} in 8 bits"
    )
    missed = ", ".join(f"{kind} ({size} off)" for kind, size in sizes.items())
    return (
        f"Under floor the target's gradient overflows: E4M3 loses {one:.2f} nats, of which rceil leaves {left:.4f}."
        + (f"{met}. Not met: {missed}." if told else "")
    )


def _sized(
    table: dict[str, Any], what: str, arms: Sequence[str], within: float = SIZE, refuted: float = SIZE_REFUTED
) -> Statement:
    """Whether gaps are what the analysis has at rest."""
    rest = {arm: table["arms"][arm]["at_rest"] for arm in arms}
    off = max(abs(float(np.mean(gaps(table, arm))) - rest[arm]) for arm in arms)
    holds = decided(off <= within, off > refuted)
    numbers = (f"{arm} {np.mean(gaps(table, arm)):+.4f}, predicted {rest[arm]:.4f}" for arm in arms)
    return Statement(what, holds, "; ".join(numbers))


def _above(table: dict[str, Any], control: str = "float32") -> float:
    """How far float32 ends above the entropy."""
    return float(np.mean([run["evaluation"] - run["entropy"][1] for run in table["arms"][control]["runs"]]))


def _of_many_symbols(table: dict[str, Any]) -> Sequence[Statement]:
    """The test of `logits-4096`."""
    rceil = gaps(table, "E4M3, rceil")
    found = _sized(table, "with 4,096 symbols, after 1,600 steps, it is at rest where it should be", ("E4M3, centred",))
    rest = [table["arms"]["E4M3, centred"]["at_rest"]] * len(rceil)
    return (
        replace(found, numbers=f"{found.numbers}; float32 is {_above(table):.2f} above the entropy and not at rest"),
        leaves("with 4,096 symbols the rule rceil takes away what is predicted", rceil, rest),
    )


def _trained_longer(table: dict[str, Any], near: float) -> Sequence[Statement]:
    """The test of the long studies, which says nothing where float32 is not near the entropy."""
    above, setting = _above(table), table["arms"]["float32"]["experiment"]
    tokens = setting["steps"] * setting["sequences"] * setting["context"]
    of_classes = f" of {setting['classes']} classes" if setting.get("classes") else ""
    trained = f"with {setting['vocabulary']:,} symbols{of_classes} and {tokens / 1e6:.1f} million tokens"
    what = f"{trained} it is at rest where it should be"
    found = _sized(table, what, ("E4M3, centred",))
    sampled = table["arms"]["E4M3, centred"].get("sampled_rest")
    by_kernels = "" if sampled is None else f" ({sampled:.4f} by the kernels)"
    seeds = f"{len(gaps(table, 'E4M3, centred'))} seeds"
    numbers = f"{found.numbers}{by_kernels}, {seeds}; float32 is {above:.3f} above the entropy"
    return [replace(found, holds=found.holds if above < near else None, numbers=numbers)]


def _of_other_settings(table: dict[str, Any]) -> Sequence[Statement]:
    """The tests of `logits-more`: other formats, smoothed labels, larger vocabularies."""
    one, sizes = gaps(table, "E4M3"), (256, 1024)
    return (
        _sized(
            table,
            "it is the largest mantissa of a format: E5M2 and E3M2 are at rest where E4M3 is, E2M3 has no gap",
            ("E5M2, centred", "E3M2, centred", "E2M3"),
        ),
        *(
            leaves(f"labels smoothed by {share} take it away", gaps(table, f"E4M3, smoothing {share}"), one)
            for share in (0.1, 0.2)
        ),
        _sized(
            table,
            "in larger vocabularies it is at rest where it should be",
            [f"E4M3, centred, vocabulary {size}" for size in sizes],
        ),
        *(
            leaves(
                f"with a vocabulary of {size} the rule rceil takes away what is predicted",
                (left := gaps(table, f"E4M3, rceil, vocabulary {size}")),
                [table["arms"][f"E4M3, centred, vocabulary {size}"]["at_rest"]] * len(left),
            )
            for size in sizes
        ),
    )  # fmt: skip


def _mended(table: dict[str, Any]) -> list[float]:
    """The gaps where a factor should take them away, means over the factors."""
    found: list[float] = np.mean([gaps(table, f"last x 2^({k}/8)") for k in range(2, 8)], axis=0).tolist()
    return found


def _to_the_end(table: dict[str, Any]) -> Sequence[Statement]:
    """The tests of `logits-converged`, which say nothing where float32 is not at the entropy."""
    mended, above = _mended(table), _above(table)
    below = float(np.mean(mended))
    centred = _sized(
        table,
        "centring leaves what was derived where other components are not right on average",
        ("E2M1, centred", "E2M1, rceil, centred", "NVFP4, centred"),
        2 * SIZE, 2 * SIZE_REFUTED,
    )  # fmt: skip
    plain = gaps(table, "NVFP4")
    lower = sum(a < b for a, b in zip(plain, gaps(table, "NVFP4, centred"), strict=True))
    repair = f"; NVFP4 not centred {np.mean(plain):+.4f}, lower on {lower} of {len(plain)} seeds"
    found = (
        _sized(
            table,
            "it has the size that was derived",
            ("last x 1, centred", "E5M2, centred", "E3M2, centred", "last x 2^(1/8), centred", "E2M3"),
        ),
        *_what_decides(table, 24),
        leaves("labels smoothed by 0.1 take it away", gaps(table, "E4M3, smoothing 0.1"), gaps(table, "last x 1")),
        Statement(
            "where a factor takes it away, it ends where float32 does",
            decided(abs(below) <= BIAS, abs(below) > BIAS_REFUTED),
            f"{below:+.4f} nats, below float32 on {sum(gap < 0 for gap in mended)} of {len(mended)} seeds",
        ),
        replace(centred, numbers=centred.numbers + repair),
    )
    start = f"trained until float32 is {above:.3f} above the entropy: "
    near = above < AT_THE_ENTROPY
    return [replace(s, what=start + s.what, holds=s.holds if near else None) for s in found]


def _without_adam(table: dict[str, Any], adam: dict[str, Any]) -> Sequence[Statement]:
    """The tests of `logits-sgd`, beside the same seeds with Adam."""
    arm = "last x 1, centred"
    pairs = list(zip(gaps(table, arm), gaps(adam, arm), strict=False))
    above, apart = all(a > b for a, b in pairs), float(np.mean([a - b for a, b in pairs]))
    return [
        _sized(table, "with SGD instead of Adam it is at rest where it should be", (arm,), BIAS, SIZE),
        Statement(
            "it is Adam that rests below what was derived: SGD ends above it on every seed",
            decided(above, apart < 0), f"{apart:+.4f} nats on {len(pairs)} seeds",
        ),
    ]  # fmt: skip


def _far_from_a_power_of_two(table: dict[str, Any]) -> Sequence[Statement]:
    """The test of `logits-24`."""
    what = "with 24 choices, where nothing but targets overflows, it is at rest where it should be"
    found = _sized(table, what, ("E4M3, centred", "E4M3, centred, 4096"))
    above = [_above(table, control) for control in ("float32", "float32, 4096")]
    numbers = f"{found.numbers}; float32 is {above[0]:.3f} and {above[1]:.3f} above the entropy"
    return [replace(found, holds=found.holds if max(above) < NEAR_ENOUGH else None, numbers=numbers)]


def _just_below_one(table: dict[str, Any]) -> Sequence[Statement]:
    """The test of `logits-1024-classes`, whose prediction needs float32's own excess."""
    above, gap = _above(table), float(np.mean(gaps(table, "E4M3, centred")))
    setting, arm = table["arms"]["float32"]["experiment"], table["arms"]["E4M3, centred"]
    off = abs(gap - arm["sampled_rest"])
    numbers = f"{gap:+.4f}, predicted {arm['sampled_rest']:.4f} by the kernels, {arm['at_rest']:.4f} by "
    symbols = f"{setting['vocabulary']:,} symbols of {setting['classes']} classes"
    what = f"with {symbols} it is at rest where pushes that overflow put it"
    holds = decided(off <= BIAS, off > SIZE) if above < AT_THE_ENTROPY else None
    return [Statement(what, holds, f"{numbers}targets alone; float32 is {above:.3f} above the entropy")]


def _by_the_kernels(table: dict[str, Any], what: str, arms: Sequence[str], within: float = SIZE) -> Statement:
    """Whether gaps are those at which logits rest by the kernels; one that is off by twice the limit refutes it."""
    pairs = {arm: (float(np.mean(gaps(table, arm))), table["arms"][arm]["sampled_rest"]) for arm in arms}
    off = max(abs(gap - rest) for gap, rest in pairs.values())
    numbers = (
        f"{arm.removesuffix(', centred')} {gap:+.4f}, predicted {rest:.4f}" for arm, (gap, rest) in pairs.items()
    )
    return Statement(what, decided(off <= within, off > 2 * within), "; ".join(numbers))


def _of_factors(table: dict[str, Any]) -> Sequence[Statement]:
    """Four of the tests of `logits-factors`."""
    gap = {arm: float(np.mean(gaps(table, arm))) for arm in table["arms"] if arm.endswith(", centred")}
    plain = [arm for arm in gap if not any(word in arm for word in ("rceil", "stochastic", "spread", "NVFP4"))]
    half, quarter = "E5M2 x 2^(4/8)", "E5M2 x 2^(2/8)"
    left = gap[f"{half}, stochastic, centred"] / gap[f"{half}, centred"]
    apart = max(abs(gap[f"{at}, rceil, centred"] - gap[f"{at}, centred"]) for at in (half, quarter))
    spread, usual = (f"{at}, spread, centred" for at in (half, "E4M3 x 1"))
    off = abs(gap[usual] - table["arms"][usual]["sampled_rest"])
    return (
        _by_the_kernels(
            table, "a factor leaves what the kernels say in formats of 6 and 8 bits",
            [arm for arm in plain if not arm.startswith("E2M1")],
        ),
        Statement(
            "where nothing overflows, what is left is rounding to nearest: stochastic rounding leaves less than a "
            "fifth, and rceil does not help",
            decided(left < 0.2 and apart <= ALIKE, left > 0.5 or apart > OTHER),
            f"E5M2 at 2^(4/8) {gap[f'{half}, centred']:+.4f}, stochastic {gap[f'{half}, stochastic, centred']:+.4f}; "
            f"rceil is off by {apart:.4f} at most",
        ),
        _by_the_kernels(
            table, "a factor leaves what the kernels say in E2M1",
            [arm for arm in plain if arm.startswith("E2M1")] + ["E2M1 x 2^(4/8), rceil, centred"], 2 * SIZE,
        ),
        Statement(
            "rounding to nearest averages out where probabilities are spread",
            decided(gap[spread] < ALIKE and off <= SIZE, gap[spread] > OTHER or off > SIZE_REFUTED),
            f"E5M2 at 2^(4/8) {gap[spread]:+.4f}; E4M3 without a factor {gap[usual]:+.4f}, predicted "
            f"{table['arms'][usual]['sampled_rest']:.4f}",
        ),
    )  # fmt: skip


def _without_notice(factors: dict[str, Any], converged: dict[str, Any]) -> Sequence[Statement]:
    """The other one: NVFP4's tensor scale goes with the factor."""
    pair = [
        float(np.mean(gaps(table, arm)))
        for table, arm in ((factors, "NVFP4 x 2^(4/8), centred"), (converged, "NVFP4, centred"))
    ]
    off = abs(pair[0] - pair[1])
    numbers = f"{pair[0]:+.4f} nats with a factor of 2^(4/8), {pair[1]:+.4f} without"
    return [Statement("NVFP4 does not notice a factor", decided(off <= ALIKE, off > OTHER), numbers)]


def _biases(table: dict[str, Any]) -> Sequence[Statement]:
    """The relative change of the targets' pull, beside the analysis at the probabilities of the run."""
    groups: dict[str, list[float]] = {"in E4M3 and E2M1": [], "in NVFP4": []}
    for arm in table["arms"]:
        runs = [
            run for run in table["arms"][arm]["runs"] if run["predicted_bias"] and "gradient_bias" in run["measured"]
        ]
        off = [np.mean(run["measured"]["gradient_bias"]) - np.mean(run["predicted_bias"]) for run in runs]
        if off and "stochastic" not in arm:
            groups["in NVFP4" if "NVFP4" in arm else "in E4M3 and E2M1"].append(float(abs(np.mean(off))))
    return [
        Statement(
            f"the analysis gives the bias {formats} to within {BIAS}",
            decided(max(off) <= BIAS, max(off) > BIAS_REFUTED),
            f"off by {max(off):.4f} at most",
        )
        for formats, off in groups.items()
    ]


def _trained(context: Context) -> dict[str, Any]:
    """The quick arms, as a table like that of the study."""
    from mxnum.lab.language_model import Setting, train

    base = Setting(choices=16, context=32, sequences=16, layers=1, steps=QUICK_STEPS)
    arms = {}
    for name, changes in QUICK.items():
        context.tell(name)
        run = train(base.but(**changes), QUICK_SEED)
        arms[name] = {"runs": [{"seed": QUICK_SEED, "evaluation": run.evaluation}]}
    return {"control": "float32", "controls": {}, "arms": arms}


def _of_one_seed(table: dict[str, Any]) -> Evidence:
    one = gaps(table, "last x 1")
    statements = (
        Statement("E4M3 in the gradient of the logits alone costs something", one[0] > 0, f"{one[0]:+.4f} nats"),
        leaves("it is overflow: the factor 2^(2/8) takes it away", gaps(table, "last x 2^(2/8)"), one),
        leaves("the rule rceil takes it away", gaps(table, "last x 1, rceil"), one),
        Statement("the other tests", None, "`mxnum lab language-model logits` makes them"),
    )
    note = f"One seed and {QUICK_STEPS} steps, trained here; the study has six seeds and 400 steps."
    cost, left = one[0], gaps(table, "last x 1, rceil")[0]
    answer = (
        f"On one seed E4M3 in the gradient of the logits {'costs' if cost > 0 else 'gains'} {abs(cost):.3f} nats, of "
        f"which rceil leaves {left:.3f}. Undecided: the derived size, which the study of six seeds measures."
    )
    configuration = {"seed": QUICK_SEED, "steps": QUICK_STEPS}
    return Evidence((), statements, note, configuration, answer, f"{cost:.2f} nats")
