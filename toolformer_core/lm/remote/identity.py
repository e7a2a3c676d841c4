"""Which model a server serves: what the server says of it, and what a fixed text shows.

A name may stay while its model changes, so the server also computes the log-probabilities of a fixed text, the probe.
Two probes are those of one model if they differ by less than `TOLERANCE` nats per token on average, and the digest is
that of the first probe: who knows an earlier one passes it to `recognised`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from toolformer_core.errors import ModelError, ServerRefusalError
from toolformer_core.lm.load import LoadedTokenizer, load_tokenizer
from toolformer_core.lm.prompt_tokenizer import PromptTokenizer
from toolformer_core.lm.reference import ModelRef
from toolformer_core.lm.vllm_server import VllmServer
from toolformer_core.records import digest_of

MOST_LOGPROBS = 1_000  # of a place, however many a server allows: a response has as many entries per token
TOLERANCE = 0.05  # nats per token, mean over the probe
_DECIMALS = 2  # of a log-probability in the digest
_SPACES = " \n▁ĠĊ"
_OTHER_SPELLINGS = 0.1  # share of the probe's tokens that a server may write otherwise

# Prose, arithmetic, dates, other languages, code and a call: models that differ, differ somewhere here.
_PROBE = (
    "Of the 30 apples, 12 are red, and [Calculator(30 - 12) -> 18] 18 are green. The river rises in the hills north of "
    "the town and flows west for 240 kilometres. On Monday, 3 March 2014, the council met for the first time. "
    "La maison est près de la gare. Das Wetter war kalt, aber schön. 今日は雨です。 def area(r): return 3.14 * r ** 2"
)


@dataclass(frozen=True, slots=True)
class RemoteModel:
    """A model behind a server, in plain values that travel to workers."""

    name: str  # by which the server knows it
    root: str  # the folder or hub name that the server loaded; "" if it does not say
    context: int  # tokens of its context; 0 if the server does not say
    logprobs: int  # how many of the most likely tokens the server tells at a place, at most `MOST_LOGPROBS`
    tokenizer: str  # folder or hub name of its tokenizer
    tokenizer_digest: str  # of the tokenizer's files
    probe: tuple[float, ...]  # log-probabilities of the probe's tokens but the first, natural logarithms

    @property
    def digest(self) -> str:
        """Digest of its names, its context and its probe, rounded to hundredths of a nat."""
        rounded = [f"{value:.{_DECIMALS}f}" for value in self.probe]
        return digest_of("remote", self.name, self.root, str(self.context), *rounded)

    def is_model(self, other: RemoteModel) -> bool:
        mine, theirs = ((one.name, one.root, one.context, one.tokenizer_digest) for one in (self, other))
        return mine == theirs and difference(self.probe, other.probe) < TOLERANCE

    def recognised(self, known: Iterable[RemoteModel]) -> RemoteModel:
        """Return this description with the probe of the first of some known models that is this one."""
        return next((replace(self, probe=one.probe) for one in known if self.is_model(one)), self)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "probe": list(self.probe)}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> RemoteModel:
        return cls(**{**fields, "probe": tuple(fields["probe"])})


def difference(probe: Sequence[float], other: Sequence[float]) -> float:
    """Return the mean absolute difference of two probes, in nats per token; infinite if their lengths differ."""
    return float(np.abs(np.subtract(probe, other)).mean()) if len(probe) == len(other) else float("inf")


def tokenizer_for(loaded: LoadedTokenizer, model: str, context: int) -> PromptTokenizer:
    """Return a tokenizer with what annotation needs of its model; context 0: the tokenizer alone says its length."""
    lengths = [context] if context > 0 else []
    return PromptTokenizer(loaded.tokenizer, name=model, bos=loaded.start, context_lengths=lengths)


def describe(server: VllmServer, model: ModelRef) -> RemoteModel:
    """Ask a server which model it serves; a ModelError if none answers for it, or its tokenizer cannot be loaded."""
    description = server.description()
    root, context = str(description.get("root") or ""), description.get("max_model_len")
    try:
        loaded = load_tokenizer(model)
    except ModelError as exc:
        if model.tokenizer:
            raise
        hint = f" (the server loaded {root!r})" if root not in ("", server.model) else ""
        raise ModelError(f"{exc}; name the tokenizer of {server.model!r}: {model.name}?tokenizer=FOLDER{hint}") from exc
    context = context if isinstance(context, int) else 0
    coded = tokenizer_for(loaded, model.name, context)
    probe = probe_of(server, coded)
    _check_spelling(server, coded, model.here.name)
    logprobs = _most_logprobs(server, probe_ids(coded)[:2], min(MOST_LOGPROBS, len(loaded.tokenizer)))
    return RemoteModel(server.model, root, context, logprobs, model.here.name, loaded.digest, probe)


def probe_ids(model: PromptTokenizer) -> list[int]:
    """Return the tokens of the probe, as many as the model's context holds."""
    return [*model.lead, *model.encode(_PROBE)][: model.context_length - 1]


def probe_of(server: VllmServer, model: PromptTokenizer) -> tuple[float, ...]:
    """Return the log-probabilities of the probe's tokens but the first, to a thousandth of a nat."""
    values = server.log_probs(probe_ids(model))
    if not all(value < 1e-3 for value in values):  # NaN is none either
        raise ModelError(
            f"what {server.url} gives as prompt_logprobs are no log-probabilities; start it without --logprobs-mode"
        )
    return tuple(round(value, 3) for value in values)


def _check_spelling(server: VllmServer, model: PromptTokenizer, tokenizer: str) -> None:
    """Refuse a tokenizer whose tokens the server reads as other texts; only ASCII without spaces is compared."""
    ids = probe_ids(model)
    spelled = ((token, model.text([token]), there) for token, there in zip(ids[1:], server.spelling(ids), strict=True))
    compared = [one for one in spelled if one[1].isascii()]
    other = [(token, here, there) for token, here, there in compared if here.strip() != there.strip(_SPACES)]
    if len(other) > _OTHER_SPELLINGS * len(compared):
        token, here, there = other[0]
        raise ModelError(
            f"the tokenizer of {tokenizer!r} is not that of {server.model!r}: token {token} is {here!r} here and "
            f"{there!r} on the server; name the model's own: remote+...#{server.model}?tokenizer=FOLDER"
        )


def _most_logprobs(server: VllmServer, prompt: list[int], most: int) -> int:
    """Return how many of the most likely tokens a server reports, at most `most`, by requesting them for two tokens."""

    def allows(n: int) -> bool:
        try:
            return len(server.likely_tokens(prompt, n)[0]) >= n
        except ServerRefusalError:
            return False

    allowed = bisect_left(range(1, most + 1), True, key=lambda n: not allows(n))
    if not allowed:
        raise ModelError(
            f"{server.url} tells the log-probabilities of a prompt's own tokens alone, and a scan needs those of "
            "likely ones; start the server with --max-logprobs 20 or more"
        )
    return allowed
