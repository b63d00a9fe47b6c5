"""Everything in the engine that depends on the processor.

`jit` compiles the dialect to loops and kernels, and prefetches memory. `loop_cache` stores compiled
loops on disk. `lanes` defines 32-bit lanes, and `vectors` defines vectors of 16 lanes.
`float32_numbers` converts between numbers and bit patterns, and `float64_words` computes with the
bits of float64 numbers. `workers` starts threads and checks the floating-point environment.

No module here depends on formats, blocks or strided arrays. The modules import no other folder of
the engine.
"""
