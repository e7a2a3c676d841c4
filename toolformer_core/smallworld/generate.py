"""Write the embedded corpus and passages: `python -m toolformer_core.smallworld.generate`.

The corpus world draws its entities apart from the pretraining one's, and a quarter of its frames are new to the model.
The same seed writes the same bytes. Gold calls and held-out items lie beside the corpus, in files that only
measurements read.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import random
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from toolformer_core.smallworld.embedded import ASSETS
from toolformer_core.smallworld.worlds import KINDS, World, WorldDocument

__all__ = ["TOOL_OF_KIND", "generate", "gold_of", "phrases_from", "questions", "rows"]

# Which tools help with a slot of each kind, and by which argument; the first is the one meant for it.
TOOL_OF_KIND: Mapping[str, tuple[tuple[str, str], ...]] = {
    "arithmetic": (("calculator", "expression"),),
    "date": (("calendar", "empty"),),
    "fact": (("qa", "question"), ("wikisearch", "name")),
    "translation": (("mt", "phrase"),),
}
_LEAST_PROMPT = 24  # characters of a held-out item's prompt
_PHRASES = Path(__file__).resolve().parent.parent / "tools" / "assets" / "phrases.tsv"


def phrases_from(path: Path = _PHRASES, words: int = 3) -> list[tuple[str, str]]:
    """Return the (foreign, English) phrases of at least so many words."""
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    pairs = [(source, english) for _, source, english in (line.split("\t") for line in lines)]
    return [(source, english) for source, english in pairs if len(source.split()) >= words]


def gold_of(document: WorldDocument) -> list[dict[str, Any]]:
    """Return the calls that would be right in a document: tool, input, position, value, held_out."""
    return [
        {
            "tool": tool,
            "input": slot.arguments[rule],
            "position": slot.position,
            "value": slot.value,
            "family": slot.family,
            "held_out": slot.held_out,
        }
        for slot in document.slots
        for tool, rule in TOOL_OF_KIND[slot.kind]
    ]


def rows(world: World, documents: int, seed: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return corpus rows {text, url, timestamp} and, in the same order, their gold calls.

    Half of the documents have a date in their URL; one in six needs no tool at all.
    """
    r = random.Random(f"rows/{seed}")
    corpus, gold = [], []
    for i in range(documents):
        kinds = [] if r.random() < 1 / 6 else r.sample(KINDS, r.choice((1, 1, 2)))
        dated = r.random() < 0.5 or "date" in kinds
        doc = world.document(kinds, r.randint(3, 6))
        slug = "-".join(re.findall(r"[a-z]+", doc.text.lower())[:4])
        day = f"{doc.date:%Y/%m/%d}/" if dated else ""
        url = f"https://www.{world.namer.town().lower()}.example/{day}{slug}-{i}"
        corpus.append({"text": doc.text, "url": url, "timestamp": f"{doc.date:%Y-%m-%d} 12:00:00"})
        gold.append({"url": url, "calls": gold_of(doc)})
    return corpus, gold


def questions(world: World, per_kind: int, seed: int) -> list[dict[str, Any]]:
    """Return held-out items: a document of the same world up to a gold call, and the value that follows there.

    The facts are those of the passages, the documents are not in the corpus. `per_kind` of each kind of slot, in the
    fields that `evaluate.demo` reads.
    """
    r = random.Random(f"questions/{seed}")
    out: list[dict[str, Any]] = []
    for kind in KINDS:
        tool = TOOL_OF_KIND[kind][0][0]
        found: list[dict[str, Any]] = []
        while len(found) < per_kind:
            doc = world.document([kind], r.randint(2, 4))
            for slot in doc.slots:
                prompt = doc.text[: slot.position]
                if slot.kind == kind and len(prompt) >= _LEAST_PROMPT and len(found) < per_kind:
                    item_id = f"{kind}-{len(found):03d}"
                    group = f"{tool}{' (new frame)' if slot.held_out else ''}"
                    date = f"{doc.date:%Y-%m-%d}"
                    answers = [slot.value]
                    found.append(
                        {
                            "item_id": item_id,
                            "prompt": prompt,
                            "answers": answers,
                            "date": date,
                            "tool": tool,
                            "group": group,
                        }
                    )
        out += found
    return out


def _write(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0, filename="") as stream:
        for record in records:
            stream.write((json.dumps(record, ensure_ascii=False) + "\n").encode("utf-8"))
    path.write_bytes(buffer.getvalue())


def generate(out: Path, *, documents: int = 240, facts: int = 160, per_kind: int = 40, seed: int = 0) -> None:
    """Write corpus, passages, the corpus's gold calls and the held-out items to a folder."""
    out.mkdir(parents=True, exist_ok=True)
    world = World("corpus", seed, phrases=phrases_from(), facts=facts)
    corpus, gold = rows(world, documents, seed)
    _write(out / "corpus.jsonl.gz", corpus)
    _write(out / "gold.jsonl.gz", gold)
    _write(out / "passages.jsonl.gz", world.passages())
    _write(out / "heldout.jsonl.gz", questions(world, per_kind, seed))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ASSETS)
    parser.add_argument("--documents", type=int, default=240)
    parser.add_argument("--facts", type=int, default=160, help="subjects with an encyclopedia entry")
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args()
    generate(a.out, documents=a.documents, facts=a.facts, seed=a.seed)


if __name__ == "__main__":
    main()
