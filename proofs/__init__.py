"""Machine-checked theorems about the functions of `mxnum`: start with ``python -m proofs``."""
