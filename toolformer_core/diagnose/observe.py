"""Puts one tool's gold calls to a model, through the stages themselves, and writes down what happens.

    sample, execute, score     as in a build, on the documents chosen: the yield
    trials                     gold calls put where they belong and scored there, whatever the model would have drawn

    | trial     | call           | response           | at                                                             |
    |-----------|----------------|--------------------|----------------------------------------------------------------|
    | gold      | gold           | the tool's         | the gold position                                              |
    | wrong     | gold           | another document's | the gold position                                              |
    | unrelated | another one's  | another document's | the gold position; for a tool without input, gold call and     |
    |           |                |                    | response elsewhere in the document                             |

Nothing of the method is done a second time here: the model is wrapped only to note p(" [") at the positions that
sampling did not choose. It knows neither thresholds on gain nor what the numbers mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from toolformer_core.annotate.execute import execute
from toolformer_core.annotate.sample import sample
from toolformer_core.annotate.score import score
from toolformer_core.config import ExecuteConfig, SampleConfig, ScoreConfig
from toolformer_core.diagnose.gold import Chosen, GoldCall
from toolformer_core.errors import ContextError, ToolformerError
from toolformer_core.lm.base import LanguageModel, Scan, ScoreRequest
from toolformer_core.records import Document, DrawnCall, Execution, Prompt, ScoredCall, Verdict, digest_of
from toolformer_core.tools.base import Tool

__all__ = ["KINDS", "Observed", "Place", "Tell", "Trial", "observe"]

KINDS = ("gold", "wrong", "unrelated")
_DOCUMENTS_AT_ONCE = 8  # sampled between two reports of progress

_Option = TypeVar("_Option")

Tell = Callable[[str, int, int], None]  # (tool, documents done, documents in all)


@dataclass(frozen=True, slots=True)
class Place:
    """A gold position as scanning saw it."""

    gold: GoldCall
    log_p: float  # log p(" ["); -inf where no token starts
    rank: int  # 0: the likeliest position of its document
    positions: int  # that could be sampled in the document


@dataclass(frozen=True, slots=True)
class Trial:
    """A call put to the filter on purpose."""

    kind: str  # gold | wrong | unrelated
    gold: GoldCall
    scored: ScoredCall


@dataclass(frozen=True, slots=True)
class Observed:
    """What happened with one tool: nothing summed up yet."""

    tool: str
    documents: tuple[str, ...]
    gold: tuple[GoldCall, ...]
    config: SampleConfig
    dropped: int = 0  # documents with gold calls, by the prefilter
    places: tuple[Place, ...] = ()
    draws: tuple[DrawnCall, ...] = ()
    contexts: Mapping[str, str] = field(default_factory=dict)  # by document
    executions: Mapping[tuple[str, str], Execution] = field(default_factory=dict)  # by (input, context)
    trials: tuple[Trial, ...] = ()
    scored: tuple[ScoredCall, ...] = ()  # of the draws
    tokenizer_fault: str = ""  # why the model cannot write calls at all
    prompt_fault: str = ""  # why nothing could be sampled
    tool_fault: str = ""  # why nothing could be executed
    name: str = ""  # the tool's, in calls

    def response(self, doc_id: str, input_: str) -> str:
        """Return the tool's response to an input in a document; "" if it gave none or was not asked."""
        found = self.executions.get((input_, self.contexts.get(doc_id, "")))
        return found.response if found else ""


@dataclass(slots=True)
class _Noting:
    """A language model that is looked at while it scans."""

    lm: LanguageModel
    seen: dict[str, tuple[NDArray[np.int64], NDArray[np.float32]]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.lm.name

    @property
    def digest(self) -> str:
        return self.lm.digest

    def scan(self, prompt: Prompt, texts: Sequence[str]) -> Iterator[Scan]:
        for scan in self.lm.scan(prompt, texts):
            for index, positions, log_probs in zip(scan.texts, scan.positions, scan.log_probs, strict=True):
                self.seen[texts[index]] = (positions, log_probs)
            yield scan

    def log_probs(self, requests: Sequence[ScoreRequest]) -> list[NDArray[np.float32]]:
        return self.lm.log_probs(requests)


def observe(
    lm: LanguageModel,
    tool: Tool,
    prompt: Prompt,
    chosen: Chosen,
    config: SampleConfig,
    *,
    taken: Mapping[str, Sequence[int]] | None = None,
    tell: Tell | None = None,
) -> Observed:
    """Sample, execute and score one tool's calls, and its gold calls with right and wrong responses.

    Args:
        lm: the model.
        tool: the tool; loaded when it is first asked.
        prompt: its annotation prompt.
        chosen: documents and gold calls.
        config: of sampling; its seed also chooses the wrong responses.
        taken: by document id, positions at which any tool's call is right: no call is put "elsewhere" there.
        tell: called with (tool, done, all) as documents are finished.

    Raises:
        ModelError: the model cannot be asked at all, e.g. a server that is gone.
        ScriptError: of a `ScriptedLM`.
    """
    noting = _Noting(lm)
    draws: list[DrawnCall] = []
    fault = tool_fault = ""
    done = 0
    try:
        for at in range(0, len(chosen.pairs), _DOCUMENTS_AT_ONCE):
            some = chosen.pairs[at : at + _DOCUMENTS_AT_ONCE]
            draws += [call for one in sample(noting, prompt, tool.name, some, config) for call in one.calls]
            done += len(some)
            if tell:
                tell(tool.key, done, len(chosen.pairs))
    except ContextError as exc:  # whatever else fails, memory or a server, says nothing of the prompt
        fault = str(exc)
    contexts = {document.doc_id: verdict.context for document, verdict in chosen.pairs}
    parsed = [call for call in draws if call.outcome == "ok"]
    wanted = [(call.input, contexts[call.doc_id]) for call in chosen.gold]
    wanted += [(call.input, contexts[call.doc_id]) for call in parsed]
    executions: dict[tuple[str, str], Execution] = {}
    try:
        executions = {(e.input, e.context): e for e in execute(tool, wanted, ExecuteConfig())}
    except ToolformerError as exc:
        tool_fault = str(exc)
    observed = Observed(
        tool=tool.key,
        documents=tuple(contexts),
        gold=chosen.gold,
        config=config,
        dropped=chosen.dropped,
        places=tuple(_places(chosen, noting.seen)) if not fault else (),
        draws=tuple(draws),
        contexts=contexts,
        executions=executions,
        prompt_fault=fault,
        tool_fault=tool_fault,
        name=tool.name,
    )
    return _scored(lm, tool, {d.doc_id: d.text for d, _ in chosen.pairs}, observed, taken or {})


def _places(chosen: Chosen, seen: Mapping[str, tuple[NDArray[np.int64], NDArray[np.float32]]]) -> Iterator[Place]:
    by_document: dict[str, list[GoldCall]] = {}
    for call in chosen.gold:
        by_document.setdefault(call.doc_id, []).append(call)
    for document, verdict in chosen.pairs:
        if not (calls := by_document.get(document.doc_id)):
            continue
        known = dict(_sampled_at(document, verdict, seen))
        for call in calls:
            log_p = known.get(call.position, -math.inf)
            rank = sum(other > log_p for other in known.values()) if call.position in known else len(known)
            yield Place(call, log_p, rank, len(known))


def _sampled_at(
    document: Document, verdict: Verdict, seen: Mapping[str, tuple[NDArray[np.int64], NDArray[np.float32]]]
) -> Iterator[tuple[int, float]]:
    """Yield (position, log p) where sampling may choose: not behind the last word."""
    last = len(document.text.rstrip())
    for start, end in verdict.spans or ((0, len(document.text)),):
        positions, log_probs = seen.get(document.text[start:end], ((), ()))
        for offset, log_p in zip(positions, log_probs, strict=True):
            if start + int(offset) < last:
                yield start + int(offset), float(log_p)


def _scored(
    lm: LanguageModel, tool: Tool, texts: Mapping[str, str], seen: Observed, taken: Mapping[str, Sequence[int]]
) -> Observed:
    """Add the losses of trials and draws."""
    trials = list(_trials(seen, texts, taken))
    items = [(call, response) for _, _, call, response in trials]
    by_key = {(c.doc_id, c.position, c.input, c.response): c for c in score(lm, tool.name, texts, items, ScoreConfig())}
    tried = tuple(
        Trial(kind, gold, by_key[call.doc_id, call.position, call.input, response])
        for kind, gold, call, response in trials
    )
    drawn = [(c, r) for c in seen.draws if c.outcome == "ok" and (r := seen.response(c.doc_id, c.input))]
    scored = tuple(score(lm, tool.name, texts, drawn, ScoreConfig()))
    return replace(seen, trials=tried, scored=scored)


def _trials(
    seen: Observed, texts: Mapping[str, str], taken: Mapping[str, Sequence[int]]
) -> Iterator[tuple[str, GoldCall, DrawnCall, str]]:
    """Yield (kind, gold call, the call tried, its response)."""
    answered = [(call, response) for call in seen.gold if (response := seen.response(call.doc_id, call.input))]
    for call, response in answered:
        yield "gold", call, _drawn(call, call.input, call.position), response
        others = [(c, r) for c, r in answered if c.doc_id != call.doc_id and r != response]
        if others:
            _, wrong = _pick(others, "wrong", seen.config.seed, call)
            yield "wrong", call, _drawn(call, call.input, call.position), wrong
        if strangers := [(c, r) for c, r in others if c.input != call.input]:
            other, theirs = _pick(strangers, "unrelated", seen.config.seed, call)
            yield "unrelated", call, _drawn(call, other.input, call.position), theirs
        elif not call.input and (places := _elsewhere(texts[call.doc_id], call, taken.get(call.doc_id, ()))):
            yield "unrelated", call, _drawn(call, "", _pick(places, "elsewhere", seen.config.seed, call)), response


def _pick(options: Sequence[_Option], what: str, seed: int, call: GoldCall) -> _Option:
    number = int(digest_of(what, str(seed), call.doc_id, str(call.position))[:16], 16)
    return options[number % len(options)]


def _drawn(call: GoldCall, input_: str, position: int) -> DrawnCall:
    """Return a call as if it had been drawn."""
    return DrawnCall(call.doc_id, call.tool, position, 0.0, 0, "", "ok", input_, 1)


def _elsewhere(text: str, call: GoldCall, taken: Sequence[int]) -> list[int]:
    """Spaces of a text at which no call is right, with five words behind them to be predicted."""
    spaces = [i for i, char in enumerate(text) if char == " "][:-5]
    return [at for at in spaces if at not in taken and at != call.position]
