"""Define the colours of all figures.

Each scale rule, format and arm (one configuration of a study) has the same colour in all figures.
The colours are those of Okabe and Ito, which colour-blind readers can distinguish. This module
imports nothing.
"""

from __future__ import annotations

#: Blue, vermilion, green, orange, purple, sky blue, black.
BLUE, VERMILION, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"
PURPLE, SKY, BLACK = "#CC79A7", "#56B4E9", "#000000"
COLOURS = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, BLACK)
#: The colour of backgrounds and of reference lines.
GRAY = "#666666"

_SCALE_RULES = {
    "floor": VERMILION, "rceil": BLUE, "even": GREEN, "ceil": ORANGE, "half_up": PURPLE, "floor_plus_one": BLACK,
    "nearest": VERMILION, "four_over_six_absolute": GREEN, "four_over_six_squared": PURPLE,
}  # fmt: skip
_FORMATS = {
    "e4m3": BLUE, "e5m2": SKY, "e3m2": PURPLE, "e2m3": ORANGE, "e2m1": VERMILION, "nvfp4": GREEN, "e3m0": ORANGE,
    "int8": BLACK, "int4": PURPLE, "mxfp8_e4m3": BLUE, "mxfp8_e5m2": SKY, "mxfp6_e3m2": PURPLE, "mxfp6_e2m3": ORANGE,
    "mxfp4_e2m1": VERMILION, "mxfp4_e3m0": ORANGE, "mxint8": BLACK, "mxint4": PURPLE,
}  # fmt: skip
_ARMS = {
    "FP32": BLACK, "float32": BLACK, "bf16": SKY, "E4M3": BLUE, "E2M1": VERMILION, "LN E2M1": PURPLE,
    "E2M1, LN FP32": ORANGE, "E4M3 rceil": SKY, "E2M1 even": GREEN, "E2M1 rceil": ORANGE,
}  # fmt: skip
_OF = _SCALE_RULES | _FORMATS | _ARMS


def colour(name: str, position: int = 0) -> str:
    """Return the colour of a scale rule, a format or an arm.

    If `name` is an arm's name followed by a learning rate, the rate is ignored. For an unknown
    name, return the colour of `COLOURS` at index `position`, which wraps around at the end.

    >>> colour("floor"), colour("mxfp8_e4m3") == colour("E4M3") == colour("E4M3, rate 0.034")
    ('#D55E00', True)
    """
    return _OF.get(name.partition(", rate ")[0], COLOURS[position % len(COLOURS)])
