"""From what was observed to figures: shares, ranks, gains, precision and recall. Plain numbers, ready for JSON.

What *right*, *as good* and *elsewhere* mean, `judge` says. A share of nothing is None, and so is a mean of nothing. No
figure is judged here.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from toolformer_core.annotate.assemble import survivors
from toolformer_core.diagnose.judge import Judge
from toolformer_core.diagnose.observe import KINDS, Observed, Place
from toolformer_core.diagnose.structure import Structure

__all__ = [
    "THRESHOLDS",
    "Figures",
    "Filter",
    "Gains",
    "Imitation",
    "Kept",
    "Position",
    "ToolUse",
    "figures_of",
    "named",
]

THRESHOLDS = (0.5, 1.0, 2.0)  # tau_f of the paper's Table 2, nats
_KEEP = 0.6  # share of gold calls that a suggested tau_f keeps


@dataclass(frozen=True, slots=True)
class Position:
    """Where the model would call."""

    gold: int  # gold positions
    positions: float | None  # that may be chosen, per document, mean
    tau_s: float
    top_k: int
    above_tau_s: float | None
    in_top_k: float | None
    reached: float | None  # both: calls are drawn there
    rank: float | None  # median, 1 is the likeliest position of its document
    rank_for_half: int | None  # the k that half of the gold positions are among
    p: float | None  # median p(" [") there
    tau_s_for_half: float | None  # a tau_s that half of them stand above


@dataclass(frozen=True, slots=True)
class Imitation:
    """What the model writes there. Shares of draws, at gold positions unless said otherwise."""

    draws: int  # at all positions
    ok: float | None  # at all positions
    at_gold: int  # draws
    well_formed: float | None
    unterminated: float | None
    unparsable: float | None
    wrong_tool: float | None
    exact: float | None  # a gold input to the letter
    right: float | None
    as_good: float | None
    places_right: float | None  # share of reached gold positions with a right or as good call among their draws
    stuck_after: str = ""  # the beginning of the tool's name that most draws have, and then another ending


@dataclass(frozen=True, slots=True)
class ToolUse:
    """What the tool answers. Shares of distinct inputs."""

    gold_answered: float | None
    drawn_answered: float | None
    failures: Mapping[str, int]  # by reason, of drawn and gold inputs


@dataclass(frozen=True, slots=True)
class Gains:
    """L- - L+ of one kind of trial, nats."""

    calls: int
    mean: float | None
    deviation: float | None
    median: float | None
    lowers: float | None  # share with a loss lowered by 0.1 and more
    at: Mapping[str, float | None]  # threshold -> share with L- - L+ of so much
    plain: float | None  # mean L(eps)
    call: float | None  # mean L(e(c, eps))
    response: float | None  # mean L+
    plain_decides: float | None  # share in which L- is that of no call


@dataclass(frozen=True, slots=True)
class Filter:
    """Whether the filter tells right from wrong, whatever the model would have drawn."""

    kinds: Mapping[str, Gains]
    over_wrong: float | None  # share of gold calls whose gain is above that of the wrong response at the same place
    tau_f: float
    reached: float | None  # share of gold calls with a gain of tau_f
    best_tau_f: float | None  # with the best F1 of gold calls against the others
    best_f1: float | None
    tau_f_keeping: float | None  # that 60 % of gold calls reach
    unscored: int  # trials too long for the context


@dataclass(frozen=True, slots=True)
class Kept:
    """What the pipeline keeps at one threshold."""

    calls: int
    right: int
    as_good: int
    elsewhere: int
    precision: float | None  # right
    precision_as_good: float | None
    precision_anywhere: float | None  # as good, there or elsewhere
    recall: float | None  # gold calls kept, of all


@dataclass(frozen=True, slots=True)
class Figures:
    """All figures of one tool."""

    tool: str
    documents: int
    gold: int
    dropped: int  # documents with gold calls, by the prefilter
    structure: Structure | None
    position: Position
    imitation: Imitation
    use: ToolUse
    filter: Filter
    kept: Mapping[str, Kept]  # threshold -> what is kept; also at the tool's own
    tokenizer_fault: str = ""
    prompt_fault: str = ""
    tool_fault: str = ""


def figures_of(
    seen: Observed,
    tau_f: float,
    structure: Structure | None = None,
    *,
    held_out: bool | None = None,
    keep_repeats: bool = False,
) -> Figures:
    """Sum up one tool.

    Args:
        seen: what was observed.
        tau_f: the tool's filtering threshold, nats.
        structure: tokenizer, prompt and loss, where they were looked at.
        held_out: only gold calls of held-out families (True) or of the others (False), with the documents that hold
            none but those, and the documents without any; None: all.
        keep_repeats: as for `survivors`.
    """
    if held_out is not None:
        seen = _only(seen, held_out)
    return Figures(
        tool=seen.tool,
        documents=len(seen.documents),
        gold=len(seen.gold),
        dropped=seen.dropped,
        structure=structure,
        position=_position(seen),
        imitation=_imitation(seen),
        use=_use(seen),
        filter=_filter(seen, tau_f),
        kept={named(tau): _kept(seen, tau, keep_repeats) for tau in sorted({*THRESHOLDS, tau_f})},
        tokenizer_fault=seen.tokenizer_fault,
        prompt_fault=seen.prompt_fault,
        tool_fault=seen.tool_fault,
    )


def named(tau: float) -> str:
    """Return a threshold as `Figures.kept` calls it: 0.5, 1.0, 0.75."""
    return f"{tau:g}" if tau != int(tau) else f"{tau:.1f}"


def _only(seen: Observed, held_out: bool) -> Observed:
    others = {call.doc_id for call in seen.gold if call.held_out != held_out}
    return replace(
        seen,
        documents=tuple(d for d in seen.documents if d not in others),
        gold=tuple(c for c in seen.gold if c.doc_id not in others),
        places=tuple(p for p in seen.places if p.gold.doc_id not in others),
        draws=tuple(c for c in seen.draws if c.doc_id not in others),
        trials=tuple(t for t in seen.trials if t.gold.doc_id not in others),
        scored=tuple(c for c in seen.scored if c.doc_id not in others),
    )


# --- numbers ----------------------------------------------------------------------------------------------------------


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _median(values: Sequence[float]) -> float | None:
    return float(np.median(values)) if values else None


def _lower_half(values: Iterable[float]) -> float | None:
    """Return the value that half of the values, rounded up, do not exceed."""
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2] if ordered else None


# --- the steps --------------------------------------------------------------------------------------------------------


def _position(seen: Observed) -> Position:
    config = seen.config
    places = seen.places
    above = [math.exp(place.log_p) > config.tau_s for place in places]
    among = [_among(place, config.top_k) for place in places]
    ranks = [place.rank + 1 for place in places]
    rank = _lower_half(ranks)
    likely = sorted((math.exp(place.log_p) for place in places), reverse=True)
    half = _lower_half(range(len(likely)))
    return Position(
        gold=len(places),
        positions=_mean([place.positions for place in places]),
        tau_s=config.tau_s,
        top_k=config.top_k,
        above_tau_s=_share(sum(above), len(places)),
        in_top_k=_share(sum(among), len(places)),
        reached=_share(sum(map(all, zip(above, among, strict=True))), len(places)),
        rank=_median(ranks),
        rank_for_half=None if rank is None else int(rank),
        p=_median(likely),
        tau_s_for_half=None if half is None else likely[int(half)],
    )


def _among(place: Place, k: int) -> bool:
    return place.log_p > -math.inf and place.rank < k


def _imitation(seen: Observed) -> Imitation:
    judge = Judge(seen)
    outcomes: Counter[str] = Counter()
    found: Counter[str] = Counter()
    places: dict[tuple[str, int], bool] = {}
    begun: list[int] = []  # letters of the tool's name with which a draw begins that is no call of it
    for call in seen.draws:
        outcomes[call.outcome] += call.count
        if not judge.at_gold(call.doc_id, call.position):
            continue
        if call.outcome != "ok":
            same = itertools.takewhile(lambda two: two[0] == two[1], zip(seen.name, call.raw, strict=False))
            begun += [len(list(same))] * call.count
        asked = (call.doc_id, call.position, call.input)
        ok = call.outcome == "ok"
        good = ok and judge.as_good(*asked)
        found[call.outcome] += call.count
        found["exact"] += call.count * (ok and judge.exact(*asked))
        found["right"] += call.count * (ok and judge.right(*asked))
        found["as_good"] += call.count * good
        places[call.doc_id, call.position] = places.get((call.doc_id, call.position), False) or good
    at_gold = sum(found[o] for o in ("ok", "unterminated", "unparsable", "wrong_tool"))
    return Imitation(
        draws=outcomes.total(),
        ok=_share(outcomes["ok"], outcomes.total()),
        at_gold=at_gold,
        well_formed=_share(found["ok"], at_gold),
        unterminated=_share(found["unterminated"], at_gold),
        unparsable=_share(found["unparsable"], at_gold),
        wrong_tool=_share(found["wrong_tool"], at_gold),
        exact=_share(found["exact"], at_gold),
        right=_share(found["right"], at_gold),
        as_good=_share(found["as_good"], at_gold),
        places_right=_share(sum(places.values()), len(places)),
        stuck_after=_stuck_after(seen.name, begun, at_gold),
    )


def _stuck_after(name: str, begun: Sequence[int], draws: int) -> str:
    """Return the part of a name behind which most draws leave it; "" if they do not begin it, or write it whole."""
    left = [letters for letters in begun if 0 < letters < len(name)]
    return name[: int(np.median(left))] if 2 * len(left) > draws else ""


def _use(seen: Observed) -> ToolUse:
    def asked(calls: Iterable[tuple[str, str]]) -> list[bool]:
        keys = dict.fromkeys((input_, seen.contexts.get(doc_id, "")) for doc_id, input_ in calls)
        return [not seen.executions[key].failure for key in keys if key in seen.executions]

    gold = asked((call.doc_id, call.input) for call in seen.gold)
    drawn = asked((call.doc_id, call.input) for call in seen.draws if call.outcome == "ok")
    failures = Counter(one.failure for one in seen.executions.values() if one.failure)
    return ToolUse(_share(sum(gold), len(gold)), _share(sum(drawn), len(drawn)), dict(sorted(failures.items())))


def _filter(seen: Observed, tau_f: float) -> Filter:
    by_kind: dict[str, list[float]] = {kind: [] for kind in KINDS}
    at_place: dict[tuple[str, int], dict[str, float]] = {}
    for trial in seen.trials:
        gain = trial.scored.gain
        if not math.isnan(gain):
            by_kind[trial.kind].append(gain)
            at_place.setdefault((trial.gold.doc_id, trial.gold.position), {})[trial.kind] = gain
    pairs = [gains for gains in at_place.values() if {"gold", "wrong"} <= gains.keys()]
    gold, others = by_kind["gold"], [*by_kind["wrong"], *by_kind["unrelated"]]
    best = max(((_f1(gold, others, tau), tau) for tau in gold), default=None)
    ordered = sorted(gold, reverse=True)
    return Filter(
        kinds={kind: _gains(seen, kind) for kind in KINDS},
        over_wrong=_share(sum(p["gold"] > p["wrong"] for p in pairs), len(pairs)),
        tau_f=tau_f,
        reached=_share(sum(gain >= tau_f for gain in gold), len(gold)),
        best_tau_f=best[1] if best else None,
        best_f1=best[0] if best else None,
        tau_f_keeping=ordered[math.ceil(_KEEP * len(ordered)) - 1] if ordered else None,
        unscored=sum(math.isnan(trial.scored.gain) for trial in seen.trials),
    )


def _f1(gold: Sequence[float], others: Sequence[float], tau: float) -> float:
    kept = sum(gain >= tau for gain in gold)
    return 2 * kept / (len(gold) + kept + sum(gain >= tau for gain in others))


def _gains(seen: Observed, kind: str) -> Gains:
    calls = [t.scored for t in seen.trials if t.kind == kind and not math.isnan(t.scored.gain)]
    gains = [call.gain for call in calls]
    return Gains(
        calls=len(calls),
        mean=_mean(gains),
        deviation=float(np.std(gains)) if gains else None,
        median=_median(gains),
        lowers=_share(sum(gain >= 0.1 for gain in gains), len(gains)),
        at={named(tau): _share(sum(gain >= tau for gain in gains), len(gains)) for tau in THRESHOLDS},
        plain=_mean([call.loss_plain for call in calls]),
        call=_mean([call.loss_call for call in calls]),
        response=_mean([call.loss_response for call in calls]),
        plain_decides=_share(sum(call.loss_plain <= call.loss_call for call in calls), len(calls)),
    )


def _kept(seen: Observed, tau_f: float, keep_repeats: bool) -> Kept:
    judge = Judge(seen)
    kept, _ = survivors(seen.scored, {seen.tool: tau_f}, keep_repeats=keep_repeats)
    right = sum(judge.right(c.doc_id, c.position, c.input) for c in kept)
    as_good = [(c.doc_id, c.position) for c in kept if judge.as_good(c.doc_id, c.position, c.input)]
    anywhere = sum(judge.as_good_anywhere(c.doc_id, c.input) for c in kept)
    return Kept(
        calls=len(kept),
        right=right,
        as_good=len(as_good),
        elsewhere=anywhere - len(as_good),
        precision=_share(right, len(kept)),
        precision_as_good=_share(len(as_good), len(kept)),
        precision_anywhere=_share(anywhere, len(kept)),
        recall=_share(len(set(as_good)), len(judge.gold)),
    )
