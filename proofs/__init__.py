"""Machine-checked theorems about the functions of `mxnum`; ``python -m proofs`` checks them."""
