"""A text as NLLB and M2M100 read it: its tokens, with the codes of its language and of English.

Both families share an architecture and differ in how they write codes: `deu_Latn` and `__de__`. The codes are put
around the tokens here and not by the tokenizer, whose language is a setting that threads would share. This module loads
nothing and runs no model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from toolformer_core.errors import ModelError
from toolformer_core.tools.translators.languages import ENGLISH_M2M100, ENGLISH_NLLB, m2m100_code, nllb_code

_CODE = re.compile("__[a-z]{2,3}__|[a-z]{3}_[A-Z][a-z]{3}")


@dataclass(frozen=True, slots=True)
class SourceReader:
    """Turns texts into a model's token ids.

    Args:
        tokenizer: the model's.
        code: returns the model's name of a language, or None.
        form: how a code is written in the vocabulary.
        english: the id of the code of English.
        longest: the most tokens of a text with its codes.
    """

    tokenizer: Any
    code: Callable[[str, str], str | None]
    form: str
    english: int
    longest: int

    @classmethod
    def of(cls, tokenizer: Any, longest: int, model: str) -> SourceReader:
        """Return the reader for a tokenizer, by the codes in its vocabulary.

        Raises:
            ModelError: it has neither family's code of English.
        """
        for code, form, english in ((nllb_code, "{}", ENGLISH_NLLB), (m2m100_code, "__{}__", ENGLISH_M2M100)):
            known = _id_of(tokenizer, form.format(english))
            if known is not None:
                return cls(tokenizer, code, form, known, longest)
        raise ModelError(
            f"the model {model!r} does not know English by the code {ENGLISH_NLLB} or __{ENGLISH_M2M100}__; give an "
            "NLLB or M2M100 model"
        )

    def ids(self, text: str, languages: Sequence[str]) -> list[int] | None:
        """Return the ids of a text in its most likely language, with codes.

        None if that is English or not one of the model's, or if the text is too long for it: part of a translation
        would look like all of it.
        """
        code = self.code(languages[0], text) if languages else None
        source = None if code is None else _id_of(self.tokenizer, self.form.format(code))
        if source is None:
            return None
        body = list(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        end = self.tokenizer.eos_token_id
        old = getattr(self.tokenizer, "legacy_behaviour", False)  # of NLLB's first release
        ids = [*body, end, source] if old else [source, *body, end]
        return ids if body and len(ids) <= self.longest else None

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of a translation's ids, without codes and special tokens; M2M100's codes are not special."""
        tokens = self.tokenizer.convert_ids_to_tokens(list(ids))
        kept = [number for number, token in zip(ids, tokens, strict=True) if not _CODE.fullmatch(token or "")]
        decoded: str = self.tokenizer.decode(kept, skip_special_tokens=True)
        return decoded.strip()


def output_limit(ids: Sequence[int], longest: int) -> int:
    """Return the most tokens of the translation of a text, given as ids: more is a model that repeats itself."""
    return min(2 * len(ids) + 16, longest - 2)  # two more start the translation


def _id_of(tokenizer: Any, token: str) -> int | None:
    number = tokenizer.convert_tokens_to_ids(token)
    return None if number is None or number == tokenizer.unk_token_id else int(number)
