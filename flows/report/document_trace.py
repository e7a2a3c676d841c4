"""The path of one document through all stages: why each call was kept or dropped, and what used the document."""

import json
import math
import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from flows.report.commands import sql_command
from flows.report.judging import rating_filter
from tasks.stages.assemble import NOT_ANNOTATED, RATINGS
from tasks.training.registry import FinishedTraining, finished_finetunes
from toolformer_core.annotate.assemble import OVER_LIMIT
from toolformer_core.annotate.call_filter import CallFilter, reasons_of
from toolformer_core.annotate.pii import masked
from toolformer_core.config import tau_f_for
from toolformer_core.errors import UsageError
from toolformer_core.records import AnsweredCall, ScoredCall
from warehouse.queries import rows_of
from warehouse.queries.explain import Explanation, explain, ids_with_prefix, nearest_ids
from warehouse.store import Store

KEPT = "kept"
_MIN_SIMILARITY = 0.75  # share of the requested characters that an id must contain to be suggested


@dataclass(frozen=True, slots=True)
class DocumentTrace:
    explanation: Explanation
    positions: tuple[dict[str, Any], ...]  # tool, rank, position, p of " [", p_form where it was given, samples, parsed
    calls: tuple[dict[str, Any], ...]  # scored calls with `outcome`: kept, or why it was dropped
    not_annotated: tuple[str, ...]  # tools that had enough examples before the document's shard (`--stop-when-full`)
    thresholds: dict[str, float]  # tool -> tau_f in nats, of the current C*
    checkpoints: tuple[dict[str, Any], ...]  # folder, arm, dataset, used (trained on, held out)
    evaluations: tuple[dict[str, Any], ...]  # of those checkpoints


def trace_document(store: Store, snapshot: Path, doc_id: str) -> DocumentTrace:
    """Return the path of the document that has this id, or alone has one that begins so."""
    ids = ids_with_prefix(snapshot, doc_id) if doc_id else []
    if doc_id not in ids and len(ids) != 1:
        candidates = ids or [one for one in nearest_ids(snapshot, doc_id) if _is_similar(one, doc_id)]
        problem = "more than one document has" if ids else "no document has"
        nearest = f"; nearest: {', '.join(candidates)}" if candidates else ""
        remedy = f"list them: {sql_command(snapshot, 'SELECT doc_id FROM documents')}"
        raise UsageError(f"{problem} an id beginning with {doc_id!r}{nearest}; {remedy}")
    explanation = explain(snapshot, doc_id if doc_id in ids else ids[0])
    thresholds, calls = _outcomes(store, explanation)
    full, used = tuple((explanation.assembled or {}).get(NOT_ANNOTATED, ())), _checkpoints(store, explanation)
    evaluations = _evaluations(snapshot, used)
    return DocumentTrace(explanation, _positions(explanation), calls, full, thresholds, used, evaluations)


def _is_similar(doc_id: str, requested: str) -> bool:
    matcher = SequenceMatcher(None, doc_id[: len(requested) + 1], requested, autojunk=False)
    return sum(block.size for block in matcher.get_matching_blocks()) >= _MIN_SIMILARITY * len(requested) > 0


def _positions(explanation: Explanation) -> tuple[dict[str, Any], ...]:
    out: dict[tuple[str, int], dict[str, Any]] = {}
    for row in _first_calls(explanation):
        fresh = {"tool": row["tool"], "rank": row["rank"], "position": row["position"], "p": math.exp(row["log_p"])}
        if row.get("log_p_form") is not None:
            fresh["p_form"] = math.exp(row["log_p_form"])
        totals = out.setdefault((row["tool"], row["position"]), {**fresh, "samples": 0, "parsed": 0})
        totals["samples"] += row["count"]
        totals["parsed"] += row["count"] if row["outcome"] == "ok" else 0
    return tuple(sorted(out.values(), key=lambda row: (row["tool"], row["rank"])))


def _first_calls(explanation: Explanation) -> list[dict[str, Any]]:
    return [row for row in explanation.sampled if not row.get("preceding_calls")]


def _scored_call(row: Mapping[str, Any]) -> ScoredCall:
    fields = {name: value for name, value in row.items() if name not in ("gain", "bound", "preceding_calls")}
    return ScoredCall(**fields, preceding_calls=tuple(AnsweredCall(**one) for one in row.get("preceding_calls") or ()))


def _outcomes(store: Store, explanation: Explanation) -> tuple[dict[str, float], tuple[dict[str, Any], ...]]:
    config: dict[str, Any] = explanation.assembled or {}
    calls = list(map(_scored_call, explanation.scored))
    ranks = {(row["tool"], row["doc_id"], row["position"]): row["rank"] for row in _first_calls(explanation)}
    noted = config.get(RATINGS)
    rated_out = rating_filter(store, noted["keep"], noted["until"]).reasons(calls) if noted is not None else ()
    call_filter = CallFilter.of_build({call.tool for call in calls}, config)
    in_examples = {(call["tool"], call["position"]) for example in explanation.examples for call in example["calls"]}
    outcomes = reasons_of(calls, call_filter, ranks, rated_out)
    kept = [explanation.assembled is None or (call.tool, call.position) in in_examples for call in calls]
    named = (outcome or (KEPT if is_kept else OVER_LIMIT) for outcome, is_kept in zip(outcomes, kept, strict=True))
    rows = tuple({**row, "outcome": outcome} for row, outcome in zip(explanation.scored, named, strict=True))
    tools = sorted({row["tool"] for row in explanation.prefiltered})
    return {tool: tau_f_for(tool, config.get("tau_f")) for tool in tools}, rows


def _checkpoints(store: Store, explanation: Explanation) -> tuple[dict[str, Any], ...]:
    if not store.is_local or explanation.document is None:
        return ()
    versions = {f"{row['name']}@{row['version']}" for row in explanation.datasets}
    text = explanation.document["text"]
    out = []
    for one in reversed(finished_finetunes(Path(store.root) / "finetunes")):
        if one.dataset in versions:
            held_out = any(_held_out(one, version) for version in (text, masked(text)))
            used = "held out for development" if held_out else "trained on"
            out.append({"folder": str(one.folder), "arm": one.arm, "dataset": one.dataset, "used": used})
    return tuple(out)


def _held_out(training: FinishedTraining, text: str) -> bool:
    path = training.folder / "dev.jsonl"
    if not path.is_file() or not path.stat().st_size:
        return False
    line = json.dumps({"text": text}, ensure_ascii=False).encode() + b"\n"
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as lines:
        return lines[: len(line)] == line or lines.find(b"\n" + line) >= 0


def _evaluations(snapshot: Path, checkpoints: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    models = {str(Path(one["folder"]) / "model") for one in checkpoints}
    sql = "SELECT evaluation, task, arm, k, model FROM evaluations ORDER BY run_number, evaluated, evaluation"
    return tuple(row for row in rows_of(snapshot, sql) if row["model"] in models) if models else ()
