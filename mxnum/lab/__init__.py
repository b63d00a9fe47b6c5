"""Research on training in block formats; numerics do not need it, and nothing else in the package imports it.

- `theory`: stability of optimizers, gradients of logits, scaling laws, speed-ups;
- `mlp`: the residual MLP that runs away, and its training;
- `language_model`: a small decoder on sources whose entropy is known;
- `studies`: arms on common seeds, how they are run and stored, and their statistics;
- `claims`: what papers say about training in these formats, and the verdicts.

`storage` writes results, `interruptions` lets a step end before a signal is obeyed. ``mxnum lab`` has the commands.
"""
