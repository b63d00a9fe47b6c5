"""MX arrays as other software stores them. Every optional package is loaded by the module that needs it, when used.

- `views`: ml_dtypes arrays, without a copy
- `torch`: tensors of the float8, float4 and E8M0 types, random bits as torch has them
- `safetensors`: files of MX tensors and of anything else
- `gpt_oss`, `gguf`: MXFP4 as checkpoints hold it, whose nibble orders differ
- `onnx`: tensors for QuantizeLinear and DequantizeLinear
- `swizzle`: scales in the order that tensor cores read
- `dask`: arrays larger than memory

(`checked`: what other software can take.)
"""
