"""What stands in a model's way before it has predicted anything: its tokenizer, its prompt, and whether it knows texts.

    trigger_alone   share of gold calls whose " [" is, in the text, the very tokens of which sampling measures p(" [")
    arrow_alone     share of gold calls with a token boundary right behind their "->", where decoding stops to ask
    place_alone     share of gold calls in front of which a token starts, so that the place can be sampled at all
    demonstrations  calls of the prompt that stand in a text which the prompt also shows without them
    loss            nats per token of the plain texts, beside ln V, the loss of guessing among V tokens

It reads tokens and one plain pass; what the model makes of a prompt is measured elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from toolformer_core.diagnose.gold import GoldCall
from toolformer_core.lm.base import LanguageModel, ScoreRequest
from toolformer_core.lm.network import Network
from toolformer_core.lm.tokens import tokenize
from toolformer_core.records import Call, Prompt
from toolformer_core.syntax import ARROW, find_calls, interleave, linearize, strip

__all__ = ["Structure", "demonstrations", "loss_per_token", "lost_in_writing", "structure_of"]

_LOSS_TOKENS = 256  # of a text's beginning
_LOSS_TEXTS = 32
_AROUND = 20  # characters on either side by which a demonstration's two copies are known
_LEAST_AROUND = 8


@dataclass(frozen=True, slots=True)
class Structure:
    """Tokenizer, prompt and texts of one tool; shares in [0, 1]."""

    trigger_alone: float
    arrow_alone: float
    place_alone: float
    demonstrations: int
    prompt_tokens: int
    context: int  # tokens
    loss: float | None  # nats per token of the plain texts
    vocabulary: int


def structure_of(
    network: Network,
    tool_name: str,
    prompt: Prompt,
    texts: Mapping[str, str],
    gold: Sequence[GoldCall],
    loss: float | None,
) -> Structure:
    """Look at tokens.

    Args:
        network: the model and its tokenizer.
        tool_name: as it stands in a call.
        prompt: the tool's.
        texts: by document id.
        gold: the tool's gold calls in these texts.
        loss: see `loss_per_token`.
    """
    trigger = arrow = place = 0
    plain = dict(zip(texts, tokenize(network.tokenizer, list(texts.values())), strict=True))
    for call in gold:
        # the value stands for the response: only the arrow's neighbourhood counts
        body = linearize(Call(tool_name, call.input), call.value or "x")
        text, ((start, _),) = interleave(texts[call.doc_id], [(call.position, body)])
        (tokens,) = tokenize(network.tokenizer, [text])
        cuts = tokens.cuts.tolist()
        j = tokens.token_at(start)
        trigger += cuts[j : j + 1] == [start] and tokens.ids[j : j + len(network.trigger)].tolist() == network.trigger
        arrow += start + body.index(ARROW) + len(ARROW) in cuts
        place += call.position in plain[call.doc_id].cuts
    return Structure(
        trigger_alone=trigger / len(gold),
        arrow_alone=arrow / len(gold),
        place_alone=place / len(gold),
        demonstrations=demonstrations(prompt, tool_name),
        prompt_tokens=len(network.encode(prompt.head)) + len(network.encode(prompt.tail)),
        context=network.context_length,
        loss=loss,
        vocabulary=int(network.model.config.get_text_config().vocab_size),
    )


def lost_in_writing(network: Network, tool_name: str) -> str:
    """Return why a tokenizer cannot write calls of a tool: a call read back from its tokens is no longer one.

    Blanks may come and go. "" where nothing is lost.
    """
    body = linearize(Call(tool_name, "1"), "1").strip()
    back = network.text(network.encode(body))
    if "".join(back.split()) == "".join(body.split()):
        return ""
    return f'the tokenizer cannot write a call: "{body}" comes back as "{back.strip()}"'


def demonstrations(prompt: Prompt, tool_name: str) -> int:
    """Count the demonstrated calls of a prompt: what stands around the call stands in the prompt once more, without it.

    `A call is written [Calculator(expression)]` shows the syntax and is none.
    """
    found = list(find_calls(prompt.head, [tool_name]))
    plain = strip(prompt.head, [(call.start, call.end) for call in found])
    count = removed = 0
    for call in found:
        at = call.start - removed
        removed += call.end - call.start
        before, after = plain[:at].rpartition("\n")[2][-_AROUND:], plain[at:].partition("\n")[0][:_AROUND]
        # as much of what stands before as is the text's own: the rest is `Output:`, or whatever else announces it
        ends = (before[-n:] + after for n in range(len(before), 0, -1))
        count += any(len(around) >= _LEAST_AROUND and plain.count(around) > 1 for around in ends)
    return count


def loss_per_token(lm: LanguageModel, texts: Sequence[str], context: int) -> float | None:
    """Return the mean of -log p over the beginnings of some texts, in nats per token; None if there is no token.

    It is not a number where the model's predictions are none.

    Args:
        context: of the model, in tokens; of a text a quarter of that is read, and 256 tokens at most.
    """
    tokens = max(1, min(_LOSS_TOKENS, context // 4))
    found = lm.log_probs([ScoreRequest("", text, 0, tokens) for text in texts[:_LOSS_TEXTS]])
    # without a start token nothing predicts x_1
    own = [np.asarray(one[1:] if len(one) and np.isnan(one[0]) else one, dtype=np.float64) for one in found]
    each = np.concatenate(own) if own else np.zeros(0)
    return -float(each.mean()) if len(each) else None
