"""NVFP4 quantizers in numpy: some compute as software stacks do, and some have mistakes."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from mxnum import formats
from mxnum.definition import by_numpy
from mxnum.formats import FLOATS
from mxnum.modes import FloatScaleRule

NVFP4 = formats.get("nvfp4")
F = np.float32
MAX = np.finfo(F).max


def e4m3(s):
    """Round to the nearest E4M3 number, ties to even, with saturation; NaN stays NaN."""
    return np.clip(s, F(-448), F(448)).astype(ml_dtypes.float8_e4m3fn)


def e2m1(y):
    """Return the code of the nearest E2M1 number, ties to even, with saturation."""
    size = abs(y)
    above = (size > 0.25, size >= 0.75, size > 1.25, size >= 1.75, size > 2.5, size >= 3.5, size > 5)
    return (np.sum(above, axis=0) + 8 * np.signbit(y)).astype(np.uint8)


def torchao(x):
    tensor = abs(x).max() / F(2688)
    scales = e4m3(np.clip(abs(x).max(axis=1) / F(6) / tensor, F(2**-6), F(448)))
    return e2m1(x * (F(1) / tensor / scales.astype(F))[:, None]), scales


def transformer_engine(x):
    largest = abs(x).max()
    S = np.minimum(F(2688) / largest, MAX) if largest else F(1)
    S = S or F(1)
    scales = e4m3(np.minimum(abs(x).max(axis=1) * (S * (F(1) / F(6))), MAX))
    factor = np.minimum(F(1) / (scales.astype(F) * (F(1) / S)), MAX)
    return e2m1(x * factor[:, None]), scales


def modelopt(x):
    tensor = abs(x).max() / F(2688)
    found = abs(x).max(axis=1) / (F(6) * tensor)
    scales = e4m3(np.clip(np.where(found == 0, F(1), found), F(2**-9), F(448)))
    scaled = x / (scales.astype(F) * tensor)[:, None]
    codes = e2m1(scaled)
    codes[np.isnan(scaled)] = 7
    codes[scaled == 0] = 0
    return codes, scales


def vllm(x, largest):
    """Quantize as vLLM does; the caller passes the largest magnitude of the tensor."""
    S = F(1) if largest == 0 else (F(1) / largest) * F(2688)

    def reciprocal(a):
        return F(1) / np.where(a == 0, F(1e8), a)

    scales = e4m3(S * (abs(x).max(axis=1) * (F(1) / F(6))))
    scaled = x * reciprocal(scales.astype(F) * reciprocal(S))[:, None]
    codes = e2m1(scaled)
    codes[scaled == 0] = 0
    return codes, scales


STACKS = {kernel.__name__: kernel for kernel in (torchao, transformer_engine, modelopt, vllm)}


# The exact definition, and kernels with mistakes


def exact(x, scales=None, tensor_scale=None):
    """Quantize by the exact definition in numpy, without compiling code."""
    tensor = tensor_scale_of(x) if tensor_scale is None else np.array(tensor_scale, F)
    asked = by_numpy.Settings(scale_rule=FloatScaleRule.NEAREST)
    q = by_numpy.quantize(x, NVFP4, (1, 16), asked, scales, None, tensor)
    return q.codes, q.scales[:, 0]


def tensor_scale_of(x):
    return by_numpy.tensor_scale(by_numpy.largest_of(x), FLOATS["float32"], NVFP4)


def with_scales(x, found):
    """Return the codes and the rounded scales for given float32 scales.

    A block with NaN or infinity gets a NaN scale.
    """
    scales = np.where(np.isfinite(x).all(axis=1), e4m3(found).view(np.uint8), 0x7F).astype(np.uint8)
    return exact(x, scales=scales[:, None], tensor_scale=tensor_scale_of(x))


def maxima(x):
    return np.where(np.isfinite(x), abs(x), 0).max(axis=1)


def scales_rounded_down(x):
    values = np.array(formats.ELEMENTS["e4m3"].values()[:127])
    quotient = maxima(x).astype(np.float64) / 6 / float(tensor_scale_of(x))
    return with_scales(x, values[np.searchsorted(values, quotient, side="right") - 1].astype(F))


def float32_scales_rounded_down(x):
    values = np.array(formats.ELEMENTS["e4m3"].values()[:127])
    quotient = maxima(x) / F(6) / tensor_scale_of(x)
    return with_scales(x, values[np.searchsorted(values, quotient, side="right") - 1].astype(F))


def divided_by_the_tensor_scale_first(x):
    return with_scales(x, maxima(x) / tensor_scale_of(x) / F(6))


def subnormal_scales_flushed(x):
    found = exact(x)[1].view(ml_dtypes.float8_e4m3fn).astype(F)
    return with_scales(x, np.where(found < F(2**-6), F(0), found))


def small_scales_flushed_before_rounding(x):
    quotient = maxima(x).astype(np.float64) / 6 / float(tensor_scale_of(x))
    found = exact(x)[1].view(ml_dtypes.float8_e4m3fn).astype(F)
    return with_scales(x, np.where(quotient < 2**-6, F(0), found))


def tensor_scale_ignored(x):
    return exact(x, tensor_scale=1.0)


def tensor_scale_rounded_twice(x):
    largest = maxima(x).max()
    found = largest / F(6) / F(448)
    return exact(x, tensor_scale=np.maximum(found, F(2**-149)) if largest else F(1))


def tensor_scale_without_the_largest_element(x):
    largest = maxima(x).max()
    return exact(x, tensor_scale=np.maximum(largest / F(448), F(2**-149)) if largest else F(1))


def nibbles_swapped(x):
    """Quantize, but pack the second code of each pair, not the first, into the lower half-byte."""
    codes, scales = exact(x)
    return codes[:, 1::2] | codes[:, 0::2] << 4, scales


def torchao_with_nibbles_swapped(x):
    codes, scales = torchao(x)
    return codes[:, 1::2] | codes[:, 0::2] << 4, scales


def torchao_with_ties_away(x):
    tensor = abs(x).max() / F(2688)
    codes, scales = torchao(x)
    y = x * (F(1) / tensor / scales.astype(F))[:, None]
    return np.where(np.isin(abs(y), (0.25, 1.25, 2.5, 5)), codes + 1, codes).astype(np.uint8), scales


def element_divided_twice(x):
    """Divide by the block scale, then by the tensor scale, each in float32."""
    _, scales = exact(x)
    number = scales.view(ml_dtypes.float8_e4m3fn).astype(F)[:, None]
    scaled = np.where(number > 0, x / np.where(number > 0, number, F(1)) / tensor_scale_of(x), x * F(0))
    return np.where(np.isnan(number), np.uint8(0), e2m1(scaled)).astype(np.uint8), scales


SWAPPED = "the right codes with the two nibbles of each byte swapped"

#: For each kernel with a mistake: the field that is wrong, and the report's words for the mistake.
MISTAKES = {
    scales_rounded_down: ("scale", "rounding scales down"),
    float32_scales_rounded_down: (
        "scale",
        "m / L / t in float32, rounded down (m: block maximum, L: largest element, t: tensor scale)",
    ),
    divided_by_the_tensor_scale_first: (
        "scale",
        "m / t / L in float32 (m: block maximum, L: largest element, t: tensor scale)",
    ),
    subnormal_scales_flushed: ("scale", "flushing subnormal scales to zero"),
    small_scales_flushed_before_rounding: (
        "scale",
        "flushing scales below the smallest normal scale to zero before rounding",
    ),
    tensor_scale_ignored: ("scale", "a tensor scale of 1"),
    tensor_scale_rounded_twice: (
        "codes",
        "a tensor scale of A / L / S in float32 (A: tensor maximum, L: largest element, S: largest scale)",
    ),
    tensor_scale_without_the_largest_element: ("scale", "a tensor scale that is not divided by the largest element"),
    nibbles_swapped: ("codes", SWAPPED),
    torchao_with_nibbles_swapped: ("codes", f"{SWAPPED}, after torchao's arithmetic"),
    torchao_with_ties_away: ("codes", "torchao's arithmetic under rounding rna"),
    element_divided_twice: ("codes", "x / s / t in float32 (x: number, s: scale, t: tensor scale)"),
}
