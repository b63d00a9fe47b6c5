"""Make, try and judge mutants: kernels with a planted mistake."""
