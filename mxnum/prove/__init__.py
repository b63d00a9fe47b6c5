"""Proofs that an implementation is the definition, for all inputs, or a counterexample.

`prove` reads Verilog with yosys, C with clang, LLVM IR, PTX, functions of numba and Python
functions in the dialect as functions of bit-vectors, and asks a solver whether one differs from the
definition. ``mxnum prove`` is the command.
"""

from mxnum.prove.proving import prove
from mxnum.prove.verdict import Counterexample, Part, Proof

__all__ = ["Counterexample", "Part", "Proof", "prove"]
