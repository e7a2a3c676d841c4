"""Sample: where would the model write a call, and which calls would it write there? (§2, sampling API calls)

Of the positions with p(" [") > tau_s the k best are kept; at each of them m calls are drawn.

A draw is free, or its form is forced: it begins with `Name(`, and is what a free draw is that happens to begin so.

    | outcome of a draw | because                                                                     |
    |-------------------|-----------------------------------------------------------------------------|
    | ok                | it is a call of this tool (a response the model made up is ignored)         |
    | unterminated      | it begins as a call of this tool, and no `]` closes it within the limit     |
    | wrong_tool        | it is, or begins as, a call of another tool                                 |
    | unparsable        | it is not `name(input)`, or the square brackets of its input are unbalanced |

    | outcome of a document | because                                           |
    |-----------------------|---------------------------------------------------|
    | sampled               | at least one draw is ok                           |
    | no_call               | there are samples, but none is ok                   |
    | no_position           | no position is likely enough                      |

If the prefilter names spans, each is scanned as a text of its own, and the top k is taken over the whole document.
Never sampled are positions inside a word or number (see `boundaries`), those followed only by whitespace and, if the
config asks for new numbers, those not in front of a number that may result from those before it. Every draw has its own
seed, so neither the model's batches nor other documents change it.
"""

import gzip
import json
import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from toolformer_core.annotate.boundaries import before_new_numbers, inside_words
from toolformer_core.config import MAX_CALL_TOKENS, SampleConfig
from toolformer_core.errors import CallSyntaxError, CorpusError
from toolformer_core.lm.base import Draw, DrawRequest, LanguageModel, Scan
from toolformer_core.records import Document, DrawnCall, PrefilterResult, Prompt, numbers_of, storable
from toolformer_core.syntax import CLOSE, find_close, name_begun, parse

# A call is judged by this many tokens from its position on (§4.1); tokens that only continue a character do not count.
_WINDOW = 5


@dataclass(frozen=True, slots=True)
class SampledDocument:
    """The result of sampling one document for one tool; the samples are ordered by position, then by draw number."""

    doc_id: str
    outcome: str  # sampled | no_call | no_position
    calls: tuple[DrawnCall, ...] = ()
    positions: int = 0  # at which a call may stand; counted only where a scan may not see all of them
    unseen: int = 0  # of these, where p(" [") is not known and may exceed tau_s


class _Candidate(NamedTuple):
    log_p: float
    position: int
    piece: int  # index among the scanned texts
    window_end: int  # offset of the end of the tokens that a call here is judged by


@dataclass(slots=True)
class _DocumentState:
    """A document in progress: the results of scanning its pieces, and the samples made so far."""

    document: Document
    prefiltered: PrefilterResult
    pieces: dict[int, int]  # index among the scanned texts -> offset of that piece in the document
    seen: set[int] = field(default_factory=set)
    candidates: list[_Candidate] = field(default_factory=list)
    drawn: list[tuple[_Candidate, int, list[Draw]]] = field(default_factory=list)  # place, rank, samples
    possible: set[int] = field(default_factory=set)  # positions at which a call may stand
    unseen: set[int] = field(default_factory=set)  # of these, where p(" [") is not known and may exceed tau_s


def draw_seeds(seed: int, doc_id: str, tool: str, position: int, samples: int) -> list[int]:
    """Return the 64-bit seeds of the samples 0, 1, ... at one position; they do not depend on how many there are."""
    return numbers_of("draw", str(seed), doc_id, tool, str(position), count=samples)


def sample(
    lm: LanguageModel,
    prompt: Prompt,
    tool_name: str,
    documents: Iterable[tuple[Document, PrefilterResult]],
    config: SampleConfig,
    on_sampled: Callable[[int], None] | None = None,
) -> list[SampledDocument]:
    """Sample calls of one tool for a shard's documents that the prefilter kept; one result each, in their order.

    All documents are held in memory at once, because the model orders its batches itself. `on_sampled` is called after
    each scan with the number of documents finished so far.
    """
    # A scan expires when the next one starts, so calls are drawn while a document's scan is current. If a document's
    # spans fall into several scans, its calls are drawn in a second round. Draws are parsed after the last scan.
    texts: list[str] = []
    states: list[_DocumentState] = []
    owner: dict[int, _DocumentState] = {}
    for document, prefiltered in documents:
        state = _DocumentState(document, prefiltered, {})
        for start, end in prefiltered.spans or ((0, len(document.text)),):
            if document.text[start:end].strip():
                state.pieces[len(texts)] = start
                owner[len(texts)] = state
                texts.append(document.text[start:end])
        states.append(state)

    forbidden = [inside_words(text) for text in texts]
    if config.numbers != "any":
        forbidden = [one | ~before_new_numbers(text) for one, text in zip(forbidden, texts, strict=True)]
    second_round: list[_DocumentState] = []
    finished = 0
    for scan in lm.scan(prompt, texts) if texts else ():
        _add_candidates(scan, texts, owner, forbidden, config)
        in_scan = set(scan.texts)
        for index in in_scan:
            owner[index].seen.add(index)
        complete = {id(s): s for i in sorted(in_scan) if (s := owner[i]).seen == s.pieces.keys()}.values()
        ready = [s for s in complete if s.pieces.keys() <= in_scan]
        second_round += [s for s in complete if not s.pieces.keys() <= in_scan]
        _draw(scan, {i: i for i in in_scan}, ready, config, tool_name)
        finished += len(ready)
        if on_sampled and ready and finished < len(states):
            on_sampled(finished)

    rescan = sorted({place.piece for s in second_round for place in _top(s, config.top_k)})
    for scan in lm.scan(prompt, [texts[i] for i in rescan]) if rescan else ():
        _draw(scan, {rescan[j]: j for j in scan.texts}, second_round, config, tool_name)
    if on_sampled:
        on_sampled(len(states))
    return [_result(state, tool_name) for state in states]


def _add_candidates(
    scan: Scan,
    texts: Sequence[str],
    owner: dict[int, _DocumentState],
    forbidden: Sequence[NDArray[np.bool_]],  # per text, whether no call may stand at an offset
    config: SampleConfig,
) -> None:
    """Record the positions of every scanned text that may be tried, at most k per text."""
    floor = math.log(config.tau_s) if config.tau_s > 0 else -math.inf
    for at, (index, positions, log_probs) in enumerate(zip(scan.texts, scan.positions, scan.log_probs, strict=True)):
        state = owner[index]
        start = state.pieces[index]
        last = len(state.document.text.rstrip())
        allowed = positions + start < last
        allowed &= ~forbidden[index][positions]
        if scan.bounds is not None:
            state.possible.update((positions[allowed] + start).tolist())
            bound = scan.bounds[at]
            unseen = allowed & (log_probs < bound) & (bound.astype(np.float64) > floor)
            state.unseen.update((positions[unseen] + start).tolist())
        allowed &= log_probs.astype(np.float64) > floor
        chosen = np.flatnonzero(allowed)
        if len(chosen) > config.top_k:
            chosen = chosen[np.lexsort((positions[chosen], -log_probs[chosen]))[: config.top_k]]  # as in `_top`
        ends = np.append(positions, [len(texts[index])] * _WINDOW)[chosen + _WINDOW]
        rows = zip(log_probs[chosen].tolist(), positions[chosen].tolist(), ends.tolist(), strict=True)
        state.candidates += [_Candidate(log_p, start + at, index, start + end) for log_p, at, end in rows]


def _top(state: _DocumentState, k: int) -> list[_Candidate]:
    """Return the k best positions, the best first; if two are equally good, the smaller comes first."""
    return sorted(state.candidates, key=lambda place: (-place.log_p, place.position))[:k]


def _draw(
    scan: Scan, texts: dict[int, int], states: list[_DocumentState], config: SampleConfig, tool_name: str
) -> None:
    """Draw calls at the chosen positions that are in this scan; `texts` maps a piece to its index in the scan."""
    places = ((state, at, rank) for state in states for rank, at in enumerate(_top(state, config.top_k)))
    chosen = [place for place in places if place[1].piece in texts]
    requests = [
        DrawRequest(texts[at.piece], at.position - state.pieces[at.piece], seed)
        for state, at, _ in chosen
        for seed in draw_seeds(config.seed, state.document.doc_id, state.prefiltered.tool, at.position, config.samples)
    ]
    if not requests:
        return
    begin = f"{tool_name}(" if config.draw_form == "forced" else ""
    samples = scan.draw(
        requests, max_tokens=MAX_CALL_TOKENS, temperature=config.temperature, name=tool_name, begin=begin
    )
    for i, (state, at, rank) in enumerate(chosen):
        state.drawn.append((at, rank, samples[i * config.samples : (i + 1) * config.samples]))


def _calls(state: _DocumentState, tool_name: str) -> Iterator[DrawnCall]:
    for at, rank, samples in state.drawn:
        place = (state.document.doc_id, state.prefiltered.tool, at.position, at.log_p, rank)
        yield from merged(DrawnCall(*place, "", "", "", 0, at.window_end), samples, tool_name)


def merged(place: DrawnCall, samples: Sequence[Draw], tool_name: str) -> Iterator[DrawnCall]:
    """Yield the samples at one place, equal ones merged, in the order of first appearance."""
    # the log-probability of a form is that of its place; it may be rounded differently in another batch
    form = samples[0].log_p_begin
    for draw, count in Counter(one._replace(log_p_begin=form) for one in samples).items():
        outcome, input_ = _judged(draw, tool_name)
        yield replace(place, raw=draw.text, outcome=outcome, input=input_, count=count, log_p_form=form)


def _judged(draw: Draw, tool_name: str) -> tuple[str, str]:
    """Return the outcome of a draw (see the table), and the call's input if it is ok, else ""."""
    if not draw.ended:
        begun = name_begun(draw.text)
        return "unparsable" if begun is None else "unterminated" if begun in ("", tool_name) else "wrong_tool", ""
    try:
        call, _ = parse(draw.text)
    except CallSyntaxError:
        return "unparsable", ""
    if find_close(call.input + CLOSE) != len(call.input):
        return "unparsable", ""  # e(c, r) would end at another bracket
    return ("ok", call.input) if call.tool == tool_name else ("wrong_tool", "")


def _result(state: _DocumentState, tool_name: str) -> SampledDocument:
    # the sort is stable, so samples at the same position keep their order
    calls = tuple(sorted(_calls(state, tool_name), key=lambda c: c.position))
    found = "sampled" if any(call.outcome == "ok" for call in calls) else "no_call"
    outcome = found if calls else "no_position"
    return SampledDocument(state.document.doc_id, outcome, calls, len(state.possible), len(state.unseen))


Candidates = Mapping[tuple[str, str], tuple[tuple[int, str], ...]]  # (url, tool) -> (position, input) of each call


def read_candidates(path: Path) -> Candidates:
    """Read a file of candidate calls (JSON lines, plain or as .gz), which are scored in place of sampled ones.

        {"url": "gsm8k:0", "calls": [{"tool": "calculator", "input": "48 / 2", "position": 168}]}

    A position is an offset in characters; other keys are ignored. A CorpusError, whose message names the line, if it
    cannot be read, or a row is none.
    """
    found: dict[tuple[str, str], list[tuple[int, str]]] = {}
    number = 0
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):  # noqa: B007 - named in the error
                if line.strip():
                    row = json.loads(line)
                    for call in row["calls"]:
                        found.setdefault((row["url"], call["tool"]), []).append(_checked(call))
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, RecursionError) as exc:
        what = f"no {exc} in it" if isinstance(exc, KeyError) else str(exc)
        raise CorpusError(f"{path}, line {number}: {what}; a row has url and calls of tool, input, position") from exc
    return {key: tuple(dict.fromkeys(calls)) for key, calls in found.items()}


def _checked(call: Mapping[str, object]) -> tuple[int, str]:
    position, input_ = call["position"], call["input"]
    if not isinstance(position, int) or isinstance(position, bool) or position < 0:
        raise TypeError(f"the position {position!r} is no offset in characters")
    if not isinstance(input_, str) or storable(input_) != input_ or find_close(input_ + CLOSE) != len(input_):
        raise TypeError(f"the input {input_!r} cannot stand in a call")
    return position, input_


def propose(documents: Iterable[Document], tool: str, tool_name: str, candidates: Candidates) -> list[SampledDocument]:
    """Return the candidates of each document as if the model had sampled each of them once, with no probability (-inf).

    A CorpusError if a position is not in front of text of its document.
    """
    return [_proposed(one, tool, tool_name, candidates.get((one.url or "", tool), ())) for one in documents]


def _proposed(document: Document, tool: str, tool_name: str, calls: tuple[tuple[int, str], ...]) -> SampledDocument:
    end = len(document.text.rstrip())
    drawn = []
    for rank, position in enumerate(sorted({position for position, _ in calls})):
        if position >= end:
            raise CorpusError(f"a candidate of {document.url} stands at {position}, and its text ends at {end}")
        drawn += [
            DrawnCall(document.doc_id, tool, position, -math.inf, rank, f"{tool_name}({input_})", "ok", input_, 1)
            for at, input_ in calls
            if at == position
        ]
    return SampledDocument(document.doc_id, "sampled" if drawn else "no_position", tuple(drawn))
