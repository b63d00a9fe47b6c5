"""The operations on whole arrays, which return the same bits as the functions of `definition`.

A folder of `engine` imports only the folders above it in this list, as `tests/test_architecture.py`
checks:

- `machine`: compiles the dialect, the subset of Python in which `definition` is written, and
  detects what this machine can do;
- `rounding`: fast formulations of the definition, and a table that lists the formats for which each
  formulation is proved;
- `traversal`: splits arrays of any strides into contiguous parts;
- `packing`: stores codes narrower than a byte as a bit stream;
- `loops`: the compiled loops over flat arrays;
- `quantizing`: quantizes and decodes arrays, caches a plan for each kind of call, and transforms
  blocks;
- `products`: dot and matrix products whose sums have a defined order and rounding;
- `rotations`: the Hadamard transform;
- `cuda`: the same operations for arrays on a GPU.

`request` describes a call, and `dispatch` chooses the engine that runs the call. `uncompiled` is an
engine without numba, for small arrays.
"""
