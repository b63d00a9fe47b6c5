"""The machine: compiling the dialect, 32-bit lanes and vectors of them, float64 as words, compiled loops on disk,
prefetch, threads, the float environment.

Knows nothing of formats, blocks or arrays. Imports nothing else of the engine.
"""
