"""Fast formulations: functions that round as `mxnum.definition` does, with faster operations.

`float_additions` rounds with float32 additions, and `any_scale` extends it to every scale.
`as_float32` converts other float types to float32 and back. `by_factors`, `stochastic_over` and
`by_stack` round under scales that are floats. `paths` lists the formats for which each formulation
is proved.

Each function converts one number, so that loops can inline the function. Imports `machine`.
"""
