"""Machines that run functions symbolically: bit-vectors, ratios, solvers' floats, LLVM IR, PTX."""
