"""Machine-checked theorems about the function objects that `mxnum` runs. Start with ``python -m proofs``."""
