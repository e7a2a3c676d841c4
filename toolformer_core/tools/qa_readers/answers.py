"""What readers with a model share: how passages are shown to them, what their text says, and how a checkpoint reads."""

import re
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from toolformer_core.errors import ModelError
from toolformer_core.tools.hf.batches import BatchedModel
from toolformer_core.tools.hf.checkpoint import Loaded, load_transformer
from toolformer_core.tools.qa import Reading
from toolformer_core.tools.search.passages import Hit

_THOUGHTS = re.compile(r"\A\s*<think>.*?(?:</think>|\Z)", re.DOTALL)  # of models that think in their answer
_LABEL = re.compile(r"\A(?:short |final )?answer\s*:\s*", re.IGNORECASE)
_QUOTES = "\"'“”‘’`*"
_NO_ANSWERS = frozenset(
    "unanswerable|no answer|none|unknown|not answerable|not available|not found|not given|not mentioned|not stated|"
    "not specified|n/a|i don't know|i do not know|cannot be determined|no answer found".split("|")
)


def passages_text(hits: Sequence[Hit]) -> str:
    """Return passages as one text, a line each, best first: `Title > Section: text`."""
    passages = (hit.passage for hit in hits)
    return "\n".join(f"{one.title}{one.section and ' > ' + one.section}: {one.text}" for one in passages)


def answer_of(text: str) -> str | None:
    """Return the answer in what a model wrote: its first line, without quotation marks or a final full stop.

    None if the model wrote nothing, or that there is no answer.
    """
    lines = [line.strip() for line in _THOUGHTS.sub("", text).splitlines() if line.strip()]
    if not lines:
        return None
    answer = _LABEL.sub("", lines[0].strip(_QUOTES)).strip(_QUOTES + " ")
    if answer.endswith(".") and not re.search(r"\b[A-Z]\.\Z|\.[^\s.]+\.\Z", answer):  # `J.` and `U.S.` keep theirs
        answer = answer[:-1].rstrip(_QUOTES + " ")
    plain = answer.casefold().replace("’", "'").strip(" .!")
    return None if not plain or plain in _NO_ANSWERS else answer


class ModelReader(BatchedModel):
    """A reader with a checkpoint, whose tokenizer says where its tokens stand in a text. Threads take turns."""

    auto_class: str  # of transformers, by which the checkpoint is loaded
    batch = 16

    @abstractmethod
    def read(self, questions: Sequence[tuple[str, Sequence[Hit]]]) -> list[Reading]:
        """Return the model's answer to each question from its passages, best first; None if they hold none.

        Together and alone, questions have the same answers, up to the rounding of sums in batches of another shape.
        """

    def _load(self) -> Loaded:
        loaded = load_transformer(self._checkpoint, self.auto_class)
        if not loaded.tokenizer.is_fast:
            raise ModelError(f"the tokenizer of {self.model!r} does not say where its tokens stand in a text")
        return loaded


def cut(tokenizer: Any, text: str, tokens: int) -> str:
    """Return the start of a text that has at most a number of tokens."""
    ends = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    return text if len(ends) <= tokens else text[: ends[tokens - 1][1]]
