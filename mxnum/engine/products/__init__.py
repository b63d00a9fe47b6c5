"""Dot and matrix products whose accumulation is defined: exact, by blocks, in sequence.

Imports `machine`, `rounding`, `traversal` and `packing`; how an operand is decoded is an argument.

- `sums`: the way of each accumulation; `operands`: arrays as rows that are summed over, and what is a batch of them;
- `by_definition`: by integers, right anywhere. `terms` are values taken apart, `exact` is the accumulator,
  `float32_by_integers` what is done with its sums;
- `by_floats`: the same bits by float hardware. `exactness` says where it holds the sums, `panels` is how operands are
  packed, `register_tile` multiplies them; `row_by_row` does what tiles are not made for.
"""
