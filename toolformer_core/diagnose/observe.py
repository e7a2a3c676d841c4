"""Runs a model on documents with gold calls of one tool, through the stages of a build, and records what happens.

It samples, executes and scores as in a build; and it scores trials, whether or not the model draws them:

    gold       the gold call with the tool's response, at the gold position
    wrong      the same with another document's response
    unrelated  another document's call and response, at the gold position; for a tool without input, the gold call and
               response at another position of the document

The model is wrapped only to record p(" [") at positions that sampling did not choose.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from toolformer_core.annotate.execute import execute
from toolformer_core.annotate.in_memory import OnProgress, answered_calls, questions, sample_all
from toolformer_core.annotate.score import score, worth_scoring
from toolformer_core.config import ExecuteConfig, SampleConfig, ScoreConfig
from toolformer_core.diagnose.gold import ChosenDocuments, GoldCall
from toolformer_core.errors import ContextError, ToolformerError
from toolformer_core.lm.base import Insertion, LanguageModel, Scan
from toolformer_core.records import Document, DrawnCall, Execution, PrefilterResult, Prompt, ScoredCall, digest_of
from toolformer_core.tools.base import Tool

KINDS = ("gold", "wrong", "unrelated")

_Option = TypeVar("_Option")
_Scans = dict[str, tuple[NDArray[np.int64], NDArray[np.float32]]]  # positions and log p(" [") by text


@dataclass(frozen=True, slots=True)
class GoldPosition:
    log_p: float  # log p(" ["); -inf if no token starts there
    rank: int  # 0 for the most likely position of its document
    positions: int  # how many positions of the document could be sampled


@dataclass(frozen=True, slots=True)
class Trial:
    kind: str  # gold | wrong | unrelated
    gold: GoldCall
    scored: ScoredCall


@dataclass(frozen=True, slots=True)
class Observed:
    tool: str
    gold: tuple[GoldCall, ...]
    config: SampleConfig
    dropped: int = 0  # documents with gold calls that the prefilter dropped
    gold_positions: tuple[GoldPosition, ...] = ()
    samples: tuple[DrawnCall, ...] = ()
    contexts: Mapping[str, str] = field(default_factory=dict)  # by document
    executions: Mapping[tuple[str, str], Execution] = field(default_factory=dict)  # by (input, context)
    trials: tuple[Trial, ...] = ()
    scored: tuple[ScoredCall, ...] = ()  # of the samples
    faults: Mapping[str, str] = field(default_factory=dict)  # step -> why it could not be done at all
    name: str = ""  # the tool's name in calls

    def response(self, doc_id: str, input_: str) -> str:
        """Return the tool's response to an input in a document; "" if there is none or the tool was not called."""
        execution = self.executions.get((input_, self.contexts.get(doc_id, "")))
        return execution.response if execution else ""


class _RecordingLM:
    def __init__(self, lm: LanguageModel) -> None:
        self._lm = lm
        self.scans: _Scans = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lm, name)

    def scan(self, prompt: Prompt, texts: Sequence[str | Insertion]) -> Iterator[Scan]:
        for scan in self._lm.scan(prompt, texts):
            for index, positions, log_probs in zip(scan.texts, scan.positions, scan.log_probs, strict=True):
                if isinstance(text := texts[index], str):
                    self.scans[text] = (positions, log_probs)
            yield scan


def observe(
    lm: LanguageModel,
    tool: Tool,
    prompt: Prompt,
    chosen: ChosenDocuments,
    config: SampleConfig,
    *,
    occupied: Mapping[str, Sequence[int]] | None = None,
    on_progress: OnProgress | None = None,
) -> Observed:
    """Sample, execute and score one tool's calls, and score its gold calls with right and wrong responses.

    The seed of `config` also chooses the wrong responses. At `occupied` positions, those of any tool's gold calls by
    document id, no unrelated call is inserted. `on_progress` is called with (tool, documents done, documents in total).
    """
    recording: Any = _RecordingLM(lm)
    samples: list[DrawnCall] = []
    faults: dict[str, str] = {}
    try:
        sampled = sample_all(recording, prompt, tool, chosen.pairs, config, on_progress)
        samples = [call for document in sampled for call in document.calls]
    except ContextError as exc:  # other failures, of memory or a server, are not the prompt's fault
        faults["prompt"] = str(exc)
    contexts = {document.doc_id: prefiltered.context for document, prefiltered in chosen.pairs}
    requests = [(call.input, contexts[call.doc_id]) for call in chosen.gold] + questions(samples, contexts)
    executions: dict[tuple[str, str], Execution] = {}
    try:
        executions = {(e.input, e.context): e for e in execute(tool, requests, ExecuteConfig())}
    except ToolformerError as exc:
        faults["tool"] = str(exc)
    observed = Observed(
        tool=tool.key,
        gold=chosen.gold,
        config=config,
        dropped=chosen.dropped,
        gold_positions=tuple(_gold_positions(chosen, recording.scans)) if "prompt" not in faults else (),
        samples=tuple(samples),
        contexts=contexts,
        executions=executions,
        faults=faults,
        name=tool.name,
    )
    return _add_scores(lm, tool, {d.doc_id: d.text for d, _ in chosen.pairs}, observed, occupied or {})


def _gold_positions(chosen: ChosenDocuments, scans: _Scans) -> Iterator[GoldPosition]:
    for document, prefiltered in chosen.pairs:
        log_p_at = dict(_candidate_positions(document, prefiltered, scans))
        for call in (call for call in chosen.gold if call.doc_id == document.doc_id):
            log_p = log_p_at.get(call.position, -math.inf)
            rank = sum(other > log_p for other in log_p_at.values()) if call.position in log_p_at else len(log_p_at)
            yield GoldPosition(log_p, rank, len(log_p_at))


def _candidate_positions(
    document: Document, prefiltered: PrefilterResult, scans: _Scans
) -> Iterator[tuple[int, float]]:
    """Yield (position, log p) where sampling may choose, which is before the end of the last word."""
    last = len(document.text.rstrip())
    for start, end in prefiltered.spans or ((0, len(document.text)),):
        positions, log_probs = scans.get(document.text[start:end], ((), ()))
        for offset, log_p in zip(positions, log_probs, strict=True):
            if start + int(offset) < last:
                yield start + int(offset), float(log_p)


def _add_scores(
    lm: LanguageModel, tool: Tool, texts: Mapping[str, str], observed: Observed, occupied: Mapping[str, Sequence[int]]
) -> Observed:
    candidates = list(_trials(observed, texts, occupied))
    items = [(call, response) for _, _, call, response in candidates]
    by_key = {
        (c.doc_id, c.position, c.input, c.response): c
        for c in score(lm, tool.name, texts, items, ScoreConfig(floor=None))
    }
    trials = tuple(
        Trial(kind, gold, by_key[call.doc_id, call.position, call.input, response])
        for kind, gold, call, response in candidates
    )
    answered = answered_calls(observed.samples, observed.contexts, observed.executions)
    worth, _ = worth_scoring(texts, answered, observed.config)
    scored = tuple(score(lm, tool.name, texts, worth, ScoreConfig(floor=None)))
    return replace(observed, trials=trials, scored=scored)


def _trials(
    observed: Observed, texts: Mapping[str, str], occupied: Mapping[str, Sequence[int]]
) -> Iterator[tuple[str, GoldCall, DrawnCall, str]]:
    """Yield (kind, gold call, the call to score, its response)."""

    def pick(options: Sequence[_Option], purpose: str) -> _Option:
        digest = digest_of(purpose, str(observed.config.seed), call.doc_id, str(call.position))
        return options[int(digest[:16], 16) % len(options)]

    answered = [(call, response) for call in observed.gold if (response := observed.response(call.doc_id, call.input))]
    for call, response in answered:
        in_place = _as_drawn(call, call.input, call.position)
        yield "gold", call, in_place, response
        others = [(c, r) for c, r in answered if c.doc_id != call.doc_id and r != response]
        if others:
            yield "wrong", call, in_place, pick(others, "wrong")[1]
        if unrelated := [(c, r) for c, r in others if c.input != call.input]:
            other, other_response = pick(unrelated, "unrelated")
            yield "unrelated", call, _as_drawn(call, other.input, call.position), other_response
        elif not call.input:  # at a space without a gold call that is followed by at least five more spaces
            spaces = [i for i, char in enumerate(texts[call.doc_id]) if char == " "][:-5]
            if free := [at for at in spaces if at not in occupied.get(call.doc_id, ()) and at != call.position]:
                yield "unrelated", call, _as_drawn(call, "", pick(free, "elsewhere")), response


def _as_drawn(call: GoldCall, input_: str, position: int) -> DrawnCall:
    return DrawnCall(call.doc_id, call.tool, position, 0.0, 0, "", "ok", input_, 1)
