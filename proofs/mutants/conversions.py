"""Mutants of encoding, decoding and scale rules; each mutant has one small, plausible mistake."""

from __future__ import annotations

from proofs.mutants import probes
from proofs.mutants.mutation import Mutant, of_module
from proofs.mutants.probes import Probe


def mutants() -> list[Mutant]:
    """Return all mutants of this file."""
    return [*_unpack(), *_round(), *_pack(), *_convert(), *_scale()]


def _unpack() -> list[Mutant]:
    rne = probes.encode("e4m3", "rne")
    normalize_1 = "z = select(significand < (1 << width), 1, 0)\n            significand = significand << z"
    entries = (
        ("normalize-16-too-often", "(1 << (width - 15))", "(1 << (width - 14))", probes.difference()),
        ("normalize-8-too-seldom", "(1 << (width - 7))", "(1 << (width - 8))", probes.encode("e5m2", "rne")),
        (
            "normalize-4-distance",
            "select(significand < (1 << (width - 3)), 4, 0)",
            "select(significand < 0, 4, 0)",
            rne,
        ),
        ("normalize-1-no-exponent", f"{normalize_1}\n            exponent = exponent - z", normalize_1, rne),
        (
            "normalize-32-dropped",
            "if width >= 32:",
            "if width >= 64:",
            probes.half_range_scale("e4m3", "floor", "float64"),
        ),
        ("sign-unmasked", "sign = (code >> (BITS - 1)) & 1", "sign = code >> (BITS - 1)", rne),
        ("magnitude-keeps-sign", "magnitude = code & MAGNITUDE_MASK", "magnitude = code", rne),
        ("mantissa-mask-short", "MANTISSA_MASK = (1 << MANTISSA) - 1", "MANTISSA_MASK = (1 << MANTISSA) - 2", rne),
        ("subnormal-implicit-bit", "select(field == 0, fraction, fraction | IMPLICIT)", "(fraction | IMPLICIT)", rne),
        ("subnormal-exponent", "select(field == 0, 1, field) - BIAS", "field - BIAS", rne),
        ("bias-one-more", "select(field == 0, 1, field) - BIAS", "select(field == 0, 1, field) - BIAS - 1", rne),
        ("implicit-half", "IMPLICIT = 1 << MANTISSA", "IMPLICIT = (1 << MANTISSA) >> 1", rne),
        ("nan-from-second", "select(magnitude > MAX + 1, NAN", "select(magnitude > MAX + 2, NAN", rne),
        ("infinity-as-number", "select(magnitude > MAX, INFINITE, FINITE)", "FINITE", rne),
        (
            "element-nan-as-number",
            "kind = select(magnitude > MAX, NAN, FINITE)",
            "kind = FINITE",
            probes.decode("e4m3"),
        ),
        (
            "ones-complement",
            "(1 << (BITS - 1)) - magnitude)",
            "(1 << (BITS - 1)) - 1 - magnitude)",
            probes.decode("int8"),
        ),
        (
            "zero-exponent-kept",
            "select(significand == 0, ZERO_EXPONENT, exponent)",
            "exponent",
            probes.encode("int8", "rne", source="float16"),
        ),
        (
            *("implicit-by-addition", "fraction | IMPLICIT", "fraction + IMPLICIT", rne, "equivalent"),
            "the fraction has no bit in common with the implicit bit, so OR and addition give the same result",
        ),
        (
            *("normalize-32-dropped-float64", "if width >= 32:", "if width >= 64:"),
            *(probes.encode("e4m3", "rne", source="float64"), "equivalent"),
            "the change affects only float64 numbers so small that they round to zero under every scale (for half "
            "ranges of float64 blocks it is a mistake)",
        ),
    )
    return of_module("unpack", *entries)


def _round() -> list[Mutant]:
    def of(rounding: str) -> Probe:
        return probes.encode("e4m3", rounding)

    rne = of("rne")
    parity = "(rest >> 1) + (kept & 1)"
    entries = (
        ("rne-tie-away", parity, "(rest >> 1) + 1", rne),
        ("rne-tie-to-zero", parity, "(rest >> 1)", rne),
        ("rne-tie-to-odd", parity, "(rest >> 1) + 1 - (kept & 1)", rne),
        (
            "rne-parity-of-significand",
            parity,
            "(rest >> 1) + ((significand >> shift) & 1)",
            probes.encode("e3m0", "rne"),
        ),
        ("rna-tie-to-zero", "(rest >> 1) + 1) >> shift", "(rest >> 1)) >> shift", of("rna")),
        ("rtz-away", "            code = kept\n", "            code = kept + 1\n", of("rtz")),
        ("rtp-swapped", "select(sign == 0, rest, 0)", "select(sign == 0, 0, rest)", of("rtp")),
        ("rtp-half", "select(sign == 0, rest, 0)", "select(sign == 0, rest >> 1, 0)", of("rtp")),
        ("rtp-ignores-sign", "select(sign == 0, rest, 0)", "rest", of("rtp")),
        ("rtn-swapped", "select(sign == 0, 0, rest)", "select(sign == 0, rest, 0)", of("rtn")),
        ("rtn-one-more", "select(sign == 0, 0, rest)", "select(sign == 0, 0, rest + 1)", of("rtn")),
        ("rto-exact-too", "select((significand & rest) == 0, kept, kept | 1)", "kept | 1", of("rto")),
        ("rto-away", "kept, kept | 1)", "kept, kept + 1)", of("rto")),
        ("rto-to-even", "kept, kept | 1)", "kept, kept & ~1)", of("rto")),
        ("lost-sticky", "rest = (1 << shift) - 1", "rest = (1 << shift) - 2", of("rto")),
        ("shift-limit-too-small", "> SHIFT_LIMIT, SHIFT_LIMIT, shift", "> width, width, shift", rne),
        ("subnormals-dropped", "below = select(step < 0, 0 - step, 0)", "below = 0", rne),
        (
            "subnormal-shift-one-more",
            "below = select(step < 0, 0 - step, 0)",
            "below = select(step < 0, 1 - step, 0)",
            rne,
        ),
        ("discards-one-more", "shift = DISCARDED + below", "shift = DISCARDED + below + 1", rne),
        ("base-shift-one-more", "base = above << MANTISSA", "base = above << (MANTISSA + 1)", rne),
        ("emin-one-more", "step = exponent - EMIN", "step = exponent - EMIN - 1", rne),
        (
            "last-step-one-less",
            "LAST_STEP = target.emax - target.emin",
            "LAST_STEP = target.emax - target.emin - 1",
            rne,
        ),
        ("large-as-last-binade", "return select(step > LAST_STEP, BEYOND, code)", "return code", rne),
        (
            "beyond-one-less",
            "BEYOND = target.max_code + 1",
            "BEYOND = target.max_code",
            probes.encode("e5m2", "rne", "ieee"),
        ),
        ("sr-random-unaligned", "random >> (SR_BITS - shift)", "random", of("sr")),
        ("sr-random-half", "random >> (SR_BITS - shift)", "random >> (SR_BITS - shift + 1)", of("sr")),
        ("sr-random-one-more", "(random >> (SR_BITS - shift))", "((random >> (SR_BITS - shift)) + 1)", of("sr")),
        (
            "sr-drops-one-more",
            "select(shift > SR_BITS, shift - SR_BITS, 0)",
            "select(shift > SR_BITS, shift - SR_BITS + 1, 0)",
            of("sr"),
        ),
        ("sr-drop-limit", "drop > width + 1, width + 1, drop", "drop > width, width, drop", of("sr")),
        (
            *(
                "rne-parity-of-significand-e4m3",
                parity,
                "(rest >> 1) + ((significand >> shift) & 1)",
                rne,
                "equivalent",
            ),
            "the base is even if the element has mantissa bits, so it does not change the parity (for e3m0, which has "
            "none, it is a mistake)",
        ),
        (
            *("lost-sticky-rne", "rest = (1 << shift) - 1", "rest = (1 << shift) - 2", rne, "equivalent"),
            "rounding to nearest even uses only rest >> 1, which is the same for both values of `rest`",
        ),
        (
            *("shift-limit-one-less", "SHIFT_LIMIT = word - 2", "SHIFT_LIMIT = word - 3", rne, "equivalent"),
            "every significand is still below half of 2**SHIFT_LIMIT, so larger shifts are not needed",
        ),
        (
            *("beyond-not-clamped", "code = select(code > BEYOND, BEYOND, code)", "code = code", rne, "equivalent"),
            "`pack` replaces every code above the largest one in the same way",
        ),
        (
            *("base-not-clamped", "select(step > LAST_STEP, LAST_STEP, step)", "step", rne, "equivalent"),
            "if the step is larger than LAST_STEP, the result is BEYOND whatever the base is",
        ),
        (
            *("shift-limit-one-more", "SHIFT_LIMIT = word - 2", "SHIFT_LIMIT = word - 1", rne, "unsafe"),
            "1 << 31 does not fit int32",
        ),
    )
    return of_module("pack", *entries)


def _pack() -> list[Mutant]:
    def ieee(element: str, rounding: str) -> Probe:
        return probes.encode(element, rounding, "ieee")

    e4m3, e5m2, e3m2 = (probes.encode(element, "rne") for element in ("e4m3", "e5m2", "e3m2"))
    over = "code = select(kind == INFINITE, OVER, code)"
    integer = "select(sign == 0, code, (1 << BITS) - code) & ((1 << BITS) - 1)"
    entries = (
        ("clamp-one-less", "code = select(code > MAX, MAX, code)", "code = select(code > MAX, MAX - 1, code)", e4m3),
        ("clamp-one-late", "code = select(code > MAX, MAX, code)", "code = select(code > MAX + 1, MAX, code)", e4m3),
        ("infinity-not-clamped", "code = select(kind == INFINITE, MAX, code)", "code = code", e4m3),
        (
            "infinity-to-nan",
            "code = select(kind == INFINITE, MAX, code)",
            "code = select(kind == INFINITE, NAN_CODE, code)",
            e4m3,
        ),
        ("nan-not-written", "code = select(kind == NAN, NAN_CODE, code)", "code = code", e4m3),
        (
            "nan-code-of-infinity",
            "code = select(kind == NAN, NAN_CODE, code)",
            "code = select(kind == NAN, MAX + 1, code)",
            e5m2,
        ),
        ("nan-sign-kept", "if not KEEPS_NAN_SIGN:", "if False:", e3m2),
        ("nan-sign-dropped", "if not KEEPS_NAN_SIGN:", "if True:", e4m3),
        (
            "overflow-to-nan",
            "OVER = NAN_CODE if target.infinity_code is None",
            "OVER = NAN_CODE if True",
            ieee("e5m2", "rne"),
        ),
        ("overflow-swapped", "select(sign == 0, above, below)", "select(sign == 0, below, above)", ieee("e5m2", "rtp")),
        ("rto-overflows-above", "RTO: (True, True)", "RTO: (False, True)", ieee("e4m3", "rto")),
        ("rtn-overflows-above", "RTN: (True, False)", "RTN: (False, False)", ieee("e4m3", "rtn")),
        ("rtp-overflows-below", "RTP: (False, True)", "RTP: (False, False)", ieee("e5m2", "rtp")),
        ("infinity-limited", over, "code = code", ieee("e5m2", "rtz")),
        ("ieee-ignored", "IEEE = not overflow", "IEEE = overflow", ieee("e4m3", "rne")),
        (
            "negative-zero-overflows",
            integer,
            "select(sign == 0, code, (1 << BITS) - code)",
            probes.encode("int8", "rne"),
        ),
        ("sign-and-magnitude", integer, "code | (sign << (BITS - 1))", probes.encode("int4", "rne")),
        ("sign-one-lower", "code | (sign << (BITS - 1))", "code | (sign << (BITS - 2))", e4m3),
        ("sign-lost", "return code | (sign << (BITS - 1))", "return code", e4m3),
        (
            *(
                "clamp-inclusive",
                "code = select(code > MAX, MAX, code)",
                "code = select(code >= MAX, MAX, code)",
            ),
            *(e4m3, "equivalent", "the largest code is replaced by itself"),
        ),
        (
            *("sign-bit-of-word", "code | ((0 - sign) << (BITS - 1))", "code | (sign << (BITS - 1))"),
            *(probes.decode("e4m3"), "unsafe", "1 << 31 does not fit int32"),
        ),
    )
    return of_module("pack", *entries)


def _convert() -> list[Mutant]:
    rne, decode = probes.encode("e4m3", "rne"), probes.decode("e4m3")
    rounding = "pack = make_pack(target, Rounding.RNE, Overflow.IEEE"
    entries = (
        ("encode-scale-inverted", "exponent - scale + SCALE_BIAS", "exponent + scale - SCALE_BIAS", rne),
        ("encode-scale-ignored", "exponent - scale + SCALE_BIAS", "exponent", rne),
        ("encode-bias-one-less", "exponent - scale + SCALE_BIAS", "exponent - scale + SCALE_BIAS - 1", rne),
        ("bias-128", "SCALE_BIAS = E8M0.bias", "SCALE_BIAS = E8M0.bias + 1", decode),
        ("nan-scale-as-power", "return select(scale == SCALE_NAN, 0, code)", "return code", rne),
        ("nan-scale-254", "SCALE_NAN = E8M0.nan_code", "SCALE_NAN = E8M0.nan_code - 1", rne),
        ("decode-scale-inverted", "exponent + scale - SCALE_BIAS", "exponent - scale + SCALE_BIAS", decode),
        ("decode-nan-scale-as-power", "return select(scale == SCALE_NAN, NAN_CODE, value)", "return value", decode),
        (
            "decode-nan-scale-zero",
            "return select(scale == SCALE_NAN, NAN_CODE, value)",
            "return select(scale == SCALE_NAN, 0, value)",
            decode,
        ),
        ("decode-saturates", rounding, rounding.replace("IEEE", "SATURATE"), decode),
        ("decode-truncates", rounding, rounding.replace("RNE", "RTZ"), probes.decode("e4m3", "bfloat16")),
        ("decode-ties-away", rounding, rounding.replace("RNE", "RNA"), probes.decode("e5m2", "float16")),
        (
            *("decode-truncates-float64", rounding, rounding.replace("RNE", "RTZ")),
            *(probes.decode("e4m3", "float64"), "equivalent", "products of elements and scales are exact in float64"),
        ),
    )
    return of_module("convert", *entries)


def _scale() -> list[Mutant]:
    floor, ceil, even, rceil = (probes.scale("e4m3", rule) for rule in ("floor", "ceil", "even", "rceil"))
    highest = probes.scale("int8", "ceil")
    last = "LAST_SCALE = E8M0.nan_code - 1"
    entries = (
        ("emax-added", "E8M0.bias - element.emax", "E8M0.bias + element.emax", floor),
        ("emax-ignored", "E8M0.bias - element.emax", "E8M0.bias", floor),
        ("floor-bumps", "ScaleRule.FLOOR: 1 << (width + 1)", "ScaleRule.FLOOR: 1 << width", floor),
        ("ceil-bumps-powers", "ScaleRule.CEIL: (1 << width) + 1", "ScaleRule.CEIL: 1 << width", ceil),
        (
            "even-one-bit-less",
            "((1 << (MANTISSA + 2)) - 1) << (width - MANTISSA - 1)",
            "((1 << (MANTISSA + 1)) - 1) << (width - MANTISSA)",
            even,
        ),
        ("even-tie-down", "<< (width - MANTISSA - 1),", "<< (width - MANTISSA - 1) | 1,", even),
        ("rceil-bumps-max", "<< (width - MANTISSA)) + 1", "<< (width - MANTISSA))", rceil),
        ("rceil-all-ones", "element.max_code & ((1 << MANTISSA) - 1)", "(1 << MANTISSA) - 1", rceil),
        ("comparison-inclusive", "significand < first_bumped, 0, 1", "significand <= first_bumped, 0, 1", ceil),
        (
            "no-lower-clamp",
            "select(code < 0, 0, select(code > LAST_SCALE, LAST_SCALE, code))",
            "select(code > LAST_SCALE, LAST_SCALE, code)",
            floor,
        ),
        ("lower-clamp-one", "select(code < 0, 0, select", "select(code < 1, 1, select", floor),
        ("clamps-to-nan", last, "LAST_SCALE = E8M0.nan_code", highest),
        ("clamps-one-lower", last, "LAST_SCALE = E8M0.nan_code - 2", highest),
        (
            "width-too-small",
            "max(source.mantissa_bits, element.mantissa_bits + 1, 2)",
            "max(element.mantissa_bits + 1, 2)",
            probes.scale("int8", "ceil"),
        ),
        (
            *("clamps-to-nan-e4m3", last, "LAST_SCALE = E8M0.nan_code", rceil, "equivalent"),
            "no float32 magnitude needs a scale above 2**120 in e4m3 (for int8 it is a mistake)",
        ),
        (
            *(
                "zero-not-special",
                "return select(significand == 0, 0, code)",
                "return code",
                floor,
                "equivalent",
            ),
            "zero has a lower exponent than every other number, so its code is limited to 0 without a special case",
        ),
    )
    return of_module("scale", *entries)
