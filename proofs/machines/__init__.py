"""Machines that run function objects symbolically: bit-vectors, ratios, solvers' floats, LLVM IR,
PTX.
"""
