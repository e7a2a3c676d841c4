"""Parts `rounds` and `bare-rounds`: rounds of self-teaching, and what each finds, keeps and teaches, by tool.

It is one `toolformer bootstrap`, as a user would run it: round 0 samples with the pretrained model, each later round
with the model finetuned in the round before, with the annotation prompts or, in `bare-rounds`, without them; the
pretrained model scores in all of them. All rounds are measured, whether or not they gain anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.beyond.annotated import Say
from benchmarks.beyond.trained import SAMPLING, TRAINING, Sizes
from benchmarks.small_world import TEXTS, TEXTS_SEED, once, toolformer
from smallworld.generate import generate
from toolformer_core.diagnose.gold import GoldCall, normalised, read_gold
from toolformer_core.diagnose.judge import holds
from warehouse.queries import rows_of

__all__ = ["USUAL", "bare_rounds", "rounds"]

WORLD_SEED = 62  # of corpus and items
ROUNDS = 3
USUAL = Sizes(documents=240, items=200, steps=240)


def bare_rounds(folder: Path, model: Path | str, sizes: Sizes, say: Say) -> dict[str, Any]:
    """Return what each round draws, keeps and teaches if later rounds sample without prompts; see `rounds`."""
    return rounds(folder, model, sizes, say, options=("--bare-rounds",))


def rounds(folder: Path, model: Path | str, sizes: Sizes, say: Say, options: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return what each round draws, keeps and teaches.

    Args:
        folder: where texts, data and finished rounds lie; what is there is not done again.
        model: the pretrained model.
        sizes: how much, in each round.
        say: called with a line of progress.
        options: further ones of `toolformer bootstrap`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    world, texts, data = folder / "world", folder / "texts", folder / "data"
    if not (world / "plain.jsonl.gz").is_file():
        generate(world, documents=sizes.documents, per_tool=sizes.items, seed=WORLD_SEED)
        generate(texts, documents=TEXTS, seed=TEXTS_SEED)
    tasks = {
        "small-world": world / "heldout.jsonl.gz",
        "small-world-plain": world / "plain.jsonl.gz",
        "perplexity": texts / "corpus.jsonl.gz",
    }
    asked = ",".join(f"{name}={path}" for name, path in tasks.items())
    gold = read_gold(world).calls

    def run() -> dict[str, Any]:
        told = toolformer(
            *("bootstrap", "--corpus", world / "corpus.jsonl.gz", "--model", model, "--data", data),
            *("--passages", world / "passages.jsonl.gz", "--rounds", ROUNDS, "--task", asked, "--k", 10),
            *(*SAMPLING, *TRAINING, "--steps", sizes.steps, "--evaluate-every", sizes.steps),
            *("--min-gain", -1, *options),
        )
        return {"rounds": [_round(one, data, gold) for one in told["rounds"]]}

    found = once(folder / "rounds.json", run)
    for number, one in enumerate(found["rounds"]):
        say(f"round {number}: {one['kept']}, {one['right']} right")
    return {"sizes": {"documents": sizes.documents, "items": sizes.items, "steps": sizes.steps}, **found}


def _round(told: Mapping[str, Any], data: Path, gold: Mapping[str, tuple[GoldCall, ...]]) -> dict[str, Any]:
    snapshot = data / "warehouse.duckdb"
    dataset, _, version = told["dataset"].rpartition("@")
    sql = f"""
        SELECT doc_id, c.tool AS tool, c.position AS "position", c.input AS input, c.response AS response
        FROM (SELECT doc_id, unnest(calls) AS c FROM dataset_examples
              WHERE dataset = '{dataset}' AND version = '{version}')
    """
    kept, right, found = {}, {}, {}
    for row in rows_of(snapshot, sql):
        tool = row["tool"]
        kept[tool] = kept.get(tool, 0) + 1
        if _is_right(row, gold.get(row["doc_id"], ())):
            right[tool] = right.get(tool, 0) + 1
            found.setdefault(tool, set()).add((row["doc_id"], row["position"]))
    places = {(one.doc_id, one.position, one.tool) for of in gold.values() for one in of}
    sql = f"""
        SELECT split_part(p.group_name, ' ', 1) AS tool, p.group_name LIKE '%new frame%' AS new, count(*) AS items,
               sum(p.correct::INT) AS "right", sum(p.called::INT) AS called
        FROM predictions p JOIN evaluations e USING (evaluation)
        WHERE e.task = 'small-world' AND e.arm = 'toolformer' AND e.model LIKE '{told["checkpoint"]}%'
        GROUP BY ALL ORDER BY ALL
    """
    plain, texts = (
        next(a for name, a in told["answers"].items() if name.split()[0] == task)
        for task in ("small-world-plain", "perplexity")
    )
    return {
        **{name: told[name] for name in ("documents", "examples", "draws", "well_formed", "lm_tokens")},
        "kept": kept,
        "right": right,
        "found": {tool: len(positions) for tool, positions in found.items()},
        "gold": {tool: sum(one == tool for *_, one in places) for tool in sorted({one for *_, one in places})},
        "answers": rows_of(snapshot, sql),
        "needless": plain["call_rate"],
        "perplexity": texts["perplexity"],
    }


def _is_right(row: Mapping[str, Any], gold: tuple[GoldCall, ...]) -> bool:
    """Return whether a call at a known place has the known input, or a response that holds the value there."""
    return any(
        (one.tool, one.position) == (row["tool"], row["position"])
        and (normalised(one.tool, one.input) == normalised(one.tool, row["input"]) or holds(row["response"], one.value))
        for one in gold
    )
