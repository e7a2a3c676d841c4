"""Find: documents by words, host, date, length, tool, gain, and by the stage and reason that dropped something."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from viewer.data import ViewedData
from viewer.query import Query, WrongQueryError, document_link
from warehouse.queries.documents import DROP_STAGES, DocumentFilter, DocumentKey, find_documents
from warehouse.queries.explain import ids_with_prefix

_ROWS = 50
_ID_CHARS = 8  # from which on a word is looked up as the beginning of an id


def page(viewed: ViewedData, query: Query) -> Mapping[str, Any]:
    version = query.text("version")
    dataset, at, digest = version.rpartition("@")
    if version and not (dataset and at and digest):
        raise WrongQueryError(f"version is written name@version, not {version[:100]!r}")
    stage, _, reason = query.text("dropped").partition(":")
    if stage and stage not in DROP_STAGES:
        raise WrongQueryError(f"dropped is written stage:reason, with a stage of {', '.join(DROP_STAGES)}")
    wanted = DocumentFilter(
        dataset=dataset,
        version=digest,
        text=query.text("text"),
        host=query.text("host"),
        since=query.text("since"),
        until=query.text("until"),
        shortest=query.whole("shortest"),
        longest=query.whole("longest"),
        kept=query.choice("kept", ("yes",)) == "yes",
        tool=query.text("tool"),
        low=query.number("low"),
        high=query.number("high"),
        stage=stage,
        reason=reason,
    )
    after = DocumentKey(query.text("after"), query.values.get("behind", "")) if query.text("after") else None
    found = find_documents(viewed.snapshot, wanted, _ROWS, after)
    further = found.last and query.to("/documents", after=found.last.name, behind=found.last.doc_id)
    word = wanted.text
    ids = ids_with_prefix(viewed.snapshot, word) if len(word) >= _ID_CHARS and " " not in word and not after else []
    return {
        "version": version,
        "versions": dict.fromkeys(f"{row['name']}@{row['version']}" for row in viewed.versions()),
        "names": viewed.names(),
        "found": found,
        "tables": {"documents": found.documents},
        "further": further,
        "ids": [(doc_id, document_link(doc_id, version=version)) for doc_id in ids],
        "drops": _drops(viewed, wanted.tool),
    }


def _drops(viewed: ViewedData, tool: str) -> dict[str, str]:
    rows: Counter[str] = Counter()
    for row in viewed.rows("drops"):
        searched = row["stage"] in DROP_STAGES and (row["stage"], row["unit"]) != ("sample", "documents")
        if searched and tool in ("", row["tool"]):
            rows[f"{row['stage']}:{row['reason']}"] += row["rows"]
    stages = list(DROP_STAGES)
    ordered = sorted(rows.items(), key=lambda item: (stages.index(item[0].partition(":")[0]), -item[1], item[0]))
    return {name: f"{name.replace(':', ': ')} ({n:,})" for name, n in ordered}
