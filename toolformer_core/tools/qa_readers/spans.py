"""A reader with an extractive model (`AutoModelForQuestionAnswering`): the most probable span of the passages.

A passage longer than the model's window is read in overlapping windows. A span's margin is by how much the sum of its
two logits (it starts here, it ends here) exceeds that of "no answer here", which models trained on SQuAD put on the
first token: margins of different windows can be compared, logits cannot.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from toolformer_core.records import digest_of, storable
from toolformer_core.tools.hf.batches import in_batches, padded
from toolformer_core.tools.hf.checkpoint import Loaded
from toolformer_core.tools.qa import Reading
from toolformer_core.tools.qa_readers.answers import ModelReader, cut
from toolformer_core.tools.search.passages import Hit

VERSION = "1"
_WINDOW = 384  # tokens of a question and a passage, as in the training of most models of this kind
_OVERLAP = 128  # of two windows of one passage, in tokens
_QUESTION_TOKENS = 64  # the rest of a longer question is not read
_ANSWER_TOKENS = 30
_LEAST_MARGIN = 0.0  # of an answer; 0: the model believes in it more than in none
_BATCH_TOKENS = 16_384  # in one forward pass, padding included


@dataclass(frozen=True, slots=True)
class _Window:
    """A question with a part of a passage, as token ids."""

    question: int  # its number in the batch
    text: str  # the passage
    inputs: dict[str, list[int]]  # input_ids, and token_type_ids for models that have them
    spans: list[tuple[int, int]]  # of each token in the text; (0, 0) for tokens that are not the passage's
    nowhere: int  # the token that stands for "no answer here"


class SpanReader(ModelReader):
    """Finds answers with an extractive model, a folder or a hub name, e.g. `deepset/roberta-base-squad2`."""

    auto_class = "AutoModelForQuestionAnswering"

    @property
    def digest(self) -> str:
        figures = (_LEAST_MARGIN, _WINDOW, _OVERLAP, _QUESTION_TOKENS, _ANSWER_TOKENS)
        return digest_of(type(self).__name__, VERSION, *map(repr, figures), self._checkpoint.digest)

    def read(self, questions: Sequence[tuple[str, Sequence[Hit]]]) -> list[Reading]:
        loaded = self.load()
        best: list[tuple[float, str]] = [(-np.inf, "")] * len(questions)

        def answers(some: Sequence[_Window]) -> Iterator[tuple[float, str]]:
            return map(_best_span, some, *_logits(loaded, some))

        with loaded.lock:
            windows = list(_windows(loaded, questions))
            found = in_batches(windows, lambda window: len(window.spans), _BATCH_TOKENS, answers)
        for window, candidate in zip(windows, found, strict=True):
            if candidate[0] > best[window.question][0]:  # of equal margins, the better passage's
                best[window.question] = candidate
        return [text if margin >= _LEAST_MARGIN and text else None for margin, text in best]


def _windows(loaded: Loaded, questions: Sequence[tuple[str, Sequence[Hit]]]) -> Iterator[_Window]:
    tokenizer = loaded.tokenizer
    longest = min(_WINDOW, tokenizer.model_max_length, loaded.positions(_WINDOW + 2) - 2)  # some count two more
    for number, (question, hits) in enumerate(questions):
        question_ids = cut(tokenizer, storable(question), min(_QUESTION_TOKENS, longest // 4))
        for hit in hits:
            text = f"{hit.passage.title}. {hit.passage.text}"
            encoded = tokenizer(
                question_ids,
                text,
                truncation="only_second",
                max_length=longest,
                stride=min(_OVERLAP, longest // 4),
                return_overflowing_tokens=True,
                return_offsets_mapping=True,
            )
            for part, ids in enumerate(encoded["input_ids"]):
                places = zip(encoded.sequence_ids(part), encoded["offset_mapping"][part], strict=True)
                spans = [tuple(span) if sequence == 1 else (0, 0) for sequence, span in places]
                inputs = {key: encoded[key][part] for key in ("input_ids", "token_type_ids") if key in encoded}
                nowhere = ids.index(tokenizer.cls_token_id) if tokenizer.cls_token_id in ids else 0
                yield _Window(number, text, inputs, spans, nowhere)


def _logits(loaded: Loaded, windows: Sequence[_Window]) -> tuple[Any, Any]:
    """Return the logits of starts and of ends, each (windows, longest window)."""
    import torch

    fillers = {"input_ids": loaded.tokenizer.pad_token_id or 0, "token_type_ids": 0}
    inputs = {
        key: padded([window.inputs[key] for window in windows], fillers[key], loaded.model.device)
        for key in windows[0].inputs
    }
    mask = padded([[1] * len(window.spans) for window in windows], 0, loaded.model.device)
    with torch.inference_mode():
        out = loaded.model(**inputs, attention_mask=mask)
    return out.start_logits.float().cpu().numpy(), out.end_logits.float().cpu().numpy()


def _best_span(window: _Window, starts: Any, ends: Any) -> tuple[float, str]:
    """Return the margin and the text of the best span of at most 30 tokens; minus infinity if there is none."""
    length = len(window.spans)
    starts, ends = starts[:length].astype(np.float64), ends[:length].astype(np.float64)
    outside = np.array([start == end for start, end in window.spans])
    nowhere = starts[window.nowhere] + ends[window.nowhere]
    if outside.all():
        return -np.inf, ""
    sums = np.where(outside, -np.inf, starts)[:, None] + np.where(outside, -np.inf, ends)[None, :]
    sums[~np.triu(np.tri(length, k=_ANSWER_TOKENS - 1, dtype=bool))] = -np.inf  # start <= end < start + 30
    start, end = np.unravel_index(int(sums.argmax()), sums.shape)
    text = window.text[window.spans[start][0] : window.spans[end][1]]
    return float(sums[start, end] - nowhere), text.strip()
