"""The definition in code: integer functions that give the same results on every machine.

Start with `by_hand`, which computes a code one step at a time, in the standard's words. `word`
states the rules of the dialect, in which these functions are written. `convert`, `offset`, `scale`
and `float_scale` are built from the functions of `unpack`, `pack`, `add` and `random`. `by_numpy`
runs them on small numpy arrays, for which `chunks` divides arrays and reduces over blocks.
`stack_arithmetic` repeats the arithmetic of other software.
"""
