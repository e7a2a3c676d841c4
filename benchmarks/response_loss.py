"""What the loss on responses is worth: the small world's models, finetuned with it and without.

    python -m benchmarks.response_loss --work response-loss-runs                  # hours on two cores
    python -m benchmarks.response_loss --documents 60 --items 4 --steps 4 --texts 8 --seeds 1 --out FOLDER   # a try

One C* of the demo's world, annotated once by the embedded model; for every seed of training, a model that is trained on
responses and one that is not. Both answer the same items, with tools and with tools disabled, and read the same new
texts. What is finished in the work folder is not done again. The figures are added, by sizes and seeds, to those in
`--out`, and the page is written from all that are there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.beyond.pooled import accuracy_of, needless_of, right_share
from benchmarks.beyond.trained import SAMPLING, TRAINING, Sizes, ask, perplexity_of
from benchmarks.report import parser_of, print_json, progress, say
from benchmarks.small_world import TEXTS, TEXTS_SEED, once, spread, table, toolformer
from smallworld.generate import generate
from toolformer_core.config import TOOL_NAMES

__all__ = ["measure", "report"]

WORLD_SEED = 0  # the demo's
LOSSES = ("on", "off")
FRAMES = {"known": False, "new": True}
ARMS = (("toolformer", 10), ("toolformer-disabled", 0))  # and k


def measure(folder: Path, sizes: Sizes, texts: int, seed: int) -> dict[str, Any]:
    """Return what the two models of a seed answer, by the loss on responses.

    Args:
        folder: where texts, data and finished steps lie; what is there is not done again.
        sizes: how much is annotated, trained and asked.
        texts: how many perplexity is measured on.
        seed: of both trainings.
    """
    folder.mkdir(parents=True, exist_ok=True)
    world, data = folder / "world", folder / "data"
    if not (world / "plain.jsonl.gz").is_file():
        generate(world, documents=sizes.documents, per_tool=sizes.items, seed=WORLD_SEED)
        generate(folder / "texts", documents=texts, seed=TEXTS_SEED)
    where = ("--data", data, "--passages", world / "passages.jsonl.gz")

    def build() -> dict[str, Any]:
        return toolformer("build", "--corpus", world / "corpus.jsonl.gz", "--dataset", "cstar", *SAMPLING, *where)

    def one(loss: str) -> dict[str, Any]:
        steps = ("--steps", sizes.steps, "--evaluate-every", sizes.steps, "--seed", seed)
        chosen = ("--dataset", "cstar", *where[:2], "--response-loss", loss)
        job = toolformer("finetune", *chosen, *TRAINING, *steps)["folder"]
        asked = ask(folder, "embedded", job, where, ",".join(arm for arm, _ in ARMS))
        return {**asked, "perplexity": perplexity_of(folder, "embedded", job, where)}

    kept = once(folder / "build.json", build)["counts"]
    models = {loss: once(folder / f"{loss}-{seed}.json", lambda of=loss: one(of)) for loss in LOSSES}
    return {"kept": kept, "models": models}


def report(figures: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the page as Markdown.

    Args:
        figures: sizes, as `size_name` has them -> seed -> what `measure` returned.
    """
    parts = [
        "# The loss on responses, measured",
        "Written by `python -m benchmarks.response_loss`. *On* is the paper's way: a model is trained on responses, "
        "too; *off* is `finetune --response-loss off`. Both models of a seed read the same texts of one C*, which the "
        "embedded model annotated. *Known* frames occur in its pretraining, *new* ones do not. Where seeds are "
        "compared, the mean stands first, then the least and the largest.",
    ]
    for sizes, seeds in sorted(figures.items()):
        kept = next(iter(seeds.values()))["kept"]
        parts += [
            f"## {sizes}",
            f"Seeds of training: {', '.join(seeds)}. Examples in C* with a call: "
            f"{', '.join(f'{tool} {kept.get(tool, 0)}' for tool in TOOL_NAMES)}. Percent of items answered right, of "
            "items that need no tool those with a call, and the perplexity, calls disabled, of new texts:",
            "\n".join(_by_seeds(seeds)),
            "By tool, all seeds together, with Wilson's 95 % interval:",
            "\n".join(_by_tool(seeds)),
        ]
    return "\n\n".join(parts) + "\n"


def _by_seeds(seeds: Mapping[str, Any]) -> list[str]:
    lines = []
    for loss in LOSSES:
        for arm, k in ARMS:
            of = [one["models"][loss] for one in seeds.values()]
            right = [spread((accuracy_of(one, arm, k, new) for one in of), 1) for new in FRAMES.values()]
            calls = spread((needless_of(one, arm, k) for one in of), 1)
            lines.append(
                [loss, _named(arm, k), *right, calls, spread(one["perplexity"] for one in of) if not k else ""]
            )
    return table(["loss on responses", "tools", "right, known", "right, new", "needless calls", "perplexity"], lines)


def _by_tool(seeds: Mapping[str, Any]) -> list[str]:
    lines = []
    for frames, new in FRAMES.items():
        for tool in TOOL_NAMES:
            line = [frames, tool]
            for arm, k in ARMS:
                for loss in LOSSES:
                    share = right_share((one["models"][loss] for one in seeds.values()), arm, k, new, tool)
                    line.append(share.percent() if share else "-")
            lines.append(line)
    return table(["frames", "tool", *(f"{_named(arm, k)}, {loss}" for arm, k in ARMS for loss in LOSSES)], lines)


def _named(arm: str, k: int) -> str:
    return f"k = {k}" if k else "disabled"


def size_name(sizes: Sizes, texts: int) -> str:
    """Return sizes as the page names them."""
    return f"{sizes.documents} documents, {sizes.steps} steps, {sizes.items} items for each tool, {texts} texts"


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--work", type=Path, default=Path("response-loss-runs"), help="where data and runs lie")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="of the trainings")
    parser.add_argument("--documents", type=int, default=240, help="of the corpus; 240 are the demo's")
    parser.add_argument("--items", type=int, default=200, help="for each tool, half of them with new frames")
    parser.add_argument("--steps", type=int, default=240, help="of training, with three texts each")
    parser.add_argument("--texts", type=int, default=TEXTS, help="new ones, on which perplexity is measured")
    parser.add_argument("--out", type=Path, default=Path("docs"), help="folder of response-loss.json and .md")
    given = parser.parse_args()
    sizes = Sizes(given.documents, given.items, given.steps)
    given.out.mkdir(parents=True, exist_ok=True)  # before hours of work
    path = given.out / "response-loss.json"
    name = f"{sizes.documents}-{sizes.items}-{sizes.steps}-{given.texts}"  # other sizes are other work
    folder = given.work.resolve() / name
    for seed in given.seeds:
        measured = measure(folder, sizes, given.texts, seed)
        progress(f"seed {seed}: measured")
        figures = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        figures.setdefault(size_name(sizes, given.texts), {})[str(seed)] = measured
        path.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        (given.out / "response-loss.md").write_text(report(figures), encoding="utf-8")
    say(report(figures))
    if given.json:
        print_json(figures)


if __name__ == "__main__":
    main()
