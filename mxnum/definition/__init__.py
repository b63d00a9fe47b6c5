"""The definition in code: integer functions that every machine runs alike.

Start with `by_hand`, which computes a code one step at a time, in the standard's words. `word` has
the rules of the dialect; `convert`, `offset`, `scale` and `float_scale` are made of `unpack`,
`pack`, `add` and `random`. `by_numpy` runs them for few numbers, `chunks` gathers blocks for it,
and `stack_arithmetic` is the arithmetic of other software.
"""
