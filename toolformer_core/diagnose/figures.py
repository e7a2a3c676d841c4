"""Computes the figures of a diagnosis from observations: shares, ranks, gains, precision and recall, as plain numbers.

`judge` defines *right*, *as good* and *elsewhere*. A share or mean of nothing is None. No figure is judged here.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from toolformer_core.annotate.call_filter import CallFilter, reasons_of
from toolformer_core.diagnose.judge import CallJudge
from toolformer_core.diagnose.observe import KINDS, GoldPosition, Observed
from toolformer_core.diagnose.structure import Structure

THRESHOLDS = (0.5, 1.0, 2.0)  # tau_f of the paper's Table 2, nats
_KEEP = 0.6  # share of gold calls that a suggested tau_f keeps


@dataclass(frozen=True, slots=True)
class Position:
    """Where the model would call."""

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
    """What the model writes at gold positions. Shares are of draws there, unless noted."""

    draws: int  # at all positions
    ok: float | None  # at all positions
    at_gold: int  # draws
    well_formed: float | None
    unterminated: float | None
    unparsable: float | None
    wrong_tool: float | None
    exact: float | None  # exactly a gold input
    right: float | None
    as_good: float | None
    places_right: float | None  # share of reached gold positions with a right or as good call among their draws
    stuck_after: str = ""  # the start of the tool's name after which most draws continue with something else


@dataclass(frozen=True, slots=True)
class ToolUse:
    """How often the tool answers. Shares of distinct inputs."""

    gold_answered: float | None
    drawn_answered: float | None
    failures: Mapping[str, int]  # by reason, of drawn and gold inputs


@dataclass(frozen=True, slots=True)
class Gains:
    """L- - L+ of one kind of trial, in nats."""

    calls: int
    mean: float | None
    deviation: float | None
    median: float | None
    lowers: float | None  # share whose loss is lowered by at least 0.1
    at: Mapping[str, float | None]  # threshold -> share with L- - L+ of at least that
    plain: float | None  # mean L(eps)
    call: float | None  # mean L(e(c, eps))
    response: float | None  # mean L+
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
    unscored: int  # trials too long for the context


@dataclass(frozen=True, slots=True)
class Kept:
    """What the pipeline keeps at one threshold."""

    calls: int
    right: int
    as_good: int
    elsewhere: int
    precision: float | None  # share of right calls
    precision_as_good: float | None
    precision_anywhere: float | None  # share of calls that are as good, at their position or elsewhere
    recall: float | None  # share of gold calls that are kept


@dataclass(frozen=True, slots=True)
class Figures:
    """All figures of one tool."""

    tool: str
    documents: int
    gold: int
    dropped: int  # documents with gold calls that the prefilter dropped
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
    observed: Observed,
    tau_f: float,
    structure: Structure | None = None,
    *,
    held_out: bool | None = None,
    keep_repeats: bool = False,
) -> Figures:
    """Compute the figures of one tool.

    Args:
        observed: the observations.
        tau_f: the tool's filtering threshold, in nats.
        structure: tokenizer, prompt and loss, if measured.
        held_out: use only documents whose gold calls are all of held-out families (True) or all of other families
            (False), and documents without gold calls; None: all documents.
        keep_repeats: whether equal calls nearby are all kept, see `CallFilter`.
    """
    if held_out is not None:
        observed = _only(observed, held_out)
    return Figures(
        tool=observed.tool,
        documents=len(observed.documents),
        gold=len(observed.gold),
        dropped=observed.dropped,
        structure=structure,
        position=_position(observed),
        imitation=_imitation(observed),
        use=_use(observed),
        filter=_filter(observed, tau_f),
        kept={threshold_name(tau): _kept(observed, tau, keep_repeats) for tau in sorted({*THRESHOLDS, tau_f})},
        tokenizer_fault=observed.tokenizer_fault,
        prompt_fault=observed.prompt_fault,
        tool_fault=observed.tool_fault,
    )


def threshold_name(tau: float) -> str:
    """Return the key of a threshold in `Figures.kept`: 0.5, 1.0, 0.75."""
    return f"{tau:g}" if tau != int(tau) else f"{tau:.1f}"


def _only(observed: Observed, held_out: bool) -> Observed:
    others = {call.doc_id for call in observed.gold if call.held_out != held_out}
    return replace(
        observed,
        documents=tuple(d for d in observed.documents if d not in others),
        gold=tuple(c for c in observed.gold if c.doc_id not in others),
        gold_positions=tuple(p for p in observed.gold_positions if p.gold.doc_id not in others),
        draws=tuple(c for c in observed.draws if c.doc_id not in others),
        trials=tuple(t for t in observed.trials if t.gold.doc_id not in others),
        scored=tuple(c for c in observed.scored if c.doc_id not in others),
    )


# --- numbers ----------------------------------------------------------------------------------------------------------


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _median(values: Sequence[float]) -> float | None:
    return float(np.median(values)) if values else None


def _lower_median(values: Iterable[float]) -> float | None:
    """Return the lower median: half of the values, rounded up, do not exceed it."""
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2] if ordered else None


# --- the steps --------------------------------------------------------------------------------------------------------


def _position(observed: Observed) -> Position:
    config = observed.config
    places = observed.gold_positions
    above = [math.exp(place.log_p) > config.tau_s for place in places]
    in_top_k = [_in_top_k(place, config.top_k) for place in places]
    ranks = [place.rank + 1 for place in places]
    rank = _lower_median(ranks)
    probabilities = sorted((math.exp(place.log_p) for place in places), reverse=True)
    half = _lower_median(range(len(probabilities)))
    return Position(
        gold=len(places),
        positions=_mean([place.positions for place in places]),
        tau_s=config.tau_s,
        top_k=config.top_k,
        above_tau_s=_share(sum(above), len(places)),
        in_top_k=_share(sum(in_top_k), len(places)),
        reached=_share(sum(map(all, zip(above, in_top_k, strict=True))), len(places)),
        rank=_median(ranks),
        rank_for_half=None if rank is None else int(rank),
        p=_median(probabilities),
        tau_s_for_half=None if half is None else probabilities[int(half)],
    )


def _in_top_k(place: GoldPosition, k: int) -> bool:
    return place.log_p > -math.inf and place.rank < k


def _imitation(observed: Observed) -> Imitation:
    judge = CallJudge(observed)
    outcomes: Counter[str] = Counter()
    at_gold: Counter[str] = Counter()  # draws at gold positions, by outcome and by quality
    places: dict[tuple[str, int], bool] = {}
    begun: list[int] = []  # of each draw that is not a call: how many letters of the tool's name it starts with
    for call in observed.draws:
        outcomes[call.outcome] += call.count
        if not judge.at_gold(call.doc_id, call.position):
            continue
        if call.outcome != "ok":
            same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(observed.name, call.raw, strict=False))
            begun += [len(list(same))] * call.count
        key = (call.doc_id, call.position, call.input)
        ok = call.outcome == "ok"
        good = ok and judge.as_good(*key)
        at_gold[call.outcome] += call.count
        at_gold["exact"] += call.count * (ok and judge.exact(*key))
        at_gold["right"] += call.count * (ok and judge.right(*key))
        at_gold["as_good"] += call.count * good
        places[call.doc_id, call.position] = places.get((call.doc_id, call.position), False) or good
    draws = sum(at_gold[o] for o in ("ok", "unterminated", "unparsable", "wrong_tool"))
    return Imitation(
        draws=outcomes.total(),
        ok=_share(outcomes["ok"], outcomes.total()),
        at_gold=draws,
        well_formed=_share(at_gold["ok"], draws),
        unterminated=_share(at_gold["unterminated"], draws),
        unparsable=_share(at_gold["unparsable"], draws),
        wrong_tool=_share(at_gold["wrong_tool"], draws),
        exact=_share(at_gold["exact"], draws),
        right=_share(at_gold["right"], draws),
        as_good=_share(at_gold["as_good"], draws),
        places_right=_share(sum(places.values()), len(places)),
        stuck_after=_stuck_after(observed.name, begun, draws),
    )


def _stuck_after(name: str, begun: Sequence[int], draws: int) -> str:
    """Return the part of a name after which most draws deviate; "" if most do not start it, or write all of it."""
    partial = [letters for letters in begun if 0 < letters < len(name)]
    return name[: int(np.median(partial))] if 2 * len(partial) > draws else ""


def _use(observed: Observed) -> ToolUse:
    def answered(calls: Iterable[tuple[str, str]]) -> list[bool]:
        keys = dict.fromkeys((input_, observed.contexts.get(doc_id, "")) for doc_id, input_ in calls)
        return [not observed.executions[key].failure for key in keys if key in observed.executions]

    gold = answered((call.doc_id, call.input) for call in observed.gold)
    drawn = answered((call.doc_id, call.input) for call in observed.draws if call.outcome == "ok")
    failures = Counter(e.failure for e in observed.executions.values() if e.failure)
    return ToolUse(_share(sum(gold), len(gold)), _share(sum(drawn), len(drawn)), dict(sorted(failures.items())))


def _filter(observed: Observed, tau_f: float) -> Filter:
    by_kind: dict[str, list[float]] = {kind: [] for kind in KINDS}
    at_place: dict[tuple[str, int], dict[str, float]] = {}
    for trial in observed.trials:
        gain = trial.scored.gain
        if not math.isnan(gain):
            by_kind[trial.kind].append(gain)
            at_place.setdefault((trial.gold.doc_id, trial.gold.position), {})[trial.kind] = gain
    pairs = [gains for gains in at_place.values() if {"gold", "wrong"} <= gains.keys()]
    gold, others = by_kind["gold"], [*by_kind["wrong"], *by_kind["unrelated"]]
    best = max(((_f1(gold, others, tau), tau) for tau in gold), default=None)
    ordered = sorted(gold, reverse=True)
    return Filter(
        kinds={kind: _gains(observed, kind) for kind in KINDS},
        over_wrong=_share(sum(p["gold"] > p["wrong"] for p in pairs), len(pairs)),
        tau_f=tau_f,
        reached=_share(sum(gain >= tau_f for gain in gold), len(gold)),
        best_tau_f=best[1] if best else None,
        best_f1=best[0] if best else None,
        tau_f_keeping=ordered[math.ceil(_KEEP * len(ordered)) - 1] if ordered else None,
        unscored=sum(math.isnan(trial.scored.gain) for trial in observed.trials),
    )


def _f1(gold: Sequence[float], others: Sequence[float], tau: float) -> float:
    kept = sum(gain >= tau for gain in gold)
    return 2 * kept / (len(gold) + kept + sum(gain >= tau for gain in others))


def _gains(observed: Observed, kind: str) -> Gains:
    calls = [t.scored for t in observed.trials if t.kind == kind and not math.isnan(t.scored.gain)]
    gains = [call.gain for call in calls]
    return Gains(
        calls=len(calls),
        mean=_mean(gains),
        deviation=float(np.std(gains)) if gains else None,
        median=_median(gains),
        lowers=_share(sum(gain >= 0.1 for gain in gains), len(gains)),
        at={threshold_name(tau): _share(sum(gain >= tau for gain in gains), len(gains)) for tau in THRESHOLDS},
        plain=_mean([call.loss_plain for call in calls]),
        call=_mean([call.loss_call for call in calls if call.loss_call is not None]),
        response=_mean([call.loss_response for call in calls]),
        plain_decides=_share(
            sum(call.loss_call is None or call.loss_plain <= call.loss_call for call in calls), len(calls)
        ),
    )


def _kept(observed: Observed, tau_f: float, keep_repeats: bool) -> Kept:
    judge = CallJudge(observed)
    call_filter = CallFilter({observed.tool: tau_f}, keep_repeats=frozenset([observed.tool] if keep_repeats else ()))
    reasons = reasons_of(observed.scored, call_filter)
    kept = [call for call, reason in zip(observed.scored, reasons, strict=True) if not reason]
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
