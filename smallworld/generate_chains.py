"""Write the chains' corpus, passages and items: `python -m smallworld.generate_chains`.

They are files of their own, beside those of `generate`, which stay what they are. The passages hold what both tools of
a chain need, and the ordinary facts of the same seed, so that every sentence of the corpus can be helped; WikiSearch
and QA read the same file (`--passages`).

What is shipped are passages and items; a corpus is written only if documents are asked for.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from smallworld.chain_frames import CHAINS, TOOLS
from smallworld.chains import ChainWorld
from smallworld.generate import MIN_PROMPT, phrases_from, row_of, write_lines
from smallworld.worlds import KINDS
from toolformer_core.embedded import ASSETS

_CHAIN_FACTS = 40  # towns in each world, and as many people, companies and books


def chain_rows(
    world: ChainWorld, documents: int, seed: int, held_out: bool | None = None, unlike: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Return corpus rows {text, url, timestamp}.

    One document in six needs no tool. The others have a chain of one family or of two, and up to two sentences that
    need one call. Documents that tell the date are dated in their URL, as are half of the others.

    Args:
        world: the world of the documents.
        documents: the number of documents.
        seed: the seed of the choices that the world does not make.
        held_out: True uses only frames kept out of pretraining, False only the others; None uses both.
        unlike: texts that no document holds, such as the prompts of items.
    """
    r = random.Random(f"chains/{seed}")
    corpus: list[dict[str, Any]] = []
    while len(corpus) < documents:
        kinds: list[str] = []
        if r.random() >= 1 / 6:
            kinds = r.sample(list(CHAINS), r.choice((1, 1, 2)))
            kinds += r.sample([k for k in KINDS if k != "date" or "date-sum" not in kinds], r.choice((0, 1, 2)))
        dated = r.random() < 0.5 or "date" in kinds or "date-sum" in kinds
        doc = world.document(kinds, r.randint(4, 8), held_out=held_out)
        if any(text in doc.text for text in unlike):
            continue
        corpus.append(row_of(world, doc, dated, len(corpus)))
    return corpus


def chain_items(world: ChainWorld, per_group: int, seed: int) -> list[dict[str, Any]]:
    """Return items that need a chain: a document up to the chain's position, and the value that follows.

    The families take turns, so the first few items cover all of them, and every second turn has frames that no other
    world has. The fields are those that `evaluate.readers.jsonl` reads; the group names the family and the frame,
    `fact-sum` or `fact-sum (new frame)`.

    Args:
        world: the world of the items.
        per_group: the number of items of each family with known frames, and of as many with new ones.
        seed: the seed of the choices that the world does not make.
    """
    r = random.Random(f"chain items/{seed}")
    by_family: list[list[dict[str, Any]]] = []
    for family in CHAINS:
        items: dict[str, dict[str, Any]] = {}  # by prompt
        while len(items) < 2 * per_group:
            new = len(items) % 2 == 1
            doc = world.document([family], r.randint(1, 3), held_out=new)
            slot = doc.slots[0]
            prompt = doc.text[: slot.position]
            if len(prompt) >= MIN_PROMPT and prompt not in items:
                items[prompt] = {
                    "item_id": f"{family}-{len(items):03d}",
                    "prompt": prompt,
                    "answers": [slot.value],
                    "date": f"{doc.date:%Y-%m-%d}",
                    "tool": ",".join(dict.fromkeys(TOOLS[family])),
                    "group": f"{family}{' (new frame)' if new else ''}",
                }
        by_family.append(list(items.values()))
    return [item for turn in zip(*by_family, strict=True) for item in turn]


def generate_chains(out: Path, *, documents: int = 0, facts: int = 160, per_group: int = 200, seed: int = 0) -> None:
    """Write chains-passages, chains-items and, if documents are asked for, chains-corpus to a folder.

    Passages and items do not depend on the number of documents.

    Args:
        out: the folder.
        documents: the number of documents in the corpus.
        facts: as of `generate`: with the same, the ordinary subjects are the same.
        per_group: the number of items of each family and kind of frame (known, new).
        seed: which of the many worlds for the corpus and the evaluation.
    """
    out.mkdir(parents=True, exist_ok=True)
    world = ChainWorld("corpus", seed, phrases_from("corpus"), facts, _CHAIN_FACTS)
    other = ChainWorld("evaluation", seed, phrases_from("evaluation"), facts // 2, _CHAIN_FACTS)
    passages = [passage for one in (world, other) for passage in (*one.passages(), *one.chain_passages())]
    write_lines(out / "chains-passages.jsonl.gz", passages)
    items = chain_items(other, per_group, seed)
    write_lines(out / "chains-items.jsonl.gz", items)
    if documents:
        corpus = chain_rows(world, documents, seed, unlike=[item["prompt"] for item in items])
        write_lines(out / "chains-corpus.jsonl.gz", corpus)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ASSETS)
    parser.add_argument("--documents", type=int, default=0, help="documents of the corpus (default 0: no corpus)")
    parser.add_argument("--facts", type=int, default=160, help="ordinary subjects with an encyclopedia entry")
    parser.add_argument("--items", type=int, default=200, help="items of each family with known frames, and with new")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    generate_chains(given.out, documents=given.documents, facts=given.facts, per_group=given.items, seed=given.seed)


if __name__ == "__main__":
    main()
