"""Specifications of the functions of `mxnum`, for theorems, sweeps and checks of mutants."""
