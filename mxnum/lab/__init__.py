"""Research on training in block formats; only `mxnum.cli.lab` imports this folder.

- `theory`: stability of optimizers, gradients of logits, scaling laws, speed-ups;
- `mlp`: a residual MLP whose loss runs away in low precision, and its training;
- `language_model`: a small decoder trained on sources whose entropy is known;
- `studies`: training of arms on common seeds, storage of the runs, and statistics;
- `claims`: checks of what papers claim about training in these formats, and verdicts.

`storage` writes results; `interruptions` delivers signals between training steps. The commands of
``mxnum lab`` call the packages of this folder.
"""
