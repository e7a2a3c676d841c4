"""A reader with a text-to-text model such as T5: it is shown the passages and the question, and writes the answer.

The passages, best first, fill what is left of the model's window; the last one is cut.
"""

from collections.abc import Iterator, Sequence

from toolformer_core.records import digest_of, storable
from toolformer_core.tools.hf.batches import in_batches, write_greedily
from toolformer_core.tools.hf.checkpoint import Loaded
from toolformer_core.tools.qa import Reading
from toolformer_core.tools.qa_readers.answers import ModelReader, answer_of, cut, passages_text
from toolformer_core.tools.search.passages import Hit

VERSION = "1"
_HEAD = (
    "Answer the question in a few words, using only the passages. "
    'If the passages do not hold the answer, write "unanswerable".\n\n'
)
_TAIL = "\n\nQuestion: {question}\nAnswer:"
_WINDOW = 1024  # tokens of a prompt; T5's relative positions set no limit
_QUESTION_TOKENS = 128  # the rest of a longer question is not read
_ANSWER_TOKENS = 32
_SPARE = 8  # parts of a text may have a few tokens fewer than the whole
_BATCH_TOKENS = 16_384  # of prompts in one batch, padding included


class TextToTextReader(ModelReader):
    """Finds answers with a text-to-text model, a folder or a hub name, e.g. `google/flan-t5-large`."""

    auto_class = "AutoModelForSeq2SeqLM"

    @property
    def digest(self) -> str:
        figures = map(str, (_WINDOW, _QUESTION_TOKENS, _ANSWER_TOKENS))
        return digest_of(type(self).__name__, VERSION, _HEAD, _TAIL, *figures, self._checkpoint.digest)

    def read(self, questions: Sequence[tuple[str, Sequence[Hit]]]) -> list[Reading]:
        loaded = self.load()

        def answers(prompts: list[list[int]]) -> Iterator[Reading]:
            written = write_greedily(loaded, prompts, _ANSWER_TOKENS)
            return map(answer_of, loaded.tokenizer.batch_decode(written, skip_special_tokens=True))

        with loaded.lock:
            prompts = [_prompt(loaded, question, hits) for question, hits in questions if hits]
            found = iter(in_batches(prompts, len, _BATCH_TOKENS, answers))
        return [next(found) if hits else None for _, hits in questions]


def _prompt(loaded: Loaded, question: str, hits: Sequence[Hit]) -> list[int]:
    tokenizer = loaded.tokenizer
    tail = _TAIL.format(question=cut(tokenizer, storable(question), _QUESTION_TOKENS))
    room = min(_WINDOW, loaded.positions(_WINDOW)) - len(tokenizer(_HEAD + tail)["input_ids"]) - _SPARE
    shown = cut(tokenizer, passages_text(hits), max(room, 1))
    return list(tokenizer(_HEAD + shown + tail)["input_ids"])
