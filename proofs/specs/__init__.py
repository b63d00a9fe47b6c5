"""Specifications: what the theorems, sweeps and mutants compare the functions of `mxnum` with."""
