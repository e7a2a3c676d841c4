"""What a response did to the loss of each of the next tokens: log-probabilities of three texts, and their difference.

gain = L- - L+ = sum_t w_t (log p(x_t | with the response) - log p(x_t | reference)), where the reference is the text
whose loss is L-: without the call, or with the call and no response; if that loss was not computed, without the call,
and the sum is an upper bound. Tokens' texts need the tokenizer of the run's model on this machine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from toolformer_core.annotate.score import weights
from toolformer_core.lm.reference import ModelRef

_STEPS = (0.01, 0.05, 0.2)  # nats of help from which a token has a stronger colour


@dataclass(frozen=True, slots=True)
class NextToken:
    """A token behind a call's position."""

    text: str | None  # None: the tokenizer is not there
    weight: float  # w_t
    plain: float  # log p without the call, nats
    call: float | None  # log p with the call and no response; None: not computed
    response: float  # log p with the call and its response
    help: float  # nats of the gain

    @property
    def level(self) -> int:
        """How strongly it is coloured: from -3, the response hurts, to 3, it helps."""
        size = sum(abs(self.help) >= step for step in _STEPS)
        return size if self.help > 0 else -size


def next_tokens(call: Mapping[str, Any], texts: Sequence[str] | None) -> list[NextToken]:
    """Return the tokens that a scored call is judged by; none if the log-probabilities were not stored."""
    plain, bare, response = (call.get(f"log_p_{name}") for name in ("plain", "call", "response"))
    if not plain or not response:
        return []
    is_less = call["loss_call"] is not None and call["loss_call"] < call["loss_plain"]
    reference: Sequence[float] = bare if bare is not None and is_less else plain
    return [
        NextToken(
            text=None if texts is None else texts[t],
            weight=float(w),
            plain=plain[t],
            call=None if bare is None else bare[t],
            response=response[t],
            help=float(w) * (response[t] - reference[t]),
        )
        for t, w in zip(range(len(plain)), weights(), strict=False)
    ]


def token_texts(model: str, text: str, call: Mapping[str, Any]) -> list[str] | None:
    """Return the texts of the tokens that a scored call of a model is judged by; None if they are not known."""
    file = ModelRef.of(model).local_file("tokenizer.json")
    count, end = len(call.get("log_p_plain") or ()), call.get("window_end")
    if file is None or not count or end is None:
        return None
    from toolformer_core.lm.tokens import tokenize

    tokenizer = _tokenizer(file, file.stat().st_mtime_ns)

    def encode(inputs: list[str], **_: Any) -> dict[str, Any]:
        encoded = tokenizer.encode_batch(inputs, add_special_tokens=False)
        return {"input_ids": [one.ids for one in encoded], "offset_mapping": [one.offsets for one in encoded]}

    [tokens] = tokenize(encode, [text])
    at = tokens.token_at(call["position"])
    cuts = [*tokens.cuts.tolist(), len(text)][at : at + count + 1]
    if len(cuts) != count + 1 or cuts[-1] != end:
        return None
    return [text[begin:stop] for begin, stop in pairwise(cuts)]


@lru_cache(maxsize=2)
def _tokenizer(file: Path, changed: int) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(file))
