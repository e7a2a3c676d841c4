"""Checks a model before it predicts calls: its tokenizer, its prompt, and whether it can predict plain text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from toolformer_core.diagnose.gold import GoldCall
from toolformer_core.lm.base import LanguageModel, ScoreRequest
from toolformer_core.lm.hf.model import HFModel
from toolformer_core.lm.tokens import tokenize
from toolformer_core.records import Prompt
from toolformer_core.syntax import find_calls, strip

_LOSS_TOKENS = 256  # from the start of a text
_LOSS_TEXTS = 32
_AROUND = 20  # characters on either side by which the two copies of a demonstration are matched
_MIN_AROUND = 8


@dataclass(frozen=True, slots=True)
class Structure:
    place_alone: float  # share of gold calls with a token that starts at their position, so that it can be sampled
    demonstrations: int  # see `demonstrations`
    prompt_tokens: int
    context: int  # tokens
    loss: float | None  # nats per token of the plain texts; guessing among V tokens costs ln V
    vocabulary: int


def structure_of(
    hf_model: HFModel,
    tool_name: str,
    prompt: Prompt,
    texts: Mapping[str, str],
    gold: Sequence[GoldCall],
    loss: float | None,
) -> Structure:
    plain = dict(zip(texts, tokenize(hf_model.tokenizer, list(texts.values())), strict=True))
    place = sum(call.position in plain[call.doc_id].cuts for call in gold)
    return Structure(
        place_alone=place / len(gold),
        demonstrations=demonstrations(prompt, tool_name),
        prompt_tokens=len(hf_model.encode(prompt.head)) + len(hf_model.encode(prompt.tail)),
        context=hf_model.context_length,
        loss=loss,
        vocabulary=int(hf_model.model.config.get_text_config().vocab_size),
    )


def demonstrations(prompt: Prompt, tool_name: str) -> int:
    """Count the calls of a prompt whose surrounding text the prompt also shows without the call."""
    calls = list(find_calls(prompt.head, [tool_name]))
    plain = strip(prompt.head, [(call.start, call.end) for call in calls])
    count = removed = 0
    for call in calls:
        at = call.start - removed
        removed += call.end - call.start
        before, after = plain[:at].rpartition("\n")[2][-_AROUND:], plain[at:].partition("\n")[0][:_AROUND]
        # try every suffix of `before`, because its start may be `Output:` or another label instead of the text
        surroundings = (before[-n:] + after for n in range(len(before), 0, -1))
        count += any(len(around) >= _MIN_AROUND and plain.count(around) > 1 for around in surroundings)
    return count


def loss_per_token(lm: LanguageModel, texts: Sequence[str], context: int) -> float | None:
    """Return the mean of -log p over the first 256 tokens of 32 texts at most, in nats; None: there is no token."""
    tokens = max(1, min(_LOSS_TOKENS, context // 4))
    log_probs = lm.log_probs([ScoreRequest("", text, 0, tokens) for text in texts[:_LOSS_TEXTS]])
    # without a start token, x_1 has no probability
    known = [np.asarray(x[1:] if len(x) and np.isnan(x[0]) else x, dtype=np.float64) for x in log_probs]
    flat = np.concatenate(known) if known else np.zeros(0)
    return -float(flat.mean()) if len(flat) else None
