"""The small world, measured: annotation, filter and finetuned models of several pretraining seeds against known truth.

    python benchmarks/small_world.py --work small-world-runs --seeds 0 1 2 --tokens 12000000 [--json]

For every seed: pretrain a model (hours on two cores; a model found in the work folder is taken), put gold calls of
frames that the model was pretrained on and of frames it never saw to the real stages, run `toolformer demo` with it,
and read off what came out. What is finished there is not done again, and the figures of a seed that is not there and
that `--out` has already, of the same lessons and at least as many tokens, are taken from `--out`: a report may be made
seed by seed, on any machines.
The table goes to `--out` as Markdown and JSON.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.environment import prepare_environment
from toolformer_core.config import TOOL_NAMES

if TYPE_CHECKING:
    from toolformer_core.diagnose.gold import GoldTexts
    from toolformer_core.tools.base import Tool

prepare_environment()

FRAMES = {"known": False, "new": True}
CORPUS_SEED = 50  # of the texts on which the filter is measured; the demo's corpus is another
LEG_TOKENS = 1_500_000
LEG_SEED = 2000  # plus the model's seed: other texts than those of any leg before
LEG_CHAINS = 0.5  # of the texts hold chains
TEXTS_SEED, TEXTS = 1, 300  # on which perplexity is measured besides the demo's few development documents


def pretrained(folder: Path, seed: int, tokens: int) -> Path:
    """Return a seed's model, pretrained if it is not there."""
    model = folder / "model"
    if not (model / "pretraining.json").is_file():
        module = "smallworld.pretrain"
        unfinished = folder / "unfinished"
        asked = ["--layers", "5", "--rows", "8", "--tokens", str(tokens), "--seed", str(seed)]
        if not (unfinished / "pretraining.json").is_file():  # it may have been stopped just before it was renamed
            subprocess.run([sys.executable, "-m", module, "--out", str(unfinished), *asked], check=True)
        unfinished.rename(model)
    return model


def leg(folder: Path, seed: int) -> Path:
    """Return the shipped model after a further leg, half of it with chains, trained if it is not there."""
    from toolformer_core.embedded import ASSETS

    model = folder / "model"
    if not (model / "pretraining.json").is_file():
        texts = ("--chains", str(LEG_CHAINS), "--tokens", str(LEG_TOKENS), "--seed", str(LEG_SEED + seed))
        shape = ("--start", str(ASSETS / "model"), "--layers", "5", "--rows", "8")
        command = [sys.executable, "-m", "smallworld.pretrain", "--out", str(model), *shape, *texts]
        subprocess.run(command, check=True, stdout=sys.stderr)
    return model


def gold_figures(folder: Path, model: Path, documents: int) -> dict[str, dict[str, Any]]:
    """Return, per kind of frames, each tool's figures against gold calls (see `toolformer_core.diagnose`)."""
    from toolformer_core.diagnose.run import DiagnoseConfig, measure
    from toolformer_core.lm.load import load_model

    found: dict[str, dict[str, Any]] = {}
    for name in FRAMES:
        tools, texts = gold_texts(folder / f"texts-{name}", FRAMES[name], documents)
        measured = measure(load_model(str(model)), tools, texts, DiagnoseConfig(documents=documents))
        found[name] = {one.figures.tool: asdict(one.figures) for one in measured}
    return found


def gold_texts(folder: Path, held_out: bool, documents: int) -> tuple[dict[str, Tool], GoldTexts]:
    """Write texts of known or of new frames with their gold calls; return them, and tools that know their world."""
    from smallworld.generate import corpus_rows, known_to_qa, phrases_from, write_lines
    from smallworld.worlds import World
    from toolformer_core.diagnose.gold import read_gold
    from toolformer_core.tools.build import ToolSettings, build_tools

    folder.mkdir(parents=True, exist_ok=True)
    world = World("corpus", CORPUS_SEED, phrases=phrases_from("corpus"), facts=160)
    corpus, gold = corpus_rows(world, 40 * documents, CORPUS_SEED, held_out=held_out)
    write_lines(folder / "corpus.jsonl.gz", corpus)
    write_lines(folder / "gold.jsonl.gz", gold)
    write_lines(folder / "passages.jsonl.gz", world.passages())
    write_lines(folder / "known.jsonl.gz", known_to_qa(world.passages()))
    tools = build_tools(list(TOOL_NAMES), ToolSettings(passages=folder / "passages.jsonl.gz"))
    tools |= build_tools(["qa"], ToolSettings(passages=folder / "known.jsonl.gz"))
    return tools, read_gold(folder)


def toolformer(*words: str | float | Path) -> dict[str, Any]:
    """Return what a command of `toolformer` says with --json."""
    command = [sys.executable, "-m", "cli.main", *map(str, words), "--json"]
    said: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return said


def demo_figures(folder: Path, model: Path) -> dict[str, Any]:
    """Return what `toolformer demo` gives with this model: its table, every arm's answers by tool and frame, and each
    arm's perplexity, calls disabled, on texts of a world that none was trained on."""
    from smallworld.generate import generate
    from warehouse.queries import rows_of

    data = folder / "demo"
    table = toolformer("demo", "--data", data, "--model", model)["table"]
    generate(folder / "texts", documents=TEXTS, seed=TEXTS_SEED)
    texts = folder / "texts" / "corpus.jsonl.gz"
    asked = ("--data", data, "--model", model, "--arms", "base,cc,toolformer-disabled")
    measured = toolformer("evaluate", "--task", "perplexity", "--path", texts, *asked)["perplexities"]
    sql = """
        SELECT e.arm, e.k, split_part(p.group_name, ' ', 1) AS tool, p.group_name LIKE '%new frame%' AS new,
               count(*) AS items, sum(p.correct::INT) AS "right"
        FROM predictions p JOIN evaluations e USING (evaluation)
        WHERE e.task = 'small-world' GROUP BY ALL ORDER BY ALL
    """
    return {
        "table": table,
        "answers": rows_of(data / "warehouse.duckdb", sql),
        "perplexity": {one["arm"]: one["perplexity"] for one in measured},
    }


def corpus_digest() -> str:
    """Return the digest of what a model is measured on, in whatever order: corpus, passages, items and phrases."""
    from toolformer_core.embedded import ASSETS
    from toolformer_core.records import digest_of
    from toolformer_core.tools.build import EMBEDDED_PHRASES

    texts = [gzip.decompress(path.read_bytes()) for path in sorted(ASSETS.glob("*.gz"))]
    return digest_of(*(b"\n".join(sorted(t.splitlines())) for t in (*texts, EMBEDDED_PHRASES.read_bytes())))[:16]


def told(out: Path, seed: int, tokens: int, documents: int) -> dict[str, Any] | None:
    """Return a seed's figures in the last report; None if there are none of these lessons, texts, stages and tokens."""
    from smallworld.pretrain import lessons_digest
    from tasks.stages import VERSIONS

    path = out / "small-world.json"
    one = json.loads(path.read_text(encoding="utf-8")).get(str(seed)) if path.is_file() else None
    if one is None or (one.get("documents"), one.get("corpus")) != (documents, corpus_digest()):
        return None
    if one["pretraining"]["tokens"] < tokens or one.get("stages") != VERSIONS:
        return None
    return one if one["pretraining"].get("lessons") == lessons_digest(seed) else None


def once(path: Path, make: Any) -> Any:
    """Return what a file holds, made and written if there is none."""
    if not path.is_file():
        path.write_text(json.dumps(make(), indent=1, default=float) + "\n", encoding="utf-8")
    return json.loads(path.read_text(encoding="utf-8"))


def spread(values: Iterable[float | None], digits: int = 2) -> str:
    """Return mean and, of several values, the least and the largest."""
    given = [v for v in values if v is not None]
    if not given:
        return "-"
    mean = f"{np.mean(given):.{digits}f}"
    return mean if len(given) == 1 else f"{mean} ({min(given):.{digits}f} to {max(given):.{digits}f})"


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    """Return a Markdown table."""
    return [f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *lines)]


def annotation(seeds: Mapping[str, Any]) -> list[str]:
    """Tabulate what the models write, and where."""
    head = ["frames", "tool", "gold calls", "well-formed", "executes", "equals gold", "gold rank, median", "in top k"]
    lines = []
    for name in FRAMES:
        for tool in TOOL_NAMES:
            of = [one["gold"][name][tool] for one in seeds.values()]
            lines.append(
                [
                    name,
                    tool,
                    spread((f["gold"] for f in of), 0),
                    spread(f["imitation"]["well_formed"] for f in of),
                    spread(f["use"]["drawn_answered"] for f in of),
                    spread(f["imitation"]["right"] for f in of),
                    spread((f["position"]["rank"] for f in of), 1),
                    spread(f["position"]["in_top_k"] for f in of),
                ]
            )
    return table(head, lines)


def kept_as_shipped(seeds: Mapping[str, Any]) -> list[str]:
    """Tabulate what is kept at the tools' own thresholds, against gold calls at their position and anywhere."""
    from toolformer_core.diagnose.figures import threshold_name

    shares = ("precision_anywhere", "precision_as_good", "recall")
    lines = []
    for name in FRAMES:
        for tool in TOOL_NAMES:
            of = [one["gold"][name][tool] for one in seeds.values()]
            tau_f = threshold_name(of[0]["filter"]["tau_f"])
            kept = [f["kept"][tau_f] for f in of]
            figures = [spread(k[share] for k in kept) for share in shares]
            lines.append([name, tool, tau_f, spread((k["calls"] for k in kept), 0), *figures])
    return table(["frames", "tool", "tau_f", "kept", "right call", "also at the right place", "recall"], lines)


def filtering(seeds: Mapping[str, Any]) -> list[str]:
    """Tabulate what is kept, against gold."""
    thresholds = ("0.5", "1.0", "2.0")
    head = [
        "frames",
        "tool",
        *(f"precision / recall at {tau}" for tau in thresholds),
        "gold",
        "wrong result",
        "unrelated",
    ]
    lines = []
    for name in FRAMES:
        for tool in TOOL_NAMES:
            of = [one["gold"][name][tool] for one in seeds.values()]
            kept = [
                " / ".join(spread(f["kept"][tau][share] for f in of) for share in ("precision_as_good", "recall"))
                for tau in thresholds
            ]
            kinds = [f["filter"]["kinds"] for f in of]
            gains = [spread(k.get(kind, {}).get("mean") for k in kinds) for kind in ("gold", "wrong", "unrelated")]
            lines.append([name, tool, *kept, *gains])
    return table(head, lines)


def answering(seeds: Mapping[str, Any]) -> list[str]:
    """Tabulate the share of items answered right."""
    arms = {(row["arm"], row["k"]) for one in seeds.values() for row in one["demo"]["answers"]}
    head = ["frames", "arm, k", *TOOL_NAMES]
    lines = []
    for name, new in FRAMES.items():
        for arm, k in sorted(arms):
            line = [name, f"{arm}, k = {k}" if k else arm]
            for tool in TOOL_NAMES:
                of = [
                    100 * row["right"] / row["items"]
                    for one in seeds.values()
                    for row in one["demo"]["answers"]
                    if (row["arm"], row["k"], row["tool"], row["new"]) == (arm, k, tool, new)
                ]
                line.append(spread(of, 1))
            lines.append(line)
    return table(head, lines)


def gaining(seeds: Mapping[str, Any]) -> list[str]:
    """Tabulate what tools are worth: the finetuned model with tools on and disabled, over all seeds."""
    from scipy.stats import binomtest

    lines = []
    for name, new in FRAMES.items():
        for tool in TOOL_NAMES:
            shares = []
            for arm, k in (("toolformer", 10), ("toolformer-disabled", 0)):
                rows = [
                    row
                    for one in seeds.values()
                    for row in one["demo"]["answers"]
                    if (row["arm"], row["k"], row["tool"], row["new"]) == (arm, k, tool, new)
                ]
                right, items = (sum(row[column] for row in rows) for column in ("right", "items"))
                interval = binomtest(right, items).proportion_ci(method="wilson")
                shares.append((100 * right / items, 100 * interval.low, 100 * interval.high))
            on, off = shares
            lines.append(
                [
                    name,
                    tool,
                    *(f"{value:.0f} ({low:.0f} to {high:.0f})" for value, low, high in shares),
                    f"{on[0] - off[0]:+.0f}",
                    "yes" if on[1] > off[2] else "no",
                ]
            )
    return table(["frames", "tool", "tools on, k = 10", "disabled", "points", "intervals apart"], lines)


def keeping(seeds: Mapping[str, Any]) -> list[str]:
    """Tabulate needless calls and perplexity."""
    threshold_name = [{(row["arm"], row["k"]): row for row in one["demo"]["table"]} for one in seeds.values()]
    lines = [
        [
            f"{arm}, k = {k}" if k else arm,
            spread((of[arm, k]["called"] for of in threshold_name), 1),
            spread((of[arm, k]["needless"] for of in threshold_name), 1),
            spread(of[arm, k]["perplexity"] for of in threshold_name),
            spread(None if k else one["demo"]["perplexity"].get(arm) for one in seeds.values()),
        ]
        for arm, k in threshold_name[0]
    ]
    more = [one["demo"]["perplexity"] for one in seeds.values()]
    above = spread((100 * (of["toolformer-disabled"] / of["cc"] - 1) for of in more), 1)
    head = ["arm, k", "called, items that ask, %", "called, items that do not, %", "dev perplexity", "of new texts"]
    return [*table(head, lines), "", f"On new texts, Toolformer (disabled) against M + CC, percent: {above}"]


def report(seeds: Mapping[str, Any], documents: int, command: str) -> str:
    """Return the report as Markdown."""
    cell = max(row["items"] for one in seeds.values() for row in one["demo"]["answers"])
    trained = ", ".join(f"seed {s}: {one['pretraining']['tokens']:,} tokens" for s, one in seeds.items())
    parts = [
        "# The small world, measured",
        f"Written by `{command}`. Pretrained models: {trained}. Figures are means over {len(seeds)} seeds, the least "
        "and the largest in brackets. *Known* frames occur in pretraining, *new* ones only in the world that is "
        "measured; names, numbers, dates and phrases are always new.",
        "## Annotation",
        f"Up to {documents} documents for each tool and kind of frames, the paper's sampling. Shares of draws at gold "
        "positions; *executes*: of distinct inputs drawn anywhere.",
        "\n".join(annotation(seeds)),
        "## Filter",
        "Calls kept at the tools' own thresholds. *Right call*: with the input or the response of a gold call of the "
        "document, or a response that tells its value; one that comes a few words early or late is right, and not at "
        "the right place. *Recall*: gold calls found at their place.",
        "\n".join(kept_as_shipped(seeds)),
        "Right calls at the right place / recall, by threshold. Then the mean L- - L+ of gold calls, of gold "
        "calls with another document's result, and of unrelated calls, in nats.",
        "\n".join(filtering(seeds)),
        "## Finetuned on the C* it annotated itself",
        f"Percent of items answered right (the value within five words), {cell} items a cell and seed, in a world "
        "whose facts, numbers and dates nobody has seen.",
        "\n".join(answering(seeds)),
        "What tools are worth, the seeds' answers taken together, with Wilson's 95 % intervals:",
        "\n".join(gaining(seeds)),
        "## Needless calls, and the price in perplexity",
        f"Perplexity, calls disabled: of the demo's development documents, and of {TEXTS} texts of another world.",
        "\n".join(keeping(seeds)),
    ]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("small-world-runs"), help="where models and runs lie")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--tokens", type=int, default=12_000_000, help="of pretraining, for every seed")
    parser.add_argument("--documents", type=int, default=24, help="for every tool and kind of frames")
    parser.add_argument("--out", type=Path, default=Path("docs"), help="folder for small-world.md and .json")
    parser.add_argument("--json", action="store_true", help="print one object on the last line")
    given = parser.parse_args()
    from tasks.stages import VERSIONS

    seeds: dict[str, Any] = {}
    for seed in given.seeds:
        folder = given.work / f"seed-{seed}"
        known = told(given.out, seed, given.tokens, given.documents)
        if known is not None and not (folder / "model").exists():
            seeds[str(seed)] = known
            continue
        folder.mkdir(parents=True, exist_ok=True)
        model = pretrained(folder, seed, given.tokens)
        seeds[str(seed)] = {
            "documents": given.documents,
            "corpus": corpus_digest(),
            "stages": VERSIONS,
            "pretraining": json.loads((model / "pretraining.json").read_text(encoding="utf-8")),
            "gold": once(folder / "gold.json", lambda f=folder, m=model: gold_figures(f, m, given.documents)),
            "demo": once(folder / "demo.json", lambda f=folder, m=model: demo_figures(f, m)),
        }
    command = f"python benchmarks/small_world.py --seeds {' '.join(map(str, given.seeds))} --tokens {given.tokens}"
    text = report(seeds, given.documents, command)
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "small-world.md").write_text(text, encoding="utf-8")
    (given.out / "small-world.json").write_text(json.dumps(seeds, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(text)
    if given.json:
        sys.stdout.write(json.dumps(seeds) + "\n")


if __name__ == "__main__":
    main()
