"""A translator with CTranslate2: NLLB or M2M100 with 8-bit weights, a few times faster on a CPU than with transformers.

The folder is what CTranslate2's converter writes, with the tokenizer's files beside:

    ct2-transformers-converter --model facebook/nllb-200-distilled-600M --quantization int8 --output_dir FOLDER \\
        --copy_files tokenizer.json tokenizer_config.json special_tokens_map.json sentencepiece.bpe.model

Weights stay in the precision that the converter gave them. Translations are greedy, and many texts are translated in
one call. `mt` decides which texts are translated. ctranslate2 is imported on use.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from toolformer_core.errors import ModelError
from toolformer_core.records import digest_of
from toolformer_core.tools.hf.batches import BatchedModel
from toolformer_core.tools.hf.checkpoint import Checkpoint, load_tokenizer, resident
from toolformer_core.tools.translators.languages import TABLE_DIGEST
from toolformer_core.tools.translators.source import SourceReader, output_limit

VERSION = "1"
_POSITIONS = 1024  # of NLLB and M2M100; a converted folder does not say
_BATCH_TOKENS = 4_096  # of sources that the library puts into one batch
_VOCABULARIES = ("shared_vocabulary.*", "source_vocabulary.*")


def is_converted(checkpoint: Checkpoint) -> bool:
    """Return whether files are those of CTranslate2's converter."""
    folder = checkpoint.folder
    return (folder / "model.bin").is_file() and any(any(folder.glob(pattern)) for pattern in _VOCABULARIES)


@dataclass(frozen=True, slots=True)
class _Converted:
    """A converted model with the tokenizer beside it."""

    source: SourceReader
    translator: Any
    lock: threading.RLock = field(default_factory=threading.RLock)


class CTranslate2Translator(BatchedModel[_Converted]):
    """Translates greedily into English. Threads take turns.

    Args:
        model: a folder that the converter wrote, with the tokenizer's files; or a hub name of one.
        batch: texts that are translated together, at most.

    Raises:
        ModelError: the model's files are not found.
    """

    def __init__(self, model: str, *, batch: int = 64) -> None:
        super().__init__(model, batch=batch)

    @property
    def digest(self) -> str:
        """Digest of the model's files (of a hub name: its commit) and of the table of languages."""
        return digest_of(type(self).__name__, VERSION, TABLE_DIGEST, self._checkpoint.digest)

    def translate(self, text: str, languages: Sequence[str]) -> str | None:
        """Translate from the most likely language; None if that is English or not one of the model's.

        Raises:
            ModelError: the model cannot be loaded.
        """
        return self.translate_batch([(text, languages)])[0]

    def translate_batch(self, texts: Sequence[tuple[str, Sequence[str]]]) -> list[str | None]:
        """Return what `translate` returns for each text, up to the rounding of sums in batches of another shape."""
        converted = self._ready()
        source, tokenizer = converted.source, converted.source.tokenizer
        translations: list[str | None] = [None] * len(texts)
        with converted.lock:
            found = ((number, source.ids(text, languages)) for number, (text, languages) in enumerate(texts))
            asked = [(number, ids) for number, ids in found if ids is not None]
            if not asked:
                return translations
            limits = [output_limit(ids, source.longest) for _, ids in asked]
            english = tokenizer.convert_ids_to_tokens(source.english)
            results = converted.translator.translate_batch(
                [tokenizer.convert_ids_to_tokens(ids) for _, ids in asked],
                target_prefix=[[english]] * len(asked),
                beam_size=1,
                max_batch_size=_BATCH_TOKENS,
                batch_type="tokens",
                max_input_length=0,
                max_decoding_length=max(limits) + 1,  # and the code of English
            )
            for (number, _), result, limit in zip(asked, results, limits, strict=True):
                ids = tokenizer.convert_tokens_to_ids(result.hypotheses[0][: limit + 1])
                translations[number] = source.text(ids) or None
        return translations

    def _load(self) -> _Converted:
        return resident("ctranslate2", self._checkpoint, lambda: _load(self._checkpoint))


def _load(checkpoint: Checkpoint) -> _Converted:
    import ctranslate2

    source = SourceReader.of(load_tokenizer(checkpoint), _POSITIONS, checkpoint.name)
    device = "cuda" if ctranslate2.get_cuda_device_count() else "cpu"
    try:
        translator = ctranslate2.Translator(str(checkpoint.folder), device=device, compute_type="default")
    except (RuntimeError, ValueError) as exc:
        raise ModelError(f"the converted model {checkpoint.name!r} cannot be loaded: {exc}") from exc
    return _Converted(source, translator)
