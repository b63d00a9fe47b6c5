"""MX arrays as other software stores them.

Each module loads its optional packages when they are used.

- `views`: ml_dtypes arrays, without a copy
- `torch`: tensors of the float8, float4 and E8M0 types, and torch's random bits
- `torchao`: NVFP4 tensors of torchao
- `safetensors`: files of MX tensors and of other tensors
- `checkpoints`: quantized weights of files that other software wrote, one at a time, larger than
  memory
- `nvfp4`, `fp8`, `gpt_oss`: tensors of quantized weights in NVFP4, FP8 with float scales, and MXFP4
- `gguf`: MXFP4, whose nibbles have another order, and groups of integers (Q8_0, Q4_0)
- `onnx`: tensors for QuantizeLinear and DequantizeLinear
- `swizzle`: scales in the order in which tensor cores read them
- `dask`: arrays larger than memory

`_checked` checks that other software can take an array.
"""
