"""`ground` and `answer`: which tool fits a query (GEAR), and the answer that it gives.

    model = tf.load_model("embedded")
    ranked = tf.ground("How much are 12 and 30 together?", ["calculator", "calendar", "qa"], model)
    print(ranked.tool, ranked.reason)
    for one in ranked.tools:
        print(one.tool, one.semantic, one.pattern, one.total, one.response)

Nothing is trained, so a tool that is added can be chosen in the next query. `toolformer_core.grounding.ground` keeps
what these functions make anew at each call: the model's demonstrations and the descriptions' embeddings.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypedDict, Unpack

from toolformer_core.api.inputs import check_loaded, tools_by_key
from toolformer_core.errors import UsageError
from toolformer_core.grounding.encoders import Encoder, HiddenStateEncoder, load_encoder
from toolformer_core.grounding.ground import Grounder, GroundingSettings
from toolformer_core.grounding.library import DemonstrationKind, library_of
from toolformer_core.grounding.patterns import PatternSet, patterns_named
from toolformer_core.grounding.records import GEAR_GAMMA, GEAR_LAMBDA, Grounding, Query, Weights
from toolformer_core.grounding.small_lm import HFSmallLM
from toolformer_core.tools.base import Tool

if TYPE_CHECKING:
    from toolformer_core.lm.hf.engine import TransformersLM


@dataclass(frozen=True, slots=True)
class RankedTool:
    """A tool with its scores for a query."""

    tool: str  # key
    semantic: float  # S, the cosine of query and description
    pattern: float  # P, how alike the preliminary answer and the tool's response are, in nats
    total: float  # gamma S + (1 - gamma) P
    call: str  # the input of the call that the small LM wrote
    response: str  # "" after a failure
    failure: str  # "" if there is a response
    mock: bool  # the response is a stored example: the tool was not called


@dataclass(frozen=True, slots=True)
class GroundedQuery:
    """A query with its tools, the best first."""

    query: str
    answer: str  # the small LM's preliminary answer, without a tool
    tools: tuple[RankedTool, ...]
    tool: str | None  # the key of the chosen one; None: none reaches the threshold
    reason: str  # for people


@dataclass(frozen=True, slots=True)
class GroundedAnswer:
    """A grounded query with the large LM's call of the chosen tool, and the tool's response."""

    grounded: GroundedQuery
    call: str  # the input; "" if no tool was chosen, or no call was written
    text: str  # the answer; "" after a failure
    failure: str


class GroundingOptions(TypedDict, total=False):
    """The options of `ground`, `ground_all` and `answer`.

    Args:
        gamma: weight of the semantic score (the authors' 0.75).
        smoothing: lambda of the pattern score (the authors' 1).
        threshold: smallest total of a tool that may be chosen; None, the default: the best one always is.
        encoder: embeds queries and descriptions: "", the default, is the model's own hidden states, else the folder or
            hub name of a sentence-transformers or model2vec model, or an `Encoder`.
        patterns: `standard` (the default), `authors`, or a `PatternSet`.
        mock: keys of tools that are ranked by their mock response; True: all that have one. Default: none.
        demonstrations: how calls are shown to the model: by the tool's examples (`questions`, the default), or by its
            annotation prompt (`annotation`).
        context: for the tools, e.g. the date for the calendar. Default: "".
        settings: lengths and prompts; see `GroundingSettings`.
    """

    gamma: float
    smoothing: float
    threshold: float | None
    encoder: str | Encoder
    patterns: str | PatternSet
    mock: bool | Collection[str]
    demonstrations: DemonstrationKind
    context: str
    settings: GroundingSettings


def ground(
    query: str, tools: Sequence[str | Tool], model: TransformersLM, **options: Unpack[GroundingOptions]
) -> GroundedQuery:
    """Rank tools for a query, and choose one.

    Args:
        tools: keys or tools, as in `annotate_texts`.
        model: the small LM.
        options: see `GroundingOptions`.

    Raises:
        UnknownNameError: a tool or a pattern set is not known.
        UsageError: an argument is wrong, or a tool has no demonstrations.
        ModelError: the encoder cannot be loaded.
        ToolformerError: a tool cannot be made ready, or does not answer at all.
    """
    return ground_all([query], tools, model, **options)[0]


def ground_all(
    queries: Sequence[str], tools: Sequence[str | Tool], model: TransformersLM, **options: Unpack[GroundingOptions]
) -> list[GroundedQuery]:
    """Rank tools for many queries at a time, which is much faster than one by one; see `ground`."""
    if isinstance(queries, str):
        raise UsageError("queries is one text; give a list of texts, or use `ground`")
    grounder, checked, weights = _prepared(queries, tools, model, options)
    return [ranked(grounding, weights) for grounding in grounder.ground(checked)]


def answer(
    query: str,
    tools: Sequence[str | Tool],
    model: TransformersLM,
    large_model: TransformersLM | None = None,
    **options: Unpack[GroundingOptions],
) -> GroundedAnswer:
    """Choose a tool for a query as `ground` does, and answer with it: one call of the large LM, then the tool.

    Args:
        tools: keys or tools, as in `annotate_texts`.
        model: the small LM.
        large_model: writes the final call, or the answer if no tool reaches the threshold; None: the small LM does.
        options: see `GroundingOptions`.
    """
    grounder, checked, weights = _prepared([query], tools, model, options)
    (grounding,) = grounder.ground(checked)
    large_lm = grounder.small_lm if large_model is None else HFSmallLM(_loaded(large_model))
    (given,) = grounder.answer_all(checked, [grounding.choice(weights)], large_lm)
    return GroundedAnswer(ranked(grounding, weights), given.call, given.text, given.failure)


def ranked(grounding: Grounding, weights: Weights) -> GroundedQuery:
    """Return a grounding under some weights, the best tool first, with the reason of the choice."""
    pattern = partial(grounding.pattern, smoothing=weights.smoothing)
    tools = tuple(
        RankedTool(s.tool, s.semantic, pattern(s), total, s.call, s.response, s.failure, s.mock)
        for s, total in grounding.ranking(weights)
    )
    choice = grounding.choice(weights)
    return GroundedQuery(grounding.query.text, grounding.answer, tools, choice, _reason(tools, choice, weights))


def _reason(tools: Sequence[RankedTool], choice: str | None, weights: Weights) -> str:
    best = tools[0]
    if choice is None:
        return f"no tool reaches {weights.threshold:g}; the best, {best.tool}, has {best.total:.3f}"
    if len(tools) == 1:
        return f"{choice} is the only tool"
    second = tools[1]
    semantic = weights.gamma * (best.semantic - second.semantic)
    pattern = (1 - weights.gamma) * (best.pattern - second.pattern)
    of_which = f"{semantic:+.3f} for how it fits the query, {pattern:+.3f} for how its response is like the answer"
    return f"{choice} is {best.total - second.total:.3f} ahead of {second.tool}: {of_which}"


def _prepared(
    queries: Sequence[str], tools: Sequence[str | Tool], model: TransformersLM, options: GroundingOptions
) -> tuple[Grounder, list[Query], Weights]:
    weights = Weights(options.get("gamma", GEAR_GAMMA), options.get("smoothing", GEAR_LAMBDA), options.get("threshold"))
    lm = _loaded(model)
    library = library_of(
        tools_by_key(tools).values(),
        demonstrations=options.get("demonstrations", "questions"),
        mock=options.get("mock", ()),
    )
    encoder, patterns = options.get("encoder", ""), options.get("patterns", "standard")
    if isinstance(encoder, str):
        encoder = load_encoder(encoder) if encoder else HiddenStateEncoder(lm.hf_model, lm.digest)
    if isinstance(patterns, str):
        patterns = patterns_named(patterns)
    for query in queries:
        if not isinstance(query, str) or not query.strip():
            raise UsageError(f"a query must be a text that is not blank, got {query!r}")
    grounder = Grounder(library, HFSmallLM(lm), encoder, patterns=patterns, settings=options.get("settings"))
    return grounder, [Query(query, options.get("context", "")) for query in queries], weights


def _loaded(model: TransformersLM) -> TransformersLM:
    check_loaded(model)
    if not hasattr(model, "hf_model"):
        raise UsageError(f"the model {model.name} cannot ground: its hidden states are needed; load it by `load_model`")
    return model
