"""Research on training in block formats; nothing else in the package imports this folder.

- `theory`: stability of optimizers, gradients of logits, scaling laws, speed-ups;
- `mlp`: a residual MLP whose loss runs away in low precision, and its training;
- `language_model`: a small decoder trained on sources whose entropy is known;
- `studies`: how arms are trained on common seeds and stored, and their statistics;
- `claims`: what papers say about training in these formats, and the verdicts.

`storage` writes results; `interruptions` lets a step finish before it delivers a signal. The
commands are in ``mxnum lab``.
"""
