"""Dot and matrix products with a defined accumulation: exact, by blocks, or in sequence.

Imports `machine`, `rounding`, `traversal` and `packing`. The caller passes a function that decodes
operands.

- `sums` chooses the implementation of each accumulation.

- `operands` represents arrays as rows that are summed over, and iterates over a batch.

- `by_definition` computes sums by integers, in any floating-point environment. `terms` splits
  values into integers, `exact` has the exact accumulator, and `float32_by_integers` rounds and adds
  sums.

- `by_floats` computes the bits of `by_definition` by float hardware or with small integers.
  `exactness` decides when floats or small integers hold the sums. `panels` and `integers` pack
  operands, `register_tile` multiplies panels, and `row_by_row` multiplies without tiles.

- `fused_sums` computes products as matrix units add them. `fused_operands` splits operands into
  integers, and `fused_by_definition` is the compiled definition of fused sums. `fused_by_floats`
  computes the bits of `fused_by_definition` with the tiles of `fused_tile` and `fused_group_tile`.
"""
