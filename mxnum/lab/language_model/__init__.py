"""Train a small language model in low precision, on Markov chains or texts (extra ``torch``).

    from mxnum.lab.language_model import Setting, train
    run = train(Setting(recipe="mxfp8_e4m3", steps=500), seed=1)

``mxnum lab language-model`` runs studies of language models. `import mxnum` does not load this
package.
"""

from mxnum import errors

errors.package("torch", "torch")

from mxnum.lab.language_model.decoder import Decoder, Run, train  # noqa: E402
from mxnum.lab.language_model.setting import Setting  # noqa: E402
from mxnum.lab.language_model.sources import Markov, Text, source_of  # noqa: E402

__all__ = [
    "Decoder",
    "Markov",
    "Run",
    "Setting",
    "Text",
    "source_of",
    "train",
]
