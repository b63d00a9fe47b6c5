"""Dot and matrix products with a defined accumulation: exact, by blocks, or in sequence.

Imports `machine`, `rounding`, `traversal` and `packing`. The caller passes a function that decodes
operands.

- `sums` chooses the implementation of each accumulation.

- `operands` holds the operands of products, and yields the matrices of a batch.

- `by_definition` computes sums by integers, in any floating-point environment. `terms` splits
  values into integers, `exact` has the exact accumulator, and `float32_by_integers` rounds and adds
  sums.

- `by_floats` gives the results of `by_definition`, bit for bit, with floats or small integers.
  `exactness` decides when floats or small integers hold the sums. `panels` and `integers` pack
  operands, `register_tile` multiplies panels, and `row_by_row` multiplies without tiles.

- `fused_sums` computes matrix products with the fused sums of matrix units. `fused_operands` splits
  operands into integers, and `fused_by_definition` is the compiled definition of fused sums.
  `fused_by_floats` gives the same results with the tiles of `fused_tile` and `fused_group_tile`.
"""
