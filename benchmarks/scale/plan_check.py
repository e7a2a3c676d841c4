"""Does `toolformer plan --documents` tell what a build will cost? Builds of three sizes, planned from the smallest.

    python benchmarks/scale/plan_check.py [--sizes 60,120,240] [--keep FOLDER] [--json]

Each size is built anew, by the command `toolformer build`, from the embedded corpus with the embedded model and one
thread. The first build is the sample: from its commits alone the others are planned, and their own commits then say
what they took. A plan counts as right within 20 %.

    LM tokens     that passed through the model
    tool calls    of all tools, retries included
    CPU seconds   of shards and of the model's thread (not of Prefect's server, nor of the start)

With --keep the data folders stay, e.g. for `simulate.py --against`; folders that are complete are not built again.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.report import parser_of, print_json, progress, say
from flows.build_dataset.parameters import BuildParameters
from flows.cost.of_build import cost_of_build
from flows.cost.sample import Sample, read_sample
from toolformer_core.embedded import CORPUS

ROOT = Path(__file__).resolve().parents[2]
_WITHIN = 0.2
_TOOLS = ("calculator", "calendar", "qa")
_SETTINGS = {"shard_documents": 20, "top_k": 3, "draws": 2, "workers": 2}
_FIGURES = ("LM tokens", "tool calls", "CPU seconds")


def parameters(documents: int, folder: Path) -> BuildParameters:
    """Return what a build of so many documents is asked for."""
    settings: dict[str, Any] = {**_SETTINGS, "tools": list(_TOOLS), "limit": documents}
    return BuildParameters(corpus=str(CORPUS), data=str(folder), **settings)


def build(documents: int, folder: Path) -> None:
    """Build so many documents into a folder, in a process of its own with one thread for the model."""
    options = {"corpus": CORPUS, "data": folder, "limit": documents, "tools": ",".join(_TOOLS), **_SETTINGS}
    words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "cli.main", "build", *words, "--json"]
    subprocess.run(command, check=True, cwd=folder.parent, env=environment, stdout=subprocess.DEVNULL)


def measured(sample: Sample) -> tuple[float, float, float]:
    """Return what a build took by its commits: the figures in the order of `_FIGURES`."""
    totals = sample.totals.values()
    return (
        sum(t.lm_tokens for t in totals),
        sum(t.counters.get("calls", 0) for t in totals),
        sum(t.own_cpu + t.model_cpu for t in totals),
    )


def planned(documents: int, folder: Path, sample_folder: Path) -> tuple[float, float, float]:
    """Return what the plan says, from the sample build alone."""
    plan = cost_of_build(parameters(documents, folder), documents, sample=str(sample_folder))
    return plan.sum("lm_tokens"), plan.sum("tool_calls"), 3600 * plan.sum("cpu_hours")


def compare(sizes: list[int], folder: Path) -> list[dict[str, Any]]:
    """Build all sizes that the folder does not hold yet; return a row for each figure of each size but the first."""
    folders = {size: folder / f"documents-{size}" for size in sizes}
    for size, data in folders.items():
        if not data.is_dir() or read_sample(str(data)) is None:
            progress(f"building {size} documents ...")
            build(size, data)
    rows = []
    for size in sizes[1:]:
        real = read_sample(str(folders[size]))
        if real is None:
            raise SystemExit(f"{folders[size]} holds no finished build")
        figures = zip(_FIGURES, planned(size, folders[size], folders[sizes[0]]), measured(real), strict=True)
        for name, plan, truth in figures:
            off = plan / truth - 1 if truth else 0.0
            rows.append({"documents": size, "figure": name, "planned": plan, "measured": truth, "off": off})
    return rows


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--sizes", default="60,120,240", help="documents, the sample first (at most 240)")
    parser.add_argument("--keep", type=Path, help="folder for the data folders, which then stay")
    args = parser.parse_args()
    sizes = [int(size) for size in args.sizes.split(",")]
    with tempfile.TemporaryDirectory(prefix="plan-check-") as temporary:
        folder = Path(temporary) if args.keep is None else args.keep.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        rows = compare(sizes, folder)
    say(f"planned from a build of {sizes[0]} documents")
    for row in rows:
        say(
            f"{row['documents']:>6} {row['figure']:<12} planned {row['planned']:>12,.1f}  measured "
            f"{row['measured']:>12,.1f}  {row['off']:+7.1%}"
        )
    worst = max(abs(row["off"]) for row in rows)
    say(f"furthest off: {worst:.1%} (aim: {_WITHIN:.0%})")
    if args.json:
        print_json({"rows": rows, "worst": worst, "within": worst <= _WITHIN})


if __name__ == "__main__":
    main()
