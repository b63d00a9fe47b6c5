"""Arrays: the scalar definition applied to whole arrays, as fast as hardware allows.

A folder for each thing that is done; a folder imports those above it in this list, never those below
(`tests/test_architecture.py` reads the imports):

- `machine`: what compiles the dialect of `scalar` for this machine, and what is asked of the machine;
- `rounding`: fast formulations of the definition, and where each is proved;
- `traversal`: how arrays of any strides are gone through, and made contiguous;
- `packing`: codes narrower than a byte as a bit stream;
- `loops`: the compiled loops, of flat arrays;
- `quantizing`: the operations on arrays, the plan of a call, transforms of blocks;
- `products`: dot and matrix products with defined sums;
- `rotations`: the Hadamard transform;
- `cuda`: the same operations for arrays on a GPU.

`request` says what is asked for, `dispatch` which engine does it; `uncompiled` does it for few numbers, without numba.
"""
