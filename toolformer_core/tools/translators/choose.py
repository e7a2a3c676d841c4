"""Chooses the translator that a user names, by the files of the model. Nothing is loaded here."""

from __future__ import annotations

from toolformer_core.errors import ModelError, UsageError
from toolformer_core.extras import how_to_install, is_installed
from toolformer_core.tools.hf.checkpoint import find_checkpoint
from toolformer_core.tools.mt import Translator
from toolformer_core.tools.translators.ct2 import CTranslate2Translator, is_converted
from toolformer_core.tools.translators.m2m100 import M2M100Translator


def choose_translator(name: str) -> Translator:
    """Return the translator for a folder or a hub name of a model.

    Raises:
        ModelError: the model is not found, or is no encoder-decoder model.
        UsageError: the model is converted for CTranslate2, which is not installed.
    """
    checkpoint = find_checkpoint(name)
    if is_converted(checkpoint):
        if not is_installed("ctranslate2"):
            raise UsageError(f"the model {name!r} is converted for CTranslate2: {how_to_install('ctranslate2')}")
        return CTranslate2Translator(name)
    config = checkpoint.config
    architectures = [str(architecture) for architecture in config.get("architectures") or ()]
    if config.get("is_encoder_decoder") and any(a.endswith("ForConditionalGeneration") for a in architectures):
        return M2M100Translator(name)
    raise ModelError(
        f"the model {name!r} ({', '.join(architectures) or 'of no named architecture'}) cannot translate: give an NLLB "
        "or M2M100 model (M2M100ForConditionalGeneration), or one that ct2-transformers-converter wrote"
    )
