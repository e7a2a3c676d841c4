"""Sample: where would the model write a call, and which calls would it write there? (§2, sampling API calls)

Positions with p(" [") > tau_s are kept, of those the k most likely of the document; at each, m calls are drawn.

    | outcome of a draw | because                                                                     |
    |-------------------|-----------------------------------------------------------------------------|
    | ok                | it is a call of this tool (a response the model made up is ignored)         |
    | unterminated      | no `]` closed it within the tokens allowed                                  |
    | wrong_tool        | it is a call of another tool                                                |
    | unparsable        | it is not `name(input)`, or the square brackets of its input do not pair up |

    | outcome of a document | because                                           |
    |-----------------------|---------------------------------------------------|
    | sampled               | at least one draw is ok                           |
    | no_call               | draws were made and none is ok                    |
    | no_position           | no position was likely enough                     |

A verdict's spans are scanned as texts of their own and their positions carried back to the document's offsets; the top
k is taken over the whole document. A position behind which only whitespace is left is never sampled: a call there could
help nothing. Nor is one inside a word or a number (see `boundaries`), unless the config says so. Every draw has its own
seed, from the config's seed, document, tool, position and number, so neither the model's batches nor the other
documents change it. This stage knows no responses, thresholds on gain, or tokens.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from toolformer_core.annotate.boundaries import inside_words
from toolformer_core.config import SampleConfig
from toolformer_core.errors import CallSyntaxError
from toolformer_core.lm.base import Draw, DrawRequest, LanguageModel, Scan
from toolformer_core.records import Document, DrawnCall, Prompt, Verdict, numbers_of
from toolformer_core.syntax import CLOSE, find_close, parse

__all__ = ["Sampled", "draw_seeds", "sample"]

# Tokens from a position on that a call there is judged by (§4.1); those that only continue a character do not count.
_WINDOW = 5


@dataclass(frozen=True, slots=True)
class Sampled:
    """What sampling gave for one document and tool: its outcome, and its draws by position, then order of drawing."""

    doc_id: str
    outcome: str  # sampled | no_call | no_position
    calls: tuple[DrawnCall, ...] = ()


class _Place(NamedTuple):
    """A position where a call is likely."""

    log_p: float
    position: int
    piece: int  # index among the texts scanned
    window_end: int  # offset behind the tokens that a call here is judged by


@dataclass(slots=True)
class _Work:
    """A document on its way: what its pieces' scans said, and the draws made so far."""

    document: Document
    verdict: Verdict
    pieces: dict[int, int]  # index among the texts scanned -> offset of that piece in the document
    seen: set[int] = field(default_factory=set)
    likely: list[_Place] = field(default_factory=list)
    drawn: list[tuple[_Place, int, list[Draw]]] = field(default_factory=list)  # (place, its rank, its draws)


def draw_seeds(seed: int, doc_id: str, tool: str, position: int, draws: int) -> list[int]:
    """Return the 64-bit seeds of the draws 0, 1, ... at one position; how many there are does not change them."""
    return numbers_of("draw", str(seed), doc_id, tool, str(position), count=draws)


def sample(
    lm: LanguageModel,
    prompt: Prompt,
    tool_name: str,
    documents: Iterable[tuple[Document, Verdict]],
    config: SampleConfig,
) -> list[Sampled]:
    """Sample calls of one tool for the documents of a shard.

    Args:
        lm: the model that annotates.
        prompt: the tool's annotation prompt.
        tool_name: the tool's name as it stands in a call, e.g. `Calculator`.
        documents: documents that the prefilter kept, with its verdicts. All are held at once, as the model orders its
            batches itself; hand over a shard, not a corpus.
        config: tau_s, k, m, temperature, length of a call in tokens, seed.

    Returns:
        One `Sampled` per document, in the order given.

    Note:
        While a scan lasts the model waits, so what was drawn is read after the last of them. A scan ends when the next
        begins. A document whose spans fall into several scans is therefore drawn from in a
        second round, over those of its spans that hold a chosen position.
    """
    texts: list[str] = []
    works: list[_Work] = []
    owner: dict[int, _Work] = {}
    for document, verdict in documents:
        work = _Work(document, verdict, {})
        for start, end in verdict.spans or ((0, len(document.text)),):
            if document.text[start:end].strip():
                work.pieces[len(texts)] = start
                owner[len(texts)] = work
                texts.append(document.text[start:end])
        works.append(work)

    waiting: list[_Work] = []
    for scan in lm.scan(prompt, texts) if texts else ():
        held = set(scan.texts)
        for index in held:
            owner[index].seen.add(index)
        _note_likely(scan, texts, owner, config)
        complete = {id(w): w for i in sorted(held) if (w := owner[i]).seen == w.pieces.keys()}
        ready = [w for w in complete.values() if w.pieces.keys() <= held]
        waiting += [w for w in complete.values() if not w.pieces.keys() <= held]
        _draw(scan, {i: i for i in held}, ready, config)

    again = sorted({place.piece for w in waiting for place in _top(w, config.top_k)})
    if again:
        for scan in lm.scan(prompt, [texts[i] for i in again]):
            _draw(scan, {again[j]: j for j in scan.texts}, waiting, config)
    return [_result(work, tool_name) for work in works]


def _note_likely(scan: Scan, texts: Sequence[str], owner: dict[int, _Work], config: SampleConfig) -> None:
    """Note the positions above tau_s of every text scanned, but no more of a text than can be among the top k."""
    floor = math.log(config.tau_s) if config.tau_s > 0 else -math.inf
    for index, positions, log_probs in zip(scan.texts, scan.positions, scan.log_probs, strict=True):
        work = owner[index]
        start = work.pieces[index]
        last = len(work.document.text.rstrip())
        allowed = (log_probs.astype(np.float64) > floor) & (positions + start < last)
        if not config.inside_words:
            allowed &= ~inside_words(texts[index])[positions]
        able = np.flatnonzero(allowed)
        if len(able) > config.top_k:
            able = able[np.lexsort((positions[able], -log_probs[able]))[: config.top_k]]  # as in `_top`
        ends = np.append(positions, [len(texts[index])] * _WINDOW)[able + _WINDOW]
        of_text = zip(log_probs[able].tolist(), positions[able].tolist(), ends.tolist(), strict=True)
        work.likely += [_Place(log_p, start + offset, index, start + end) for log_p, offset, end in of_text]


def _top(work: _Work, k: int) -> list[_Place]:
    """The k most likely positions, most likely first; of positions equally likely, the smaller comes first."""
    return sorted(work.likely, key=lambda place: (-place.log_p, place.position))[:k]


def _draw(scan: Scan, texts: dict[int, int], works: list[_Work], config: SampleConfig) -> None:
    """Draw the calls of those chosen positions that this scan holds; `texts` maps a piece to its index in the scan."""
    chosen: list[tuple[_Work, _Place, int]] = []
    requests: list[DrawRequest] = []
    for work in works:
        for rank, at in enumerate(_top(work, config.top_k)):
            if at.piece not in texts:
                continue
            chosen.append((work, at, rank))
            for seed in draw_seeds(config.seed, work.document.doc_id, work.verdict.tool, at.position, config.draws):
                requests.append(DrawRequest(texts[at.piece], at.position - work.pieces[at.piece], seed))
    if not requests:
        return
    draws = scan.draw(requests, max_tokens=config.max_call_tokens, temperature=config.temperature)
    for i, (work, at, rank) in enumerate(chosen):
        work.drawn.append((at, rank, draws[i * config.draws : (i + 1) * config.draws]))


def _calls(work: _Work, tool_name: str) -> Iterator[DrawnCall]:
    """Yield what was drawn at each position, equal draws as one, in the order of first appearance."""
    for at, rank, draws in work.drawn:
        for draw, count in Counter(draws).items():
            outcome, input_ = _judge(draw, tool_name)
            yield DrawnCall(
                doc_id=work.document.doc_id,
                tool=work.verdict.tool,
                position=at.position,
                log_p=at.log_p,
                rank=rank,
                raw=draw.text,
                outcome=outcome,
                input=input_,
                count=count,
                window_end=at.window_end,
            )


def _judge(draw: Draw, tool_name: str) -> tuple[str, str]:
    if not draw.ended:
        return "unterminated", ""
    try:
        call, _ = parse(draw.text)
    except CallSyntaxError:
        return "unparsable", ""
    if find_close(call.input + CLOSE) != len(call.input):
        return "unparsable", ""  # e(c, r) could not be found again: it would end elsewhere
    return ("ok", call.input) if call.tool == tool_name else ("wrong_tool", "")


def _result(work: _Work, tool_name: str) -> Sampled:
    calls = tuple(
        sorted(_calls(work, tool_name), key=lambda c: c.position)
    )  # stable: draws of a position keep their order
    if not calls:
        return Sampled(work.document.doc_id, "no_position")
    outcome = "sampled" if any(call.outcome == "ok" for call in calls) else "no_call"
    return Sampled(work.document.doc_id, outcome, calls)
