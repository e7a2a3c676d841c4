"""The Markdown summary of a build: where its dataset comes from, what it holds, and how much the calls help.

Figures are plain records from the warehouse's queries and the dataset's card; this module reads and writes nothing. The
graph is Mermaid, which Prefect's pages draw; the histograms are characters, so that they need no server.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from flows.artifacts import short
from flows.commands import sql_command
from warehouse.commits import Dataset
from warehouse.queries import GainBin, StageBalance

_BAR = 40  # characters of the longest


def build_summary(
    card: str,
    dataset: Dataset,
    balances: Sequence[StageBalance],
    gains: Sequence[GainBin],
    snapshot: str,
    mlflow: str,
    nothing_kept: Sequence[str] = (),
) -> str:
    """Return the summary of a build: the dataset's card, its lineage, its gains, and where to find more.

    Args:
        card: see `flows.build_dataset.versions`: thresholds, and the yield per tool and threshold.
        snapshot: path of the snapshot.
        mlflow: the address or the id of its run in MLflow; "" if it has none.
        nothing_kept: lines of `NothingKept`, if C* is empty.
    """
    lines = [
        card.rstrip(),
        "",
        *([*(f"- {line}" for line in nothing_kept), ""] if nothing_kept else []),
        "## Lineage",
        "",
        "Rows in and kept; a reason for every row that was not stands in the view `drops`.",
        "",
        "```mermaid",
        lineage_graph(dataset, balances),
        "```",
        "",
        "## How much the calls help",
        "",
        "Scored calls by L- minus L+, in nats; `>` marks what lies wholly at or above the tool's threshold.",
        "",
        "```",
        histograms(gains, dataset.thresholds),
        "```",
        "",
        "## Ask on",
        "",
        f"- `{sql_command(snapshot, 'FROM yield_by_threshold')}`",
    ]
    lines += [f"- MLflow: {mlflow}"] if mlflow else []
    return "\n".join(lines) + "\n"


def lineage_graph(dataset: Dataset, balances: Iterable[StageBalance]) -> str:
    """Return a Mermaid graph from the corpus through every stage and tool to the dataset, with rows in and kept."""
    counts: dict[tuple[str, str], list[str]] = defaultdict(list)  # in the order of the stages
    for b in balances:
        counts[b.stage, b.tool].append(f"{b.unit} {b.rows_in:,} → {b.kept:,}")
    examples = sum(file.rows for file in dataset.files)
    lines = ["flowchart LR", f'    corpus[("{_label(short(dataset.corpus))}")]']
    for (stage, tool), rows in counts.items():
        lines.append(f'    {_id(stage, tool)}["{f"{stage} {tool}".strip()}<br/>{"<br/>".join(rows)}"]')
    lines.append(f'    dataset[("{dataset.name}@{dataset.version}<br/>{examples:,} examples")]')
    for tool in dict.fromkeys(tool for _, tool in counts if tool):
        path = ["corpus", *(_id(*key) for key in counts if key[1] in ("", tool)), "dataset"]
        lines += [f"    {one} --> {other}" for one, other in itertools.pairwise(path)]
    return "\n".join(dict.fromkeys(lines))


def _id(stage: str, tool: str) -> str:
    return f"{stage}_{tool}".strip("_")


def _label(text: str) -> str:
    """Escape quotes and angle brackets for Mermaid."""
    return text.replace('"', "'").replace("<", "‹").replace(">", "›")


def histograms(gains: Iterable[GainBin], thresholds: Mapping[str, float]) -> str:
    """Return one histogram per tool, drawn with characters, one line per bin.

    Args:
        gains: sorted by tool and gain.
        thresholds: tool -> tau_f, in nats.
    """
    by_tool: dict[str, list[GainBin]] = defaultdict(list)
    for one in gains:
        by_tool[one.tool].append(one)
    blocks = []
    for tool, bins in by_tool.items():
        longest = max(b.calls for b in bins)
        tau_f = thresholds.get(tool)
        lines = [f"{tool}: {sum(b.calls for b in bins):,} calls" + ("" if tau_f is None else f", tau_f {tau_f:g}")]
        for b in bins:
            mark = ">" if tau_f is not None and b.low is not None and b.low >= tau_f else " "
            lines.append(f"{mark} {b.label:>13} {'█' * -(-_BAR * b.calls // longest):<{_BAR}} {b.calls:,}".rstrip())
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) or "No call was scored."
