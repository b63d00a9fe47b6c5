"""NVFP4 quantizers as their authors might write them in numpy, by the arithmetic of stacks, and with mistakes."""

from __future__ import annotations

import ml_dtypes
import numpy as np

F = np.float32
MAX = np.finfo(F).max


def e4m3(s):
    """To nearest even, saturating; a NaN stays."""
    return np.clip(s, F(-448), F(448)).astype(ml_dtypes.float8_e4m3fn)


def e2m1(y):
    """The same, of four bits."""
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
    """With a scale from its caller."""
    S = F(1) if largest == 0 else (F(1) / largest) * F(2688)

    def reciprocal(a):
        return F(1) / np.where(a == 0, F(1e8), a)

    scales = e4m3(S * (abs(x).max(axis=1) * (F(1) / F(6))))
    scaled = x * reciprocal(scales.astype(F) * reciprocal(S))[:, None]
    codes = e2m1(scaled)
    codes[scaled == 0] = 0
    return codes, scales


STACKS = {kernel.__name__: kernel for kernel in (torchao, transformer_engine, modelopt, vllm)}
