"""Convert MX arrays to the forms in which other software stores them, and back.

A module loads an optional package when a function first needs the package.

- `views`: ml_dtypes arrays, without a copy
- `torch`: tensors of the float8, float4 and E8M0 types, and random bits from torch
- `torchao`: NVFP4 tensors of torchao
- `safetensors`: files of MX tensors and of other tensors
- `checkpoints`: quantized weights in files of other software, read one at a time
- `nvfp4`, `fp8`, `gpt_oss`: tensors of quantized weights in NVFP4, FP8 with float scales, and MXFP4
- `gguf`: blocks of GGUF files (MXFP4, NVFP4, and groups of integers: Q8_0, Q4_0)
- `onnx`: tensors for QuantizeLinear and DequantizeLinear
- `swizzle`: scales in the order in which tensor cores read them
- `dask`: arrays larger than memory

The functions of `_checked` raise errors for arrays that other software cannot store.
"""
