"""The Markdown summary of a build: what its dataset holds, what became of the rows, and how much the calls help.

Figures are plain records from the warehouse's queries and the dataset's card; this module reads and writes nothing.
"""

from collections.abc import Sequence

from flows.report.commands import sql_command
from flows.report.tables import markdown_table
from warehouse.queries import StageBalance


def build_summary(
    card: str,
    balances: Sequence[StageBalance],
    gains: str,
    snapshot: str,
    mlflow: str,
    nothing_kept: Sequence[str] = (),
) -> str:
    """Return the summary of a build: the dataset's card, its rows by stage, its gains, and where to find more.

    Args:
        card: see `flows.build_dataset.versions`: thresholds, and the yield per tool and threshold.
        balances: in the order of the stages.
        gains: a picture of the scored calls by gain, in Markdown; "": no call was scored.
        snapshot: path of the snapshot.
        mlflow: the address or the id of its run in MLflow; "" if it has none.
        nothing_kept: lines of `NothingKept`, if C* is empty.
    """
    rows = [[b.stage, b.tool, b.unit, f"{b.rows_in:,}", f"{b.kept:,}"] for b in balances]
    parts = [
        card.rstrip(),
        "\n".join(f"- {line}" for line in nothing_kept),
        "## Rows by stage\n\nA reason for every row that was not kept stands in the view `drops`.",
        markdown_table(["stage", "tool", "unit", "in", "kept"], rows),
        "## How much the calls help",
        gains or "No call was scored.",
        "## Look further",
        f"- `{sql_command(snapshot, 'FROM yield_by_threshold')}`" + (f"\n- MLflow: {mlflow}" if mlflow else ""),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"
