"""A small language model in low precision, on sources whose entropy is known (extra ``torch``).

    from mxnum.language_model import Setting, train
    run = train(Setting(recipe="mxfp8_e4m3", steps=500), seed=1)

``mxnum language-model`` runs studies of it. Nothing here is loaded by `import mxnum`.
"""

from mxnum import errors

errors.package("torch", "torch")

from mxnum.language_model.decoder import Decoder, Run, train  # noqa: E402
from mxnum.language_model.setting import Setting  # noqa: E402
from mxnum.language_model.sources import HiddenMarkov, Markov, Text, source_of  # noqa: E402
from mxnum.language_model.study import Study, collect, read, run_study  # noqa: E402

__all__ = [
    "Decoder",
    "HiddenMarkov",
    "Markov",
    "Run",
    "Setting",
    "Study",
    "Text",
    "collect",
    "read",
    "run_study",
    "source_of",
    "train",
]
