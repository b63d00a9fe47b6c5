"""What runs a function object symbolically, or asks a solver: bit-vectors, ratios, solvers' floats, LLVM IR, PTX."""
