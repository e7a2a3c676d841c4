"""Says why the router chose a tool, for people and programs. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from serving.errors import RequestError
from serving.routing.records import Route, RouteRequest
from toolformer_core.grounding.records import Grounding
from toolformer_core.grounding.scores import Weights


def explained(
    request: RouteRequest,
    weights: Weights,
    grounding: Grounding | None,
    order: Sequence[tuple[str, float | None]],
    chosen: Route,
    passed_over: Mapping[str, str],
) -> dict[str, Any]:
    """Return the ranking and the reason of a choice, as clients get them.

    Args:
        request: what was to be decided.
        weights: with which it was.
        grounding: the scores; None: tools were not ranked.
        order: keys of the tools with their scores, best first.
        chosen: the decision.
        passed_over: keys of tools whose call came to nothing, with the reason.
    """
    tool = chosen.function or (chosen.call.tool if chosen.call is not None else None)
    told: dict[str, Any] = {
        "runs_it": chosen.runs_it,
        "tool": tool,
        "reason": _reason(request, weights, order, tool, passed_over),
        "threshold": weights.threshold,
        "passed_over": dict(passed_over),
        "answer": None,
        "ranking": [],
    }
    if grounding is not None:
        told["answer"] = grounding.answer
        told["ranking"] = [
            {
                "tool": score.tool,
                "score": round(total, 6),
                "semantic": round(score.semantic, 6),
                "pattern": round(grounding.pattern(score, weights.smoothing), 6),
                "call": score.call,
                "response": score.response,
                "failure": score.failure or None,
                "mock": score.mock,
            }
            for score, total in grounding.ranking(weights)
        ]
    return told


def _reason(
    request: RouteRequest,
    weights: Weights,
    order: Sequence[tuple[str, float | None]],
    tool: str | None,
    passed_over: Mapping[str, str],
) -> str:
    """Say in one sentence why a tool was chosen, or none."""
    if request.choice.kind == "function":
        return f"tool_choice names {tool}"
    if not order:
        return "there is no tool to choose from" if request.query else "there is no question of the user's"
    best, score = order[min(len(passed_over), len(order) - 1)]
    limit = "" if weights.threshold is None else f" (threshold {weights.threshold:g})"
    if tool is not None:
        demanded = ", and tool_choice demands a call" if request.choice.kind == "required" else ""
        after = f" of those not passed over ({', '.join(passed_over)})" if passed_over else ""
        return f"{best} has the highest score{after}: {score:.4f}{limit}{demanded}"
    if weights.threshold is None or len(passed_over) == len(order) or (score or 0.0) >= weights.threshold:
        return f"the calls of {', '.join(passed_over)} came to nothing"
    return f"no tool that is left reaches the threshold: {best} has {score:.4f}{limit}"


def no_call(passed_over: Mapping[str, str]) -> RequestError:
    """Return the error for a call that was demanded and came to nothing."""
    said = "; ".join(f"{tool}: {why}" for tool, why in passed_over.items())
    message = f"the model wrote no call that tool_choice demands and that can be used ({said})"
    return RequestError(400, message, param="tool_choice", code="tool_use_failed")
