"""One document's whole path with what became of it: why each call was kept or not, and who used the result.

The rows are the warehouse's; why a call was kept is asked of the method's own rules, with the thresholds of the current
C*. A finetune used a document if it was trained on a dataset version that holds it; an evaluation, if it measured such
a model.
"""

from __future__ import annotations

import json
import math
import mmap
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from tasks.assembling import LEFT_OUT, taking_part
from tasks.finetuned import Finetuned, finished_finetunes
from tasks.works import NOT_ANNOTATED, Narrowing
from toolformer_core.annotate.assemble import OVER_LIMIT, survivors
from toolformer_core.config import tau_f_for
from toolformer_core.errors import UsageError
from toolformer_core.records import ScoredCall
from warehouse.explain import Explanation, explain, ids_beginning, nearest_ids
from warehouse.queries import rows_of
from warehouse.store import Store

__all__ = ["Explained", "explained"]

KEPT = "kept"
_ALIKE = 0.75  # the share of the characters asked for that an id must have to be named in their place
_AT_ONCE = 1 << 30  # bytes of a text file that are searched


@dataclass(frozen=True, slots=True)
class Explained:
    """One document's path, for a person or a machine."""

    found: Explanation
    positions: tuple[dict[str, Any], ...]  # tool, rank, position, p of " [", draws, parsed
    calls: tuple[dict[str, Any], ...]  # as scored, with `fate`: kept, or the reason why not
    not_annotated: tuple[str, ...]  # tools that had enough examples before the document's shard (`--stop-when-full`)
    thresholds: dict[str, float]  # tool -> tau_f in nats, of the current C*
    checkpoints: tuple[dict[str, Any], ...] = field(default=())  # folder, arm, dataset, used (trained on, held out)
    evaluations: tuple[dict[str, Any], ...] = field(default=())  # of those checkpoints


def explained(store: Store, snapshot: Path, doc_id: str) -> Explained:
    """Return a document's path.

    Args:
        store: the data.
        snapshot: the warehouse's.
        doc_id: the document's id, or how it begins.

    Raises:
        UsageError: no document, or more than one, has such an id; the message names those alike.
        SnapshotError: there is no snapshot.
    """
    ids = ids_beginning(snapshot, doc_id) if doc_id else []
    if doc_id not in ids and len(ids) != 1:
        near = ids or [one for one in nearest_ids(snapshot, doc_id) if _alike(one, doc_id)]
        what = "more than one document has" if ids else "no document has"
        named = f"; nearest: {', '.join(near)}" if near else ""
        listed = f'list them: duckdb -readonly {snapshot} "SELECT doc_id FROM documents"'
        raise UsageError(f"{what} an id beginning with {doc_id!r}{named}; {listed}")
    found = explain(snapshot, doc_id if doc_id in ids else ids[0])
    thresholds, calls = _fates(found)
    checkpoints = _checkpoints(store, found)
    full = tuple((found.assembled or {}).get(NOT_ANNOTATED, ()))
    evaluations = _evaluations(snapshot, checkpoints)
    return Explained(found, _positions(found), calls, full, thresholds, checkpoints, evaluations)


def _alike(one: str, asked: str) -> bool:
    """Say whether an id could have been meant: most of what was asked stands in it, in the same order."""
    matching = SequenceMatcher(None, one[: len(asked) + 1], asked, autojunk=False)
    return sum(block.size for block in matching.get_matching_blocks()) >= _ALIKE * len(asked) > 0


def _positions(found: Explanation) -> tuple[dict[str, Any], ...]:
    out: dict[tuple[str, int], dict[str, Any]] = {}
    for row in found.sampled:
        fresh = {"tool": row["tool"], "rank": row["rank"], "position": row["position"], "p": math.exp(row["log_p"])}
        own = out.setdefault((row["tool"], row["position"]), {**fresh, "draws": 0, "parsed": 0})
        own["draws"] += row["count"]
        own["parsed"] += row["count"] if row["outcome"] == "ok" else 0
    return tuple(sorted(out.values(), key=lambda row: (row["tool"], row["rank"])))


def _fates(found: Explanation) -> tuple[dict[str, float], tuple[dict[str, Any], ...]]:
    """Return the thresholds, and every scored call with what became of it, by the rules of `assemble`."""
    config: dict[str, Any] = found.assembled or {}
    calls = [ScoredCall(**{name: value for name, value in row.items() if name != "gain"}) for row in found.scored]
    ranks = {(row["tool"], row["doc_id"], row["position"]): row["rank"] for row in found.sampled}
    narrowing = Narrowing(config.get("top_k", {}), config.get("tau_s", {}))
    own = taking_part(narrowing, calls, ranks)
    kept, dropped = survivors(own, config.get("tau_f"), keep_repeats=config.get("keep_repeats", False))
    held = {(call["tool"], call["position"]) for example in found.examples for call in example["calls"]}
    fates = {id(call): reason for call, reason in dropped}
    for call in kept:
        beyond = found.assembled is not None and (call.tool, call.position) not in held
        fates[id(call)] = OVER_LIMIT if beyond else KEPT
    told = tuple({**row, "fate": fates.get(id(c), LEFT_OUT)} for row, c in zip(found.scored, calls, strict=True))
    tools = sorted({row["tool"] for row in found.prefiltered})
    return {tool: tau_f_for(tool, config.get("tau_f")) for tool in tools}, told


def _checkpoints(store: Store, found: Explanation) -> tuple[dict[str, Any], ...]:
    if not store.is_local or found.document is None:
        return ()
    versions = {f"{row['name']}@{row['version']}" for row in found.datasets}
    names = {row["name"] for row in found.datasets}
    out = []
    for one in reversed(finished_finetunes(Path(store.root) / "finetunes")):
        if one.dataset in versions or (not one.dataset and one.texts[0] in names):
            used = "held out for development" if _held_out(one, found.document["text"]) else "trained on"
            dataset = one.dataset or f"{one.texts[0]} (version not noted)"
            out.append({"folder": str(one.folder), "arm": one.arm, "dataset": dataset, "used": used})
    return tuple(out)


def _held_out(one: Finetuned, text: str) -> bool:
    """Say whether a document is among a training's development texts, where a line is a text."""
    path = one.folder / "dev.jsonl"
    if not path.is_file() or not 0 < path.stat().st_size < _AT_ONCE:
        return False
    line = json.dumps({"text": text}, ensure_ascii=False).encode() + b"\n"
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as lines:
        return lines[: len(line)] == line or lines.find(b"\n" + line) >= 0


def _evaluations(snapshot: Path, checkpoints: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    models = {str(Path(one["folder"]) / "model") for one in checkpoints}
    if not models:
        return ()
    sql = "SELECT evaluation, task, arm, k, model FROM evaluations ORDER BY evaluated, evaluation"
    return tuple(row for row in rows_of(snapshot, sql) if row["model"] in models)
