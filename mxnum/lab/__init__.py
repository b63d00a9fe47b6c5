"""Research on training in block formats; only `mxnum.cli.lab` imports this folder.

- `theory`: stability of optimizers, gradients of logits, scaling laws, speed-ups;
- `mlp`: a residual MLP whose loss runs away in low precision, and its training;
- `language_model`: a small decoder trained on sources whose entropy is known;
- `studies`: trains arms on common seeds, stores the runs, and computes statistics;
- `claims`: checks what papers claim about training in these formats, and gives verdicts.

`storage` writes results; `interruptions` delivers signals between training steps. The commands of
``mxnum lab`` call the packages of this folder.
"""
