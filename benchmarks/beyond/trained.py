"""Part `trained`: models finetuned on the C* of several thresholds and prices, and when each of them calls.

Everything goes through `toolformer`, as a user would do it: one corpus, annotated once; a C* for each setting; a model
for each C*; the same items for every model.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.beyond.annotated import DRAWS, MT_WORDS, TOP_K, Say
from benchmarks.beyond.calibration import DECOYS
from benchmarks.small_world import TEXTS, TEXTS_SEED, once, toolformer
from smallworld.generate import generate
from toolformer_core.config import TOOL_NAMES
from warehouse.queries import rows_of

__all__ = ["PRICES", "PROBABILITIES", "SAMPLING", "TRAINING", "Sizes", "ask", "perplexity_of", "trained"]

WORLD_SEED = 60  # of corpus and items; the demo's and those of `annotated` are others
PRICES = (0.25, 0.5, 1.0, 2.0)  # nats, of a call of any tool
# Options of `toolformer`: those of the demo.
SAMPLING = ("--top-k", str(TOP_K), "--draws", str(DRAWS), "--mt-chunk-tokens", str(MT_WORDS))
TRAINING = ("--profile", "core", "--batch", "3", "--learning-rate", "6e-4")
PROBABILITIES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)  # thresholds on p(" ["), the same for all tools


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is annotated, trained and asked.

    Args:
        documents: of the corpus.
        items: for each tool; half of them have frames that no corpus has.
        steps: of training, with three texts each.
    """

    documents: int = 1000
    items: int = 400
    steps: int = 480


def trained(folder: Path, model: Path | str, sizes: Sizes, say: Say) -> dict[str, Any]:
    """Return what every C* keeps, and what the model that was finetuned on it answers, by tool and frames.

    Args:
        folder: where texts, data and finished steps lie; what is there is not done again.
        model: the pretrained model.
        sizes: how much.
        say: called with a line of progress.
    """
    folder.mkdir(parents=True, exist_ok=True)
    world, texts, data = folder / "world", folder / "texts", folder / "data"
    if not (world / "plain.jsonl.gz").is_file():
        generate(world, documents=sizes.documents, per_tool=sizes.items, seed=WORLD_SEED)
        generate(texts, documents=TEXTS, seed=TEXTS_SEED)
    where = ("--data", data, "--passages", world / "passages.jsonl.gz")
    settings: dict[str, tuple[str, ...]] = {"paper": (), "fdr": ("--tau-f", "fdr=0.05")}
    for price in PRICES:
        settings[f"price-{price}"] = ("--call-price", ",".join(f"{tool}={price}" for tool in TOOL_NAMES))
    found: dict[str, Any] = {}
    for name, options in settings.items():
        found[name] = once(folder / f"{name}.json", lambda n=name, o=options: _one(n, o, folder, model, sizes, where))
        say(f"{name}: {json.dumps(found[name]['kept'])}")
    curve = {}
    for p in PROBABILITIES:
        trigger = ",".join(f"{tool}={p}" for tool in TOOL_NAMES)
        curve[str(p)] = once(
            folder / f"trigger-{p}.json",
            lambda t=trigger: ask(folder, model, found["paper"]["job"], where, "toolformer-trigger", t),
        )
        say(f"p(' [') >= {p}: {curve[str(p)]['needless']}")
    return {
        "sizes": {"documents": sizes.documents, "items": sizes.items, "steps": sizes.steps},
        "cstar": found,
        "curve": curve,
    }


def _one(
    name: str, options: tuple[str, ...], folder: Path, model: Path | str, sizes: Sizes, where: tuple[Any, ...]
) -> dict[str, Any]:
    """Assemble one C*, train on it, and ask the model."""
    corpus = folder / "world/corpus.jsonl.gz"
    sampling = (*SAMPLING, "--decoys", DECOYS)
    built = toolformer("build", "--corpus", corpus, "--model", model, "--dataset", name, *sampling, *options, *where)
    training = (*TRAINING, "--evaluate-every", sizes.steps)
    data = where[:2]
    job = toolformer("finetune", "--dataset", name, "--model", model, "--steps", sizes.steps, *training, *data)
    found = {"kept": built["counts"], "thresholds": built["thresholds"], "job": job["folder"]}
    found["asked"] = ask(folder, model, job["folder"], where, "toolformer,toolformer-disabled")
    if name in ("paper", "fdr"):
        fitted = toolformer("fit-trigger", "--model", job["folder"], *data)
        found["fitted"] = fitted["thresholds"]
        found["triggered"] = ask(folder, model, job["folder"], where, "toolformer-trigger", "fitted")
    found["perplexity"] = perplexity_of(folder, model, job["folder"], where)
    return found


def perplexity_of(folder: Path, model: Path | str, job: str, where: tuple[Any, ...]) -> float:
    """Return a finetuned model's perplexity, calls disabled, of the texts in `texts`."""
    texts = ("--task", "perplexity", "--path", folder / "texts/corpus.jsonl.gz", "--arms", "toolformer-disabled")
    measured = toolformer("evaluate", *texts, "--model", model, "--toolformer", job, *where)
    return float(measured["perplexities"][0]["perplexity"])


def ask(
    folder: Path, model: Path | str, job: str, where: tuple[Any, ...], arms: str, trigger: str = ""
) -> dict[str, Any]:
    """Return a finetuned model's answers and calls to the items in `world`, by arm, tool and frames.

    And its calls on items that need none.

    Args:
        folder: where `world` lies.
        model: the pretrained model.
        job: the folder of the training.
        where: options that name the data and the passages.
        arms: that are asked.
        trigger: for the arm `toolformer-trigger`.
    """
    asked = ("--model", model, "--toolformer", job, "--arms", arms, *where)
    asked += ("--trigger", trigger) if trigger else ("--k", "1,10")
    tools = toolformer("evaluate", "--task", "small-world", "--path", folder / "world/heldout.jsonl.gz", *asked)
    plain = toolformer("evaluate", "--task", "small-world-plain", "--path", folder / "world/plain.jsonl.gz", *asked)
    sql = """
        SELECT e.arm, e.k, split_part(p.group_name, ' ', 1) AS tool, p.group_name LIKE '%new frame%' AS new,
               count(*) AS items, sum(p.correct::INT) AS "right", sum(p.called::INT) AS called
        FROM predictions p JOIN evaluations e USING (evaluation)
        WHERE p.evaluation IN ({}) GROUP BY ALL ORDER BY ALL
    """
    names = ", ".join(f"'{arm['evaluation']}'" for arm in tools["arms"])
    return {
        "answers": rows_of(Path(tools["snapshot"]), sql.format(names)),
        "needless": {
            f"{arm['arm']} {arm['k']}": {"items": arm["items"], "called": round(arm["call_rate"] * arm["items"])}
            for arm in plain["arms"]
        },
    }
