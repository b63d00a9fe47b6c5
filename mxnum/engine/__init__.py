"""Arrays: the scalar definition applied to whole arrays, as fast as hardware allows.

Each folder does one thing. A folder imports only folders above it in this list
(`tests/test_architecture.py` reads the imports):

- `machine`: compiles the dialect of `definition` for this machine, and asks what the machine can
  do;
- `rounding`: fast formulations of the definition, and the table of what is proved about each;
- `traversal`: splits arrays of any strides into contiguous parts;
- `packing`: codes narrower than a byte as a bit stream;
- `loops`: the compiled loops over flat arrays;
- `quantizing`: the operations on arrays, the plan of a call, transforms of blocks;
- `products`: dot and matrix products with defined sums;
- `rotations`: the Hadamard transform;
- `cuda`: the same operations for arrays on a GPU.

`request` describes a call, and `dispatch` chooses the engine that runs it. `uncompiled` runs calls
on few numbers without numba.
"""
