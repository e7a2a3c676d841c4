"""Part `sampling`: right kept calls for the tokens spent, with free and forced form, and which positions are found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from benchmarks.beyond.annotated import Annotated, FrameTexts, Say, annotate
from toolformer_core.annotate.assemble import survivors
from toolformer_core.annotate.in_memory import sample_all
from toolformer_core.annotate.tool_prompt import prompt_for
from toolformer_core.config import DRAW_FORMS, POSITIONS, TOOL_NAMES, SampleConfig
from toolformer_core.lm.hf.engine import TransformersLM

__all__ = ["PLACES", "sampling"]

PLACES = (1, 3, 5, 10)


def sampling(lm: TransformersLM, frames: Sequence[FrameTexts], say: Say) -> dict[str, Any]:
    """Return, by frames and tool, what each form of draws keeps, and the share of known positions among the best k."""
    found: dict[str, Any] = {}
    for some in frames:
        for tool in TOOL_NAMES:
            forms = {form: _kept(annotate(lm, some, tool, say=say, draw_form=form)) for form in DRAW_FORMS}
            ranks = {way: _ranks(lm, some, tool, way) for way in POSITIONS}
            gold = len({(call.doc_id, call.position) for call in some.chosen(tool).gold})
            places = {way: {str(k): sum(rank < k for rank in of) for k in PLACES} for way, of in ranks.items()}
            found.setdefault(some.name, {})[tool] = {"forms": forms, "gold": gold, "places": places}
            say(f"{some.name} {tool}: {places}")
    return found


def _kept(annotated: Annotated) -> dict[str, Any]:
    kept, _ = survivors(annotated.scored)
    return {
        "kept": len(kept),
        "right": sum(map(annotated.right, kept)),
        "documents": len({call.doc_id for call in kept}),
        "found": annotated.found(kept),
        "scored": len(annotated.scored),
        "tokens": annotated.tokens,
        "seconds": round(annotated.seconds, 1),
    }


def _ranks(lm: TransformersLM, frames: FrameTexts, tool: str, positions: str) -> list[int]:
    """Return the rank, 0 the best, of every known position that is among the most that are asked for."""
    chosen, its = frames.chosen(tool), frames.tools[tool]
    config = replace(SampleConfig.for_tool(tool), top_k=max(PLACES), draws=1, max_call_tokens=1, positions=positions)
    known = {(call.doc_id, call.position) for call in chosen.gold}
    sampled = sample_all(lm, prompt_for(its), its, chosen.pairs, config)
    calls = [call for one in sampled for call in one.calls]
    return [call.rank for call in calls if (call.doc_id, call.position) in known]
