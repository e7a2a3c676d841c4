"""What a card says of a version's texts, without their calls: hosts, languages, how many hold an e-mail address."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from flows.report.tables import markdown_table
from tasks.shards.arrow import examples_of
from toolformer_core.annotate.pii import KINDS, kinds_in
from toolformer_core.annotate.prefilter import fasttext_language
from toolformer_core.syntax import strip
from warehouse.commits import Dataset
from warehouse.queries import rows_of
from warehouse.store import Store

TextCounts = Mapping[str, Mapping[str, int]]  # hosts, languages, holding -> texts by name

_WITH = dict(zip(KINDS, ("e-mail addresses", "telephone numbers"), strict=True))
_LIKELY = 0.5  # a language that is less probable is unclear
_NONE, _UNCLEAR = "no address", "unclear"
_LISTED = 10
_HOSTS = """SELECT coalesce(host, $none) AS host, count(*) AS texts FROM documents SEMI JOIN examples USING (doc_id)
GROUP BY ALL ORDER BY texts DESC, host LIMIT $listed"""
_NOTE = (
    "Languages are what fastText's small model (lid.176) says of the whole text; `unclear` are those of a probability "
    "below 0.5. Addresses and numbers are known by their form alone: some are missed, and some are something else."
)


def plain_texts(store: Store, dataset: Dataset) -> Iterator[str]:
    """Yield the texts of a version without their calls."""
    for table in store.read_dataset(dataset, ["doc_id", "text", "calls"]):
        for example in examples_of(table):
            yield strip(example.text, [(call.start, call.end) for call in example.calls])


def count_texts(store: Store, dataset: Dataset, snapshot: Path, *, mask_pii: bool) -> TextCounts:
    """Return the counts of a version's texts."""
    languages, holding = Counter[str](), Counter[str](() if mask_pii else dict.fromkeys(KINDS, 0))
    for text in plain_texts(store, dataset):
        language, probability = fasttext_language(text)
        languages[language if probability >= _LIKELY else _UNCLEAR] += 1
        holding.update(() if mask_pii else kinds_in(text))
    hosts = {row["host"]: row["texts"] for row in rows_of(snapshot, _HOSTS, {"none": _NONE, "listed": _LISTED})}
    return {"hosts": hosts, "languages": dict(languages.most_common(_LISTED)), "holding": dict(holding)}


def texts_section(counts: TextCounts, texts: int) -> str:
    """Return what the card says of these counts, in Markdown."""

    def shares(of: Mapping[str, int]) -> str:
        others = texts - sum(of.values())
        return ", ".join(f"{name} {100 * n / texts:.1f} %" for name, n in (*of.items(), ("others", others)) if n)

    rows = [(name, shares(counts[name])) for name in ("hosts", "languages")]
    holding = [(f"texts with {_WITH[kind]}", f"{n:,}") for kind, n in counts["holding"].items()]
    rows += holding or [(" and ".join(_WITH.values()), "masked")]
    return markdown_table(["", ""], rows) + f"\n\n{_NOTE}"
