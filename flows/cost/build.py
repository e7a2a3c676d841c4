"""The arithmetic of a build: from rates to LM tokens, hours, calls, bytes and commits of each stage.

    kept    = documents x kept_share x relevant_share       ok     = draws x ok_share
    draws   = kept x draws per document                     calls  = ok x calls_per_ok_draw
                                                            scored = ok x scored_per_ok_draw

Where calls are chained, each further depth draws m calls of every tool behind the starts of a document:

    starts  = documents x the smaller of chain_starts and the calls scored for a document, of all tools
    draws   = starts x m                                    LM tokens of sample_n = starts x start_tokens + draws x ...

    LM tokens of sample = kept x scan_tokens + draws x draw_tokens         of score = scored x score_tokens

    seconds of a token on a card
      in scan and scoring   FLOPs / (rate x mfu)
      in draws              the longer of that and bytes / (memory rate x bandwidth_share): each step reads all weights
                            once for decode_rows draws, and a document's keys and values once for its draws

Without a card the model's tokens are CPU time. This module does not know where rates come from, nor what an hour costs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from flows.cost.basis import Basis, ToolBasis
from tasks.stage import at_depth

__all__ = ["StageCost", "annotated_documents", "decode_seconds", "prefill_seconds", "stage_costs"]

_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class StageCost:
    """What a stage costs for one tool, or for all of them."""

    stage: str
    tool: str  # "" where the stage runs once for all tools
    units: float  # documents, calls of the tool or scored calls: what the stage works on
    lm_tokens: float = 0.0
    gpu_hours: float = 0.0  # of one card, at work
    tool_calls: float = 0.0
    tool_hours: float = 0.0  # of calls, one after another
    cpu_hours: float = 0.0  # of one core; with no card named, the model's work as well
    bytes: float = 0.0
    commits: float = 0.0


def annotated_documents(basis: Basis, tool: ToolBasis) -> float:
    """Return how many documents a tool is annotated on: all, or until it has enough examples."""
    query = basis.query
    if not query.stop_when_full or not tool.examples:
        return query.documents
    return min(query.documents, math.ceil(query.max_examples / tool.examples))


def prefill_seconds(basis: Basis, stage: str, tokens: float) -> float:
    """Return the seconds that one card needs for a stage's tokens that pass through the model many at a time."""
    flops = basis.shape.flops_per_token(*basis.attention(stage))
    return tokens * flops / (1e12 * basis.tflops * basis.single("mfu"))


def decode_seconds(basis: Basis, tokens: float, draws_per_document: float) -> float:
    """Return the seconds that one card needs for tokens that are drawn one after another, for many draws at a time.

    Args:
        basis: the plan's figures, with a card.
        tokens: of all draws.
        draws_per_document: so many share the keys and values of a document's scan, which are read as a whole.
    """
    shape, rows = basis.shape, basis.single("decode_rows")
    scanned = basis.single("text_copies") * basis.text_tokens + basis.single("prompt_tokens")
    compute = shape.flops_per_token(scanned) / (1e12 * basis.tflops * basis.single("mfu"))
    sharing = min(max(draws_per_document, 1.0), rows)
    read = shape.weight_bytes() / rows + shape.kv_bytes_per_token() * scanned / sharing
    return tokens * max(compute, read / (1e9 * basis.bandwidth * basis.single("bandwidth_share")))


def stage_costs(basis: Basis) -> list[StageCost]:
    """Return the cost of every stage, in the order of the flow."""
    query = basis.query
    documents = query.documents
    costs = [
        StageCost(
            "ingest",
            "",
            documents,
            cpu_hours=_ms(documents, basis.single("ingest_ms")),
            bytes=documents * basis.single("ingest_bytes") + basis.single("commit_bytes"),
            commits=1,
        )
    ]
    for tool in basis.tools:
        costs += _tool_costs(basis, tool)
    for depth in range(2, query.chain_depth + 1):
        for tool in basis.tools:
            costs += _chain_costs(basis, tool, depth)
    examples = sum(min(query.max_examples, documents * tool.examples) for tool in basis.tools)
    shards = math.ceil(documents / query.shard_documents)
    example_bytes = basis.single("ingest_bytes") + basis.single("characters_a_token") * basis.single("call_tokens")
    costs.append(
        StageCost(
            "assemble",
            "",
            documents,
            cpu_hours=_ms(documents, basis.single("assemble_ms")) + _ms(shards, basis.single("commit_cpu_ms")),
            bytes=examples * example_bytes + _commit_bytes(basis, shards),
            commits=shards,
        )
    )
    return costs


def _tool_costs(basis: Basis, tool: ToolBasis) -> Iterator[StageCost]:
    query = basis.query
    documents = annotated_documents(basis, tool)
    filtered = documents * tool.kept_share
    kept = filtered * (query.relevant_share or 1.0)
    draws = kept * tool.draws
    ok = draws * tool.ok_share
    calls, scored = ok * tool.calls, ok * tool.scored
    yield _cost(basis, tool, "prefilter", documents)
    if query.relevant_share is not None:
        yield _cost(basis, tool, "relevance", filtered, prefill=filtered * tool.relevance_tokens)
    scan, drawn = kept * tool.scan_tokens, draws * tool.draw_tokens
    yield _cost(basis, tool, "sample", kept, prefill=scan, decode=drawn)
    yield _cost(basis, tool, "execute", calls, calls=calls)
    yield _cost(basis, tool, "score", scored, prefill=scored * tool.score_tokens)


def _chain_costs(basis: Basis, tool: ToolBasis, depth: int) -> Iterator[StageCost]:
    """Yield the costs of a further depth of chains, whose last calls are the tool's."""
    query = basis.query
    per_document = sum(one.kept_share * one.draws * one.ok_share * one.scored for one in basis.tools)
    kept = query.documents * (tool.kept_share if tool.key == "calendar" else 1.0)  # which needs a date
    starts = kept * min(query.chain_starts, per_document)
    m = next(one.draws for one in query.tools if one.key == tool.key)
    draws = starts * m
    ok = draws * tool.ok_share
    calls, scored = ok * tool.calls, ok * tool.scored
    read, drawn = starts * tool.start_tokens, draws * tool.draw_tokens
    yield _cost(basis, tool, "sample", starts, prefill=read, decode=drawn, depth=depth)
    yield _cost(basis, tool, "execute", calls, calls=calls, depth=depth)
    yield _cost(basis, tool, "score", scored, prefill=scored * tool.score_tokens, depth=depth)


def _cost(
    basis: Basis,
    tool: ToolBasis,
    stage: str,
    units: float,
    *,
    prefill: float = 0.0,
    decode: float = 0.0,
    calls: float = 0.0,
    depth: int = 1,
) -> StageCost:
    """Return the cost of a stage for a tool.

    Args:
        basis: the plan's figures.
        tool: its rates.
        stage: which; at every depth of chains its rates are the same.
        units: of its work, see `StageCost`.
        prefill: LM tokens of scans and scores.
        decode: LM tokens of draws.
        calls: of the tool.
        depth: of chains.
    """
    gpu_s = model_cpu_h = 0.0
    if basis.query.gpu:
        gpu_s = prefill_seconds(basis, stage, prefill) if prefill else 0.0
        gpu_s += decode_seconds(basis, decode, tool.draws) if decode else 0.0
    else:
        model_cpu_h = (prefill + decode) * tool.model_us.get(stage, 0.0) / 1e6 / _HOUR
    commits = math.ceil(annotated_documents(basis, tool) / basis.query.shard_documents)
    return StageCost(
        at_depth(stage, depth),
        tool.key,
        units,
        lm_tokens=prefill + decode,
        gpu_hours=gpu_s / _HOUR,
        tool_calls=calls,
        tool_hours=calls * tool.call_seconds / _HOUR,
        cpu_hours=_ms(units, tool.cpu_ms[stage]) + _ms(commits, basis.single("commit_cpu_ms")) + model_cpu_h,
        bytes=units * tool.bytes[stage] + _commit_bytes(basis, commits),
        commits=commits,
    )


def _ms(units: float, ms: float) -> float:
    """Return hours."""
    return units * ms / 1000 / _HOUR


def _commit_bytes(basis: Basis, commits: float) -> float:
    """Return the bytes of some commits and of the empty Parquet files that go with them."""
    return commits * (basis.single("commit_bytes") + basis.single("file_bytes"))
