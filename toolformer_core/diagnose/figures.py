"""Computes the figures of a diagnosis from observations: shares, ranks, gains, precision and recall, as plain numbers.

A call is right at a gold position with a gold input, ignoring spaces and case. It is as good with the same response as
the gold call there, or with one that holds (as whole words) the value that follows in the text: "born in Velden" where
"Velden" follows. A share or mean of nothing is None.
"""

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median_high, median_low

import numpy as np

from toolformer_core.annotate.call_filter import CallFilter, reasons_of
from toolformer_core.diagnose.gold import GoldCall, normalised
from toolformer_core.diagnose.observe import KINDS, Observed
from toolformer_core.diagnose.structure import Structure
from toolformer_core.records import ScoredCall

_FAULTS = ("unterminated", "unparsable", "wrong_tool")  # outcomes of samples that are no calls of the tool
_KEEP = 0.6  # share of gold calls that a suggested tau_f keeps


@dataclass(frozen=True, slots=True)
class Position:
    gold: int  # gold positions
    positions: float | None  # mean number of positions per document that may be chosen
    tau_s: float
    top_k: int
    above_tau_s: float | None
    in_top_k: float | None
    reached: float | None  # share with both, where calls are drawn
    rank: float | None  # median; 1 is the most likely position of its document
    rank_for_half: int | None  # the k that includes half of the gold positions
    p: float | None  # median p(" [") there
    tau_s_for_half: float | None  # a tau_s that half of them exceed


@dataclass(frozen=True, slots=True)
class Imitation:
    """What the model writes at gold positions. Shares are of samples there, unless noted."""

    samples: int  # at all positions
    ok: float | None  # at all positions
    at_gold: int  # samples
    well_formed: float | None
    unterminated: float | None
    unparsable: float | None
    wrong_tool: float | None
    right: float | None
    as_good: float | None
    places_right: float | None  # share of reached gold positions with a right or as good call among their samples
    stuck_after: str = ""  # the start of the tool's name after which most samples continue with something else


@dataclass(frozen=True, slots=True)
class ToolUse:
    """How often the tool answers: shares of distinct inputs."""

    gold_answered: float | None
    drawn_answered: float | None
    failures: Mapping[str, int]  # by reason, of drawn and gold inputs


@dataclass(frozen=True, slots=True)
class Gains:
    """L- - L+ of one kind of trial, in nats."""

    gains: tuple[float, ...]  # without trials that are too long for the context
    mean: float | None
    lowers: float | None  # share whose loss is lowered by at least 0.1
    plain_decides: float | None  # share in which L- is the loss without a call


@dataclass(frozen=True, slots=True)
class Filter:
    """Whether the filter separates right from wrong calls, whatever the model would have drawn."""

    kinds: Mapping[str, Gains]
    over_wrong: float | None  # share of gold calls that gain more than with the wrong response at the same place
    tau_f: float
    reached: float | None  # share of gold calls with a gain of at least tau_f
    best_tau_f: float | None  # the threshold with the best F1 of gold calls against the others
    best_f1: float | None
    tau_f_keeping: float | None  # the threshold that 60 % of gold calls reach


@dataclass(frozen=True, slots=True)
class Kept:
    calls: int
    precision: float | None  # share of calls that are as good
    precision_anywhere: float | None  # share of calls that are as good, at their position or elsewhere
    recall: float | None  # share of gold calls that are kept


@dataclass(frozen=True, slots=True)
class Figures:
    tool: str
    documents: int
    gold: int
    dropped: int  # documents with gold calls that the prefilter dropped
    structure: Structure
    position: Position
    imitation: Imitation
    use: ToolUse
    filter: Filter
    kept: Kept
    faults: Mapping[str, str]  # step -> why it could not be done at all


def figures_of(observed: Observed, tau_f: float, structure: Structure, *, keep_repeats: bool = False) -> Figures:
    """Compute the figures of one tool; `tau_f` is its filtering threshold, in nats."""
    judge = _CallJudge(observed)
    return Figures(
        tool=observed.tool,
        documents=len(observed.contexts),
        gold=len(observed.gold),
        dropped=observed.dropped,
        structure=structure,
        position=_position(observed),
        imitation=_imitation(observed, judge),
        use=_use(observed),
        filter=_filter(observed, tau_f),
        kept=_kept(observed, judge, tau_f, keep_repeats),
        faults=observed.faults,
    )


class _CallJudge:
    def __init__(self, observed: Observed) -> None:
        self._observed = observed
        self.gold: dict[tuple[str, int], list[GoldCall]] = {}
        for call in observed.gold:
            self.gold.setdefault((call.doc_id, call.position), []).append(call)

    def right(self, doc_id: str, position: int, input_: str) -> bool:
        tool = self._observed.tool
        gold = self.gold.get((doc_id, position), ())
        return any(normalised(tool, call.input) == normalised(tool, input_) for call in gold)

    def as_good(self, doc_id: str, position: int, input_: str) -> bool:
        response = self._observed.response(doc_id, input_)
        gold = self.gold.get((doc_id, position), ())
        equivalent = any(
            response == self._observed.response(doc_id, call.input) or _holds(response, call.value) for call in gold
        )
        return self.right(doc_id, position, input_) or bool(response and equivalent)


def _holds(response: str, value: str) -> bool:
    """Return whether a response holds a value as whole words; 0.5 and 5.5 do not hold 5."""
    whole = rf"(?<![\w.,]){re.escape(value)}(?!\w|[.,]\d)"
    return bool(value and re.search(whole, response))


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _median(values: Sequence[float]) -> float | None:
    return float(np.median(values)) if values else None


def _position(observed: Observed) -> Position:
    config, places = observed.config, observed.gold_positions
    above = [math.exp(place.log_p) > config.tau_s for place in places]
    in_top_k = [place.log_p > -math.inf and place.rank < config.top_k for place in places]
    ranks = [place.rank + 1 for place in places]
    probabilities = [math.exp(place.log_p) for place in places]
    return Position(
        gold=len(places),
        positions=_mean([place.positions for place in places]),
        tau_s=config.tau_s,
        top_k=config.top_k,
        above_tau_s=_share(sum(above), len(places)),
        in_top_k=_share(sum(in_top_k), len(places)),
        reached=_share(sum(map(all, zip(above, in_top_k, strict=True))), len(places)),
        rank=_median(ranks),
        rank_for_half=median_low(ranks) if ranks else None,
        p=_median(probabilities),
        tau_s_for_half=median_high(probabilities) if probabilities else None,
    )


def _imitation(observed: Observed, judge: _CallJudge) -> Imitation:
    samples = [call for call in observed.samples for _ in range(call.count)]
    at_gold = [call for call in samples if (call.doc_id, call.position) in judge.gold]
    outcomes = Counter(call.outcome for call in at_gold)
    calls = [(call.doc_id, call.position, call.input) for call in at_gold if call.outcome == "ok"]
    good = [(doc_id, position) for doc_id, position, input_ in calls if judge.as_good(doc_id, position, input_)]
    missed, name = [call.raw for call in at_gold if call.outcome != "ok"], observed.name
    begun = [max(n for n in range(len(name) + 1) if raw.startswith(name[:n])) for raw in missed]
    partial = [letters for letters in begun if 0 < letters < len(name)]
    return Imitation(
        samples=len(samples),
        ok=_share(sum(call.outcome == "ok" for call in samples), len(samples)),
        at_gold=len(at_gold),
        well_formed=_share(outcomes["ok"], len(at_gold)),
        **{fault: _share(outcomes[fault], len(at_gold)) for fault in _FAULTS},
        right=_share(sum(itertools.starmap(judge.right, calls)), len(at_gold)),
        as_good=_share(len(good), len(at_gold)),
        places_right=_share(len(set(good)), len({(call.doc_id, call.position) for call in at_gold})),
        stuck_after=name[: int(np.median(partial))] if 2 * len(partial) > len(at_gold) else "",
    )


def _use(observed: Observed) -> ToolUse:
    def answered(calls: Iterable[tuple[str, str]]) -> list[bool]:
        keys = dict.fromkeys((input_, observed.contexts.get(doc_id, "")) for doc_id, input_ in calls)
        return [not observed.executions[key].failure for key in keys if key in observed.executions]

    gold = answered((call.doc_id, call.input) for call in observed.gold)
    drawn = answered((call.doc_id, call.input) for call in observed.samples if call.outcome == "ok")
    failures = Counter(e.failure for e in observed.executions.values() if e.failure)
    return ToolUse(_share(sum(gold), len(gold)), _share(sum(drawn), len(drawn)), dict(sorted(failures.items())))


def _filter(observed: Observed, tau_f: float) -> Filter:
    scored = [trial for trial in observed.trials if not math.isnan(trial.scored.gain)]
    kinds = {kind: _gains([trial.scored for trial in scored if trial.kind == kind]) for kind in KINDS}
    at_place: dict[tuple[str, int], dict[str, float]] = {}
    for trial in scored:
        at_place.setdefault((trial.gold.doc_id, trial.gold.position), {})[trial.kind] = trial.scored.gain
    pairs = [gains for gains in at_place.values() if {"gold", "wrong"} <= gains.keys()]
    gold, others = kinds["gold"].gains, [*kinds["wrong"].gains, *kinds["unrelated"].gains]
    best_f1, best_tau_f = max(((_f1(gold, others, tau), tau) for tau in gold), default=(None, None))
    ordered = sorted(gold, reverse=True)
    return Filter(
        kinds=kinds,
        over_wrong=_share(sum(p["gold"] > p["wrong"] for p in pairs), len(pairs)),
        tau_f=tau_f,
        reached=_share(sum(gain >= tau_f for gain in gold), len(gold)),
        best_tau_f=best_tau_f,
        best_f1=best_f1,
        tau_f_keeping=ordered[math.ceil(_KEEP * len(ordered)) - 1] if ordered else None,
    )


def _f1(gold: Sequence[float], others: Sequence[float], tau: float) -> float:
    kept = sum(gain >= tau for gain in gold)
    return 2 * kept / (len(gold) + kept + sum(gain >= tau for gain in others))


def _gains(calls: Sequence[ScoredCall]) -> Gains:
    gains = tuple(call.gain for call in calls)
    plain = sum(call.loss_call is None or call.loss_plain <= call.loss_call for call in calls)
    return Gains(gains, _mean(gains), _share(sum(gain >= 0.1 for gain in gains), len(gains)), _share(plain, len(calls)))


def _kept(observed: Observed, judge: _CallJudge, tau_f: float, keep_repeats: bool) -> Kept:
    call_filter = CallFilter({observed.tool: tau_f}, keep_repeats=frozenset([observed.tool] if keep_repeats else ()))
    reasons = reasons_of(observed.scored, call_filter)
    kept = [call for call, reason in zip(observed.scored, reasons, strict=True) if not reason]
    as_good = [(c.doc_id, c.position) for c in kept if judge.as_good(c.doc_id, c.position, c.input)]
    anywhere = sum(any(judge.as_good(*place, c.input) for place in judge.gold if place[0] == c.doc_id) for c in kept)
    return Kept(
        calls=len(kept),
        precision=_share(len(as_good), len(kept)),
        precision_anywhere=_share(anywhere, len(kept)),
        recall=_share(len(set(as_good)), len(judge.gold)),
    )
