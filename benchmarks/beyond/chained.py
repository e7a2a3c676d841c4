"""Part `chains`: items whose answer needs two tools, with chains of calls, with single calls and without tools.

The shipped model has read no chains. So each seed's model is the shipped one after a further leg of pretraining, in
half of whose texts calls of invented tools go on from each other. One corpus of the chains' world is annotated twice,
without chains and with them; a model is finetuned on each C*, and both answer the same items.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.beyond.annotated import MT_WORDS, Say
from benchmarks.beyond.trained import TRAINING, Sizes
from benchmarks.small_world import once, toolformer
from smallworld.generate_chains import generate_chains
from toolformer_core.diagnose.chains import chains_in, compare_chains, read_gold_chains
from toolformer_core.records import Example, InsertedCall
from warehouse.queries import rows_of

__all__ = ["USUAL", "chained"]

WORLD_SEED = 61  # of corpus and items
SAMPLING = ("--top-k", "5", "--draws", "5", "--mt-chunk-tokens", str(MT_WORDS))
CHAINS = ("--chain-depth", "2", "--chain-starts", "5")
MAX_CALLS = (1, 2, 3)  # of an item; each needs two
K = 10
USUAL = Sizes(documents=160, items=30, steps=240)


def chained(folder: Path, model: Path | str, sizes: Sizes, say: Say) -> dict[str, Any]:
    """Return, with chains and without: what is kept, how much of it is right, and what finetuned models answer.

    Args:
        folder: where texts, data and finished steps lie; what is there is not done again.
        model: the pretrained model.
        sizes: how much; the items are of each family and kind of frames.
        say: called with a line of progress.
    """
    folder.mkdir(parents=True, exist_ok=True)
    world = folder / "world"
    if not (world / "chains-corpus.jsonl.gz").is_file():
        generate_chains(world, documents=sizes.documents, per_group=sizes.items, seed=WORLD_SEED)
    found: dict[str, Any] = {"sizes": {"documents": sizes.documents, "items": sizes.items, "steps": sizes.steps}}
    for name, options in (("single", ()), ("chained", CHAINS)):
        found[name] = once(folder / f"{name}.json", lambda n=name, o=options: _one(n, o, folder, model, sizes))
        say(f"{name}: {json.dumps(found[name]['gold'])}")
    return found


def _one(name: str, options: Iterable[str], folder: Path, model: Path | str, sizes: Sizes) -> dict[str, Any]:
    """Assemble one C*, compare it with gold, train on it, and ask the model."""
    world, data = folder / "world", folder / name
    where = ("--data", data, "--passages", world / "chains-passages.jsonl.gz")
    corpus = world / "chains-corpus.jsonl.gz"
    built = toolformer("build", "--corpus", corpus, "--model", model, "--dataset", name, *SAMPLING, *options, *where)
    training = (*TRAINING, "--steps", sizes.steps, "--evaluate-every", sizes.steps)
    job = toolformer("finetune", "--dataset", name, "--model", model, *training, *where[:2])["folder"]
    arms = {"toolformer": MAX_CALLS, "toolformer-disabled": (1,)}
    asked = {
        f"{arm} {calls}": _ask(folder, model, job, where, arm, calls)
        for arm, of_arm in arms.items()
        for calls in of_arm
    }
    return {
        "kept": built["counts"],
        "lm_tokens": rows_of(Path(built["snapshot"]), "SELECT sum(lm_tokens)::BIGINT AS n FROM costs")[0]["n"],
        "gold": _against_gold(world, Path(built["snapshot"])),
        "answers": asked,
    }


def _against_gold(world: Path, snapshot: Path) -> dict[str, Any]:
    """Return how many kept chains are right, in all; and of each family and kind of frames how many are found."""
    gold = read_gold_chains(world)
    rows = rows_of(snapshot, "SELECT doc_id, text, calls FROM examples")
    examples = (Example(r["doc_id"], r["text"], tuple(InsertedCall(**call) for call in r["calls"])) for r in rows)
    kept = {example.doc_id: chains_in(example) for example in examples}
    figures = {"all": compare_chains(kept, gold)}
    for family, held_out in sorted(
        {(one.family.partition("/")[0], one.held_out) for of in gold.values() for one in of}
    ):
        some = {
            doc_id: [c for c in of if (c.family.partition("/")[0], c.held_out) == (family, held_out)]
            for doc_id, of in gold.items()
        }
        figures[f"{family} {'new' if held_out else 'known'}"] = compare_chains(kept, some)
    return {
        name: {"kept": one.kept, "right": one.right, "gold": one.gold, "found": one.found}
        for name, one in figures.items()
    }


def _ask(
    folder: Path, model: Path | str, job: str, where: tuple[Any, ...], arm: str, max_calls: int
) -> list[dict[str, Any]]:
    """Return a finetuned model's answers by family and kind of frames: items, right, called, calls."""
    asked = toolformer(
        "evaluate",
        *("--task", "small-world-chains", "--path", folder / "world/chains-items.jsonl.gz"),
        *("--model", model, "--toolformer", job, "--arms", arm, "--k", K, "--max-calls", max_calls, *where),
    )
    calls = "sum(len(calls))" if max_calls > 1 else "sum(called::INT)"
    sql = f"""
        SELECT split_part(group_name, ' ', 1) AS family, group_name LIKE '%new frame%' AS new, count(*) AS items,
               sum(correct::INT) AS "right", sum(called::INT) AS called, {calls}::BIGINT AS calls
        FROM predictions WHERE evaluation IN ({", ".join(f"'{one['evaluation']}'" for one in asked["arms"])})
        GROUP BY ALL ORDER BY ALL
    """
    return rows_of(Path(asked["snapshot"]), sql)
