"""Rounding twice: when a first rounding to bfloat16 changes codes, and when it does not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import z3

from mxnum.definition.convert import make_encode
from mxnum.formats import ELEMENTS, FLOATS
from mxnum.modes import Overflow, Rounding
from mxnum.prove.sym import run
from proofs.machines import inputs
from proofs.machines.solve import BOTH, prove
from proofs.specs import conversions
from proofs.theorem import Outcome, Theorem

INNOCUOUS = (
    "Let a float32 be rounded to odd in bfloat16, and then to the element in any deterministic mode. The first "
    "rounding does not change the code, because bfloat16 keeps at least two bits more than the element. This holds for "
    "e4m3 from scale code 5 and for e5m2 from scale code 12; below, bfloat16's subnormals are too coarse. For the "
    "other elements except int8, it holds under every scale."
)
HARMFUL = (
    "If a float32 is first rounded to nearest even in bfloat16, some codes of every element change. If it is first "
    "rounded to odd, some codes change in e4m3 under scale code 4, in e5m2 under scale code 11, and in int8, which has "
    "only one bit less than bfloat16. `WITNESSES` has a float32 for each case; the second rounding is to nearest even."
)
LEAST_SCALE = {"e4m3": 5, "e5m2": 12, "e3m2": 0, "e2m3": 0, "e2m1": 0, "e3m0": 0, "int4": 0}
#: (element, first rounding, float32 pattern, scale code) for which rounding through bfloat16 gives
#: another code than rounding directly.
WITNESSES = (
    ("e4m3", "rne", 0x52AFE000, 172),
    ("e5m2", "rne", 0x001A0058, 12),
    ("e3m2", "rne", 0x000B9000, 1),
    ("e2m3", "rne", 0x00740777, 0),
    ("e2m1", "rne", 0x115F8000, 33),
    ("int8", "rne", 0x17810077, 47),
    ("e3m0", "rne", 0x7D402751, 249),
    ("int4", "rne", 0x3FA07000, 128),
    ("e4m3", "rto", 0x0015C000, 4),
    ("e5m2", "rto", 0x0001C416, 11),
    ("int8", "rto", 0x13E18000, 39),
)
ONE = 127
DETERMINISTIC = tuple(rounding for rounding in conversions.ROUNDINGS if rounding != "sr")


def encoder(source: str, target: str, rounding: str, overflow: str = "saturate") -> Callable[..., Any]:
    """Return the Python function that encodes numbers of format `source` in format `target`."""
    formats = {**FLOATS, **ELEMENTS}
    return make_encode(formats[source], formats[target], Rounding(rounding), Overflow(overflow))


def innocuous(element: str, rounding: str) -> Outcome:
    """Prove the statement `INNOCUOUS` for an element and the mode of the second rounding."""
    x, scale, unread = inputs.pattern("x", 32), inputs.scale(), z3.BitVecVal(0, 32)
    wide_scale = inputs.natural(scale, 32)
    narrow, _ = run(encoder("float32", "bfloat16", "rto"), x, z3.BitVecVal(ONE, 32), unread)
    goals = []
    for overflow in conversions.OVERFLOWS:
        once, _ = run(encoder("float32", element, rounding, overflow), x, wide_scale, unread)
        twice, _ = run(encoder("bfloat16", element, rounding, overflow), narrow, wide_scale, unread)
        goals.append(once == twice)
    finite = z3.ULT(x & 0x7FFF_FFFF, 0x7F80_0000)
    premises = [finite, z3.UGE(scale, LEAST_SCALE[element])]
    example = ((x, 0), (scale, ONE))
    return prove(premises, z3.And(*goals), engines=BOTH, show=(x, scale), example=example)


def harmful() -> Outcome:
    """Check the statement `HARMFUL` by running the kernels on the witnesses."""
    for element, first, x, scale in WITNESSES:
        narrow = encoder("float32", "bfloat16", first)(x, ONE, 0)
        once = encoder("float32", element, "rne")(x, scale, 0)
        twice = encoder("bfloat16", element, "rne")(narrow, scale, 0)
        if once == twice:
            return Outcome("refuted", "run", 0.0, f"{element} after {first}: {x:#x} gives {once:#x} both ways")
    return Outcome("proved", "run", 0.0)


def theorems() -> list[Theorem]:
    found = []
    for element, least in LEAST_SCALE.items():
        for rounding in DETERMINISTIC:
            kernels = [encoder("float32", "bfloat16", "rto")]
            for overflow in conversions.OVERFLOWS:
                kernels += [encoder(source, element, rounding, overflow) for source in ("float32", "bfloat16")]
            found.append(
                Theorem(
                    name=f"double-rounding/innocuous/{element}/{rounding}",
                    statement=INNOCUOUS,
                    kernels=tuple(kernel.__name__ for kernel in kernels),
                    check=partial(innocuous, element, rounding),
                    hypotheses=("x is any finite float32", f"scale is any E8M0 code from {least} on"),
                    tier="fast" if rounding == "rne" else "full",
                    functions=tuple(kernels),
                )
            )
    kernels = [encoder("float32", "bfloat16", first) for first in ("rne", "rto")]
    kernels += [encoder(source, element, "rne") for source in ("float32", "bfloat16") for element in ELEMENTS]
    found.append(
        Theorem(
            name="double-rounding/harmful",
            statement=HARMFUL,
            kernels=tuple(kernel.__name__ for kernel in kernels),
            check=harmful,
            hypotheses=("x and scale are those listed in `WITNESSES`",),
            functions=tuple(kernels),
        )
    )
    return found
