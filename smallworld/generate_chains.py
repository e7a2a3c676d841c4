"""Write the chains' passages and items: `python -m smallworld.generate_chains`.

The passages hold what both tools of a chain need, and the ordinary facts of the same seed; WikiSearch and QA read the
same file (`--passages`).
"""

import random
from pathlib import Path
from typing import Any

from smallworld.chains import CHAINS, TOOLS, ChainWorld
from smallworld.generate import (
    FACTS_OF_CORPUS,
    FACTS_OF_EVALUATION,
    MIN_PROMPT,
    item_of,
    phrases_from,
    run,
    write_lines,
)

_ITEMS = 200  # of each family with unseen templates, and as many without
_CHAIN_FACTS = 40  # towns in each world, and as many people, companies and books


def chain_items(world: ChainWorld, per_group: int, seed: int) -> list[dict[str, Any]]:
    """Return items that need a chain, like `tool_items`: of each family `per_group` in seen and in unseen templates."""
    r = random.Random(f"chain items/{seed}")
    by_family: list[list[dict[str, Any]]] = []
    for family in CHAINS:
        items: dict[str, dict[str, Any]] = {}  # by prompt
        while len(items) < 2 * per_group:
            doc = world.document([family], r.randint(1, 3), held_out=len(items) % 2 == 1)
            prompt = doc.text[: doc.slots[0].position]
            if len(prompt) >= MIN_PROMPT and prompt not in items:
                items[prompt] = item_of(doc, family, len(items), ",".join(dict.fromkeys(TOOLS[family])))
        by_family.append(list(items.values()))
    return [item for turn in zip(*by_family, strict=True) for item in turn]


def generate_chains(out: Path, seed: int = 0) -> None:
    """Write chains-passages and chains-items to a folder; the ordinary subjects are those of `generate`."""
    out.mkdir(parents=True, exist_ok=True)
    world = ChainWorld("corpus", seed, phrases_from("corpus"), FACTS_OF_CORPUS, _CHAIN_FACTS)
    other = ChainWorld("evaluation", seed, phrases_from("evaluation"), FACTS_OF_EVALUATION, _CHAIN_FACTS)
    passages = [passage for one in (world, other) for passage in (*one.passages(), *one.chain_passages())]
    write_lines(out / "chains-passages.jsonl.gz", passages)
    write_lines(out / "chains-items.jsonl.gz", chain_items(other, _ITEMS, seed))


if __name__ == "__main__":
    run(generate_chains, __doc__)
