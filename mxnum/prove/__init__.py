"""Proofs that an implementation computes what the definition says, for all inputs.

`mxnum.conformance.prove` is the public function. A reader turns an implementation in Verilog, C,
LLVM IR, PTX or Python into a `Circuit`, which is a function of bit-vectors. `claims` states what
the circuit must compute, and `solvers` asks z3 or bitwuzla whether the statement holds.
"""
