"""`build --relevant-share`: what it saves in LM tokens, and what it loses of the right calls.

    python benchmarks/tools/relevance.py --shares 0.75 0.5 [--encoder PATH] [--json]

Builds C* from the embedded small world once without a share and once with each, all in one data folder, so that equal
work is done once. A kept call is right if it stands where a gold call of its tool stands. A blind choice of documents
would leave of the right calls the same share as of the documents.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tasks.environment import prepare_environment

prepare_environment()


def build(data: Path, corpus: Path, share: float, encoder: str) -> dict[str, dict[str, float]]:
    """Build C* and return, per tool: documents tried, LM tokens of all stages, kept calls and right ones."""
    from flows.build_dataset.flow import run_build
    from flows.build_dataset.parameters import BuildParameters
    from toolformer_core.diagnose.gold import read_gold
    from warehouse.queries import rows_of

    given: dict[str, Any] = {} if share == 1 else {"relevant_share": share, "encoder": encoder}
    result = run_build(BuildParameters(corpus=str(corpus), data=str(data), shard_documents=60, **given))
    snapshot = Path(result.snapshot)
    gold = {(c.doc_id, c.tool, c.position) for calls in read_gold().calls.values() for c in calls}
    costs = rows_of(snapshot, "SELECT tool, sum(lm_tokens) AS n FROM costs WHERE tool <> '' GROUP BY tool")
    kept = rows_of(snapshot, 'SELECT doc_id, tool, "position" FROM kept_calls')
    tried = rows_of(
        snapshot,
        """SELECT c.tool, sum(b.rows) AS n FROM facts.commits AS c JOIN facts.current USING (commit_id)
        JOIN facts.balances AS b USING (commit_id)
        WHERE c.stage = 'sample' AND b.unit = 'documents' AND b.kind = 'in' GROUP BY c.tool""",
    )
    out = {row["tool"]: {"documents": 0.0, "lm_tokens": float(row["n"]), "kept": 0.0, "right": 0.0} for row in costs}
    for row in tried:
        out[row["tool"]]["documents"] = float(row["n"])
    for row in kept:
        out[row["tool"]]["kept"] += 1
        out[row["tool"]]["right"] += (row["doc_id"], row["tool"], row["position"]) in gold
    return out


def compared(whole: dict[str, dict[str, float]], less: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Return, per tool and in all, the shares of documents, LM tokens and right calls that are left."""
    names = ("documents", "lm_tokens", "right")
    total = {
        key: {n: sum(f[n] for f in figures.values()) for n in names} for key, figures in (("w", whole), ("l", less))
    }
    pairs = {tool: (whole[tool], less[tool]) for tool in whole} | {"all": (total["w"], total["l"])}
    return {tool: {n: round(b[n] / a[n], 3) if a[n] else 1.0 for n in names} for tool, (a, b) in pairs.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.75, 0.5])
    parser.add_argument("--encoder", default="", help="folder of an encoder; default: the model's hidden states")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    from toolformer_core.embedded import CORPUS

    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        whole = build(data, CORPUS, 1, "")
        shares = {str(share): compared(whole, build(data, CORPUS, share, asked.encoder)) for share in asked.shares}
    figures = {"encoder": Path(asked.encoder).name or "hidden states", "without": whole, "left": shares}
    lines = [f"{'share':>6} {'tool':12} {'documents':>10} {'LM tokens':>10} {'right calls':>12}"]
    for share, tools in shares.items():
        lines += [
            f"{share:>6} {tool:12} {left['documents']:10.2f} {left['lm_tokens']:10.2f} {left['right']:12.2f}"
            for tool, left in tools.items()
        ]
    print("\n".join([*lines, *([json.dumps(figures)] if asked.json else [])]))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
