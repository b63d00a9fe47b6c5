"""Implementations as functions of bit-vectors, and the solvers that compare them with a claim.

`mxnum.conformance.prove` is the call. Readers make circuits of Verilog, C, LLVM IR, PTX and Python
functions; `claims` states what must hold of them.
"""
