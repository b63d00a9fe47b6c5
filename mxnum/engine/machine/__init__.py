"""Everything that depends on the processor.

This is compiling the dialect, 32-bit lanes and vectors of them, float64 arithmetic on bit patterns,
compiled loops on disk, prefetching, threads, and the floating-point environment.

No module here knows of formats, blocks or strided arrays. Imports nothing else of the engine.
"""
