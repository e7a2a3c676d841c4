"""A translator with transformers: NLLB, M2M100, or another model of that architecture with either's language codes.

The paper's MT tool is NLLB-200 with 600 M parameters and fastText's language identification. Translations are greedy;
many texts, of different languages, are translated in one batch. The model is loaded once per process. `mt` decides
which texts are translated, and whether a text is English already.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolformer_core.records import digest_of
from toolformer_core.tools.hf.batches import BatchedModel, batches
from toolformer_core.tools.hf.checkpoint import Loaded, load_transformer
from toolformer_core.tools.hf.greedy import write_greedily
from toolformer_core.tools.translators.languages import TABLE_DIGEST
from toolformer_core.tools.translators.source import SourceReader, output_limit

VERSION = "2"
_POSITIONS = 1024
_BATCH_TOKENS = 8_192  # of sources in one batch, padding included


class M2M100Translator(BatchedModel[tuple[Loaded, SourceReader]]):
    """Translates greedily into English. Threads take turns.

    Args:
        model: a folder or a hub name, e.g. `facebook/nllb-200-distilled-600M`.
        batch: texts that are translated together, at most.

    Raises:
        ModelError: the model's files are not found.
    """

    def __init__(self, model: str, *, batch: int = 32) -> None:
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
        loaded, source = self._ready()
        translations: list[str | None] = [None] * len(texts)
        with loaded.lock:
            found = ((number, source.ids(text, languages)) for number, (text, languages) in enumerate(texts))
            asked = [(number, ids) for number, ids in found if ids is not None]
            for rows in batches([len(ids) for _, ids in asked], _BATCH_TOKENS):
                inputs = [asked[row][1] for row in rows]
                limits = [output_limit(ids, source.longest) for ids in inputs]
                written = write_greedily(loaded, inputs, limits, first=source.english)
                for row, translation in zip(rows, written, strict=True):
                    translations[asked[row][0]] = source.text(translation) or None
        return translations

    def _load(self) -> tuple[Loaded, SourceReader]:
        loaded = load_transformer(self._checkpoint, "AutoModelForSeq2SeqLM")
        longest = int(getattr(loaded.model.config, "max_position_embeddings", None) or _POSITIONS)
        return loaded, SourceReader.of(loaded.tokenizer, longest, self.model)
