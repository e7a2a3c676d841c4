"""Part `calibration`: how many kept calls are wrong, where a rate of false discoveries was promised."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.beyond.annotated import Annotated, FrameTexts, Say, annotate
from toolformer_core.annotate.assemble import survivors
from toolformer_core.annotate.false_discovery import GainCollector, GainsOfTool, find_threshold
from toolformer_core.config import TOOL_NAMES, tau_f_for
from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.records import ScoredCall

__all__ = ["DECOYS", "PROMISES", "calibration"]

PROMISES = (0.01, 0.02, 0.05, 0.10, 0.20)
DECOYS = 3


def calibration(lm: TransformersLM, frames: Sequence[FrameTexts], say: Say) -> dict[str, Any]:
    """Return, by frames and tool, what is kept at the paper's threshold and at each promised rate.

    Each row counts kept calls, those that are wrong, those of them whose response is a part of the right value, the
    documents that they are in, and the known calls that were found at their place.
    """
    found: dict[str, Any] = {}
    for some in frames:
        for tool in TOOL_NAMES:
            annotated = annotate(lm, some, tool, decoys=DECOYS, say=say)
            found.setdefault(some.name, {})[tool] = _of_tool(tool, annotated)
    return found


def _of_tool(tool: str, annotated: Annotated) -> dict[str, Any]:
    paper = tau_f_for(tool)
    gains = _gains(annotated.scored)
    promised = {}
    for promise in PROMISES:
        threshold = find_threshold(tool, gains, promise, paper)
        at = threshold.at
        promised[str(promise)] = {
            **_kept(annotated, threshold.tau_f),
            "reason": threshold.reason,
            "estimated": at.rate,
            "estimated_low": at.low,
            "estimated_high": at.high,
        }
    return {
        "gold": annotated.gold,
        "scored": len(annotated.scored),
        "decoys": len(gains.decoys),
        "paper": _kept(annotated, paper),
        "promised": promised,
        "all_wrong": _all_wrong(tool, annotated),
    }


def _gains(scored: Iterable[ScoredCall]) -> GainsOfTool:
    collector = GainCollector()
    collector.add(scored)
    return collector.gains()


def _kept(annotated: Annotated, tau_f: float) -> dict[str, Any]:
    kept, _ = survivors(annotated.scored, {annotated.judge.tool: tau_f})
    wrong = [call for call in kept if not annotated.right(call)]
    return {
        "tau_f": tau_f,
        "kept": len(kept),
        "wrong": len(wrong),
        "partly": sum(map(annotated.partly_right, wrong)),
        "documents": len({call.doc_id for call in kept}),
        "found": annotated.found(kept),
    }


def _all_wrong(tool: str, annotated: Annotated) -> dict[str, Any]:
    """Return what a promise of 0.05 keeps where every response is another document's.

    The first decoy of a call is its response here, and the others are its decoys: all calls are wrong by construction.
    """
    shuffled = [
        replace(
            call, loss_response=call.loss_response + call.gain - call.decoy_gains[0], decoy_gains=call.decoy_gains[1:]
        )
        for call in annotated.scored
        if call.decoy_gains and len(call.decoy_gains) > 1
    ]
    threshold = find_threshold(tool, _gains(shuffled), 0.05, tau_f_for(tool))
    kept, _ = survivors(shuffled, {tool: threshold.tau_f})
    return {"calls": len(shuffled), "kept": len(kept), "tau_f": threshold.tau_f, "reason": threshold.reason}
