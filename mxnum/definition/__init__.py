"""The definition in code: integer functions that give the same results on every machine.

Start with `by_hand`, which computes a code one step at a time, in the standard's words. `word`
states the rules of the dialect, the subset of Python in which the integer functions are written.
`convert`, `offset`, `scale` and `float_scale` are built from the functions of `unpack`, `pack`,
`add` and `random`. `by_numpy` runs the integer functions on small numpy arrays, and `chunks`
divides such arrays into pieces and reduces over blocks. `stack_arithmetic` reproduces the NVFP4
arithmetic of other software.
"""
