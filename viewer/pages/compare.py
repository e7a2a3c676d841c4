"""Compare two versions of C*: counts, calls that only one holds, parameters in which their runs differ, a document."""

import json
from collections.abc import Mapping
from typing import Any

from flows.build_dataset.record import BuildRecord
from viewer.data import ViewedData
from viewer.pages.document import example_pieces
from viewer.query import NotThereError, Query, WrongQueryError, document_link
from warehouse.queries import rows_of
from warehouse.queries.comparing import CallPlace, compare_versions
from warehouse.queries.documents import example_of

_ROWS = 25
_MAX_CHARS = 100_000  # of a text on the page
_PARAMETERS = "SELECT parameters FROM runs WHERE run_id = $run_id"


def page(viewed: ViewedData, query: Query) -> Mapping[str, Any]:
    """Return what the page shows: `a` and `b` name the versions, `doc` a document of both.

    Of what is not named, `b` is the newest version and `a` the one before it.
    """
    labels = list(dict.fromkeys(f"{row['name']}@{row['version']}" for row in viewed.versions()))
    newest = {label.rpartition("@")[0]: label for label in reversed(labels)}
    first, second = (newest.get(query.text(name), query.text(name)) for name in ("a", "b"))
    second = second or next((label for label in labels if label != first), "")
    older = labels[labels.index(second) + 1 :] if second in labels else []
    first = first or next((label for label in (*older, *labels) if label != second), "")
    query = Query([*query.values.items(), ("a", first), ("b", second)])  # its links stay with these two
    shown: dict[str, Any] = {"versions": labels, "a": first, "b": second, "query": query, "found": None}
    if not (first and second):
        return shown
    shown["speaks_of"] = f"{first} and {second}"
    for label in (first, second):
        if label not in labels:
            raise WrongQueryError(f"there is no version {label[:100]!r}")
    if doc_id := query.text("doc"):
        return {**shown, **_document(viewed, query, (first, second), doc_id)}
    goes, comes = (query.place(name, CallPlace) for name in ("goes", "comes"))
    found = compare_versions(viewed.snapshot, _pair(first), _pair(second), _ROWS, goes_after=goes, comes_after=comes)
    lists = [
        (
            name,
            f"Calls of {label} alone",
            [(call, query.to("/compare", doc=call.place.doc_id, goes=None, comes=None)) for call in calls],
            query.further("/compare", name, calls[-1].place if more else None, name),
        )
        for name, label, calls, more in (
            ("goes", first, found.goes, found.more_goes),
            ("comes", second, found.comes, found.more_comes),
        )
    ]
    tables = {"tools": found.tools, "goes": found.goes, "comes": found.comes}
    differing = _differing(viewed, first, second)
    return {**shown, "found": found, "tables": tables, "lists": lists, "differing": differing, "texts": None}


def _pair(label: str) -> tuple[str, str]:
    name, _, version = label.rpartition("@")
    return name, version


def _differing(viewed: ViewedData, first: str, second: str) -> list[tuple[str, str, str]]:
    made = {f"{row['name']}@{row['version']}": row for row in reversed(viewed.versions())}  # the newest counts
    made_with = []
    for version in (made[first], made[second]):
        rows = rows_of(viewed.snapshot, _PARAMETERS, {"run_id": version["run_id"]})
        record = BuildRecord(json.loads(rows[0]["parameters"] or "{}") if rows else {})
        own = {name: version[name] for name in ("thresholds", "corpus")}
        made_with.append(record.requested("tau_f") | own)
    out = []
    for name in sorted({*made_with[0], *made_with[1]}):
        one, other = (_only_set(parameters.get(name)) for parameters in made_with)
        if isinstance(one, dict) and isinstance(other, dict):  # of values by tool, those that differ
            same = {key for key in one if key in other and one[key] == other[key]}
            one, other = ({k: v for k, v in side.items() if k not in same} for side in (one, other))
        if one != other:
            out.append((name, _shown(one), _shown(other)))
    return out


def _only_set(value: Any) -> Any:
    """Return a parameter without what is not set, at any depth; None if nothing is."""
    if isinstance(value, dict):
        inner = {name: _only_set(one) for name, one in value.items()}
        return {name: one for name, one in inner.items() if one is not None} or None
    return None if value in ("", []) else value


def _shown(value: Any) -> str:
    if value is None or value == {}:
        return "-"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(one)}" for name, one in value.items())
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


def _document(viewed: ViewedData, query: Query, labels: tuple[str, str], doc_id: str) -> dict[str, Any]:
    texts = []
    for label in labels:
        example = example_of(viewed.snapshot, *_pair(label), doc_id)
        pieces = example_pieces({**example, "text": example["text"][:_MAX_CHARS]}) if example else None
        texts.append((label, pieces, document_link(doc_id, version=label)))
    if all(pieces is None for _, pieces, _ in texts):
        raise NotThereError(f"neither version has a document {doc_id[:100]!r}")
    return {"texts": texts, "doc_id": doc_id, "back": query.to("/compare", doc=None)}
