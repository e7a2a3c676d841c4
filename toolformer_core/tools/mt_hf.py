"""A Hugging Face translator: NLLB, or another seq2seq model with NLLB's language codes.

The paper's MT tool is NLLB-200 with 600 M parameters and fastText's language identification. The model is loaded on
first use and stays in the process; transformers and torch are imported then. `mt` decides which texts are translated
and whether a text is English already.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toolformer_core.errors import ModelError
from toolformer_core.records import digest_of

__all__ = ["NLLB_CODES", "HuggingFaceTranslator"]

VERSION = "1"
_ENGLISH = "eng_Latn"

# From fastText's codes to NLLB's, for the languages of the paper's benchmarks and the common languages of web text.
NLLB_CODES = {
    "ar": "arb_Arab",
    "cs": "ces_Latn",
    "da": "dan_Latn",
    "de": "deu_Latn",
    "el": "ell_Grek",
    "es": "spa_Latn",
    "fi": "fin_Latn",
    "fr": "fra_Latn",
    "he": "heb_Hebr",
    "hi": "hin_Deva",
    "hu": "hun_Latn",
    "id": "ind_Latn",
    "it": "ita_Latn",
    "ja": "jpn_Jpan",
    "ko": "kor_Hang",
    "nl": "nld_Latn",
    "no": "nob_Latn",
    "pl": "pol_Latn",
    "pt": "por_Latn",
    "ro": "ron_Latn",
    "ru": "rus_Cyrl",
    "sv": "swe_Latn",
    "tr": "tur_Latn",
    "uk": "ukr_Cyrl",
    "vi": "vie_Latn",
    "zh": "zho_Hans",
}


class HuggingFaceTranslator:
    """Translates greedily with a seq2seq model. Threads take turns.

    Args:
        model: a folder or a hub name, e.g. `facebook/nllb-200-distilled-600M`.
        device: where the model runs.
        max_tokens: maximum length of a source and of a translation, in tokens.
    """

    def __init__(self, model: str, device: str = "cpu", max_tokens: int = 128) -> None:
        self.model = model
        self.device = device
        self.max_tokens = max_tokens
        self._lock = threading.RLock()
        self._loaded: tuple[Any, Any] | None = None
        self._digest = ""

    def __getstate__(self) -> dict[str, Any]:
        return {"model": self.model, "device": self.device, "max_tokens": self.max_tokens}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    @property
    def digest(self) -> str:
        """Digest of a folder's files, or of a hub name and the loaded commit.

        Raises:
            ModelError: the model cannot be loaded.
        """
        with self._lock:
            if not self._digest:
                parts: list[str | bytes] = [type(self).__name__, VERSION, str(self.max_tokens)]
                folder = Path(self.model)
                if folder.is_dir():
                    parts += _file_parts(folder)
                else:
                    _, model = self._ready()
                    parts += [self.model, str(getattr(model.config, "_commit_hash", ""))]
                self._digest = digest_of(*parts)
            return self._digest

    def load(self) -> None:
        """Load the model, if it is not loaded yet.

        Raises:
            ModelError: the model cannot be loaded.
        """
        self._ready()

    def translate(self, text: str, languages: Sequence[str]) -> str | None:
        """Translate from the most likely language; None if that is English or has no NLLB code here.

        Raises:
            ModelError: the model cannot be loaded.
        """
        source = NLLB_CODES.get(languages[0]) if languages else None
        if source is None:
            return None
        with self._lock:  # the source language is state of the tokenizer
            tokenizer, model = self._ready()
            tokenizer.src_lang = source
            inputs = tokenizer(text, return_tensors="pt", truncation=True, max_length=self.max_tokens)
            ids = model.generate(
                input_ids=inputs["input_ids"].to(self.device),
                attention_mask=inputs["attention_mask"].to(self.device),
                forced_bos_token_id=tokenizer.convert_tokens_to_ids(_ENGLISH),
                max_new_tokens=self.max_tokens,
                num_beams=1,
                do_sample=False,
            )
            decoded: str = tokenizer.batch_decode(ids, skip_special_tokens=True)[0]
        return decoded.strip() or None

    def _ready(self) -> tuple[Any, Any]:
        with self._lock:
            if self._loaded is None:
                self._loaded = self._load()
            return self._loaded

    def _load(self) -> tuple[Any, Any]:
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

        tokenizers: Any = AutoTokenizer
        try:
            tokenizer = tokenizers.from_pretrained(self.model)
            model: Any = AutoModelForSeq2SeqLM.from_pretrained(self.model)
        except (OSError, ValueError, KeyError) as exc:
            raise ModelError(f"cannot load the translation model {self.model!r}: {exc}") from exc
        if tokenizer.convert_tokens_to_ids(_ENGLISH) in (None, tokenizer.unk_token_id):
            raise ModelError(f"the model {self.model!r} does not know the language code {_ENGLISH}; give an NLLB model")
        return tokenizer, model.to(self.device).eval()


def _file_parts(folder: Path) -> list[str | bytes]:
    parts: list[str | bytes] = []
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        parts.append(path.relative_to(folder).as_posix())
        with path.open("rb") as stream:
            while block := stream.read(1 << 24):
                parts.append(digest_of(block))
    return parts
