"""Examples as token rows: `input_ids`, `attention_mask` and `labels`, for trainers that take tokens as they are.

x* is tokenized as in finetuning and as decoding writes it (`syntax.call_pieces`), between the tokens that start and end
a sequence. The label of a token is its id, or -100, which losses pass over: for a token that shares a character with a
response, also if it holds other characters (a merged `529]`), and for the first of a row, which nothing predicts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from toolformer_core.export.pieces import written_calls
from toolformer_core.lm.tokens import Tokens, tokenize
from toolformer_core.records import Example

NOT_TRAINED = -100  # the label that PyTorch's cross-entropy and all trainers pass over


@dataclass(frozen=True, slots=True)
class TokenRow:
    """The tokens of an example."""

    input_ids: list[int]  # (n,)
    labels: list[int]  # (n,) the token's id, or -100
    texts: list[str]  # (n,) the characters that each token adds; together with the special tokens, x*

    def row(self) -> dict[str, list[int]]:
        """Return the columns that trainers read."""
        return {"input_ids": self.input_ids, "attention_mask": [1] * len(self.input_ids), "labels": self.labels}

    @property
    def trained(self) -> int:
        """The number of tokens that are trained."""
        return sum(label != NOT_TRAINED for label in self.labels)


def token_rows(tokenizer: Any, examples: Sequence[Example], *, start: int | None, end: int | None) -> list[TokenRow]:
    """Tokenize examples with a fast tokenizer, `start` and `end` around each, if any; errors of `written_calls`."""
    tokenized = tokenize(tokenizer, [example.text for example in examples])
    return [_row(tokenizer, *pair, start, end) for pair in zip(examples, tokenized, strict=True)]


def _row(tokenizer: Any, example: Example, tokens: Tokens, start: int | None, end: int | None) -> TokenRow:
    ids = [int(token) for token in tokens.ids]
    size = len(example.text)
    texts = [example.text[at:until] for at, until in zip(tokens.cuts.tolist(), tokens.ends(size).tolist(), strict=True)]
    responses = [(call.response_start, call.response_end) for call in written_calls(example)]
    masked = tokens.touching(responses, size)
    labels = [NOT_TRAINED if mask else token for token, mask in zip(ids, masked, strict=True)]
    before, after = ([] if token is None else [token] for token in (start, end))
    special = [str(tokenizer.decode([token])) for token in (*before, *after)]
    row = TokenRow(
        [*before, *ids, *after],
        [*before, *labels, *after],
        [*special[: len(before)], *texts, *special[len(before) :]],
    )
    row.labels[:1] = [NOT_TRAINED] * len(row.labels[:1])
    return row
