"""Write the embedded corpus, passages and items: `python -m smallworld.generate`.

The corpus belongs to one world, the items that measure a finetuned model to another (see `worlds`). The same seed gives
the same bytes. Only measurements read the gold calls. QA has the passages about people and companies, WikiSearch all.
"""

import argparse
import gzip
import io
import json
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from smallworld.frames import FACTS
from smallworld.worlds import SECTIONS, Slot, World, WorldDocument, world_of
from toolformer_core.embedded import ASSETS

# The tools that help with a slot of each kind, with the argument of each; the first is the intended one.
_TOOLS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "arithmetic": (("calculator", "expression"),),
    "date": (("calendar", "empty"),),
    "person": (("qa", "question"), ("wikisearch", "name")),
    "company": (("qa", "question"), ("wikisearch", "name")),
    "town": (("wikisearch", "name"),),
    "book": (("wikisearch", "name"),),
    "translation": (("mt", "phrase"),),
}
_KNOWN_TO_QA = ("person", "company")
_KIND_FOR = {"calculator": "arithmetic", "calendar": "date", "qa": "fact", "wikisearch": "fact", "mt": "translation"}
# Words that may join two nouns without changing their articles.
_JOINTS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "de": (("und", "and"), ("oder", "or")),
    "fr": (("et", "and"), ("ou", "or"), ("avec", "with"), ("sans", "without")),
    "es": (("y", "and"), ("o", "or"), ("con", "with"), ("sin", "without")),
    "it": (("e", "and"), ("o", "or"), ("con", "with"), ("senza", "without")),
}
_ARTICLES = ("der", "die", "das", "le", "la", "el", "il", "lo")
_PAIRS = 400  # pairs of nouns per language, over all worlds
_DOCUMENTS, _ITEMS = 240, 30  # of the corpus; items that need each tool, and as many that need none
FACTS_OF_CORPUS, FACTS_OF_EVALUATION = 160, 80  # subjects with a passage
MIN_PROMPT = 24  # the fewest characters of a held-out item's prompt
_PHRASES = Path(__file__).resolve().parent.parent / "toolformer_core" / "tools" / "assets" / "phrases.tsv"


def phrases_from(world: str) -> list[tuple[str, str]]:
    """Return a world's (foreign, English) phrases of at least three words: the table's, and pairs of its nouns."""
    table = [line.split("\t") for line in _PHRASES.read_text(encoding="utf-8").splitlines()[1:]]
    phrases = [(source, english) for _, source, english in table if len(source.split()) >= 3]
    r = random.Random("phrases")
    for language, joints in _JOINTS.items():
        nouns = [
            (source, english)
            for code, source, english in table
            if code == language and source.split()[0] in _ARTICLES and english.startswith("the ")
        ]
        for _ in range(_PAIRS):
            (a, first), (b, second) = r.sample(nouns, 2)
            joint, english = r.choice(joints)
            phrases.append((f"{a} {joint} {b}", f"{first} {english} {second}"))
    return [(source, english) for source, english in dict(phrases).items() if world_of(source) == world]


def _tools_of(slot: Slot) -> tuple[tuple[str, str], ...]:
    """Return the tools that help with a slot, with the argument of each; the first is the intended one."""
    kind = FACTS[slot.family.split("/")[1]].kind if slot.kind == "fact" else slot.kind
    return _TOOLS[kind]


def gold_calls(document: WorldDocument) -> list[dict[str, Any]]:
    """Return the right calls of a document: tool, input, position, value, family, held_out."""
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
        for tool, rule in _tools_of(slot)
    ]


def known_to_qa(passages: Iterable[Mapping[str, str]]) -> list[Mapping[str, str]]:
    """Return the passages that QA may read; a call of QA about anything else is not gold."""
    sections = {SECTIONS[kind] for kind in _KNOWN_TO_QA}
    return [passage for passage in passages if passage["section"] in sections]


def corpus_rows(world: World, documents: int, seed: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return corpus rows {text, url, timestamp}, half of them dated, and their gold calls; one in six has none."""
    r = random.Random(f"rows/{seed}")
    corpus, gold = [], []
    for i in range(documents):
        kinds = [] if r.random() < 1 / 6 else r.sample(list(_KIND_FOR.values()), r.choice((1, 2, 3)))
        dated = r.random() < 0.5 or "date" in kinds
        doc = world.document(kinds, r.randint(4, 8))
        corpus.append(row_of(world, doc, dated, i))
        gold.append({"url": corpus[-1]["url"], "calls": gold_calls(doc)})
    return corpus, gold


def row_of(world: World, doc: WorldDocument, dated: bool, number: int) -> dict[str, Any]:
    slug = "-".join(re.findall(r"[a-z]+", doc.text.lower())[:4])
    day = f"{doc.date:%Y/%m/%d}/" if dated else ""
    url = f"https://www.{world.namer.town().lower()}.example/{day}{slug}-{number}"
    return {"text": doc.text, "url": url, "timestamp": f"{doc.date:%Y-%m-%d} 12:00:00"}


def tool_items(world: World, per_tool: int, seed: int, unlike: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return items that need a tool: a document up to a gold call, and the value that follows.

    The tools take turns; every second item of a tool has a frame that no other world has. The fields are those that
    `evaluate.readers.rows` reads. No prompt occurs in a text of `unlike`.
    """
    r = random.Random(f"questions/{seed}")
    by_tool: list[list[dict[str, Any]]] = []
    for tool, kind in _KIND_FOR.items():
        items: list[dict[str, Any]] = []
        while len(items) < per_tool:
            doc = world.document([kind], r.randint(2, 5), held_out=len(items) % 2 == 1)
            slot = doc.slots[0]
            prompt = doc.text[: slot.position]
            known = any(prompt in text for text in unlike)
            if _tools_of(slot)[0][0] == tool and len(prompt) >= MIN_PROMPT and not known:
                items.append(item_of(doc, tool, len(items), tool))
        by_tool.append(items)
    return [item for turn in zip(*by_tool, strict=True) for item in turn]


def item_of(doc: WorldDocument, name: str, number: int, tool: str) -> dict[str, Any]:
    """Return a document up to its first slot as an item; those with an odd number have an unseen template."""
    return {
        "item_id": f"{name}-{number:03d}",
        "prompt": doc.text[: doc.slots[0].position],
        "answers": [doc.slots[0].value],
        "date": f"{doc.date:%Y-%m-%d}",
        "tool": tool,
        "group": f"{name} (unseen template)" if number % 2 else name,
    }


def plain_items(world: World, count: int, seed: int) -> list[dict[str, Any]]:
    """Return items that need no tool: a document without slots up to one of its later words, and this word."""
    r = random.Random(f"plain/{seed}")
    out: list[dict[str, Any]] = []
    while len(out) < count:
        doc = world.document([], r.randint(2, 5))
        at = r.choice([m.start() for m in re.finditer(r" \w", doc.text) if m.start() >= MIN_PROMPT])
        item_id, date = f"plain-{len(out):03d}", f"{doc.date:%Y-%m-%d}"
        answers = doc.text[at:].split()[:1]
        out.append({"item_id": item_id, "prompt": doc.text[:at], "answers": answers, "date": date, "group": "no tool"})
    return out


def write_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write gzipped JSON lines; equal records give equal bytes."""
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0, filename="") as stream:
        for record in records:
            stream.write((json.dumps(record, ensure_ascii=False) + "\n").encode("utf-8"))
    path.write_bytes(buffer.getvalue())


def generate(out: Path, seed: int = 0) -> None:
    out.mkdir(parents=True, exist_ok=True)
    world = World("corpus", seed, phrases=phrases_from("corpus"), facts=FACTS_OF_CORPUS)
    other = World("evaluation", seed, phrases=phrases_from("evaluation"), facts=FACTS_OF_EVALUATION)
    corpus, gold = corpus_rows(world, _DOCUMENTS, seed)
    passages = [*world.passages(), *other.passages()]
    write_lines(out / "corpus.jsonl.gz", corpus)
    write_lines(out / "gold.jsonl.gz", gold)
    write_lines(out / "passages.jsonl.gz", passages)
    write_lines(out / "known.jsonl.gz", known_to_qa(passages))
    texts = [row["text"] for row in corpus]
    write_lines(out / "heldout.jsonl.gz", tool_items(other, _ITEMS, seed, unlike=texts))
    write_lines(out / "plain.jsonl.gz", plain_items(other, _ITEMS, seed))


def run(write: Callable[[Path, int], None], description: str | None) -> None:
    """Write what the command line asks for."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ASSETS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    write(options.out, options.seed)


if __name__ == "__main__":
    run(generate, __doc__)
