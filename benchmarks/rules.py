"""What the two rules on where calls stand change in what is kept, against known truth.

    python benchmarks/rules.py [--model embedded] [--documents 24] [--json]

    paper   a call may stand in front of every token, and every call that passes is kept
    words   a call never splits a word or a number
    both    and of calls of one tool with the same input within five tokens of each other one is kept: the default

Texts, gold calls and shares are those of `small_world.py`. Ten minutes for the embedded model on two busy cores.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from small_world import FRAMES, gold_texts

from toolformer_core.config import tau_f_for
from toolformer_core.diagnose.figures import figures_of, threshold_name
from toolformer_core.diagnose.run import DiagnoseConfig, measure
from toolformer_core.lm.load import load_model

_SHARES = ("precision_anywhere", "precision_as_good", "recall")


def figures(model: str, documents: int) -> list[dict[str, Any]]:
    """Return a row for every kind of frames, tool and choice of rules."""
    lm, rows = load_model(model), []
    for frames, held_out in FRAMES.items():
        with tempfile.TemporaryDirectory() as folder:
            tools, texts = gold_texts(Path(folder), held_out, documents)
            for inside_words in (True, False):
                config = DiagnoseConfig(documents=documents, inside_words=inside_words)
                for one in measure(lm, tools, texts, config):
                    seen, tau_f = one.observed, tau_f_for(one.figures.tool)
                    sys.stderr.write(f"{frames} {seen.tool}" + "\n")
                    repeats = {"paper": True} if inside_words else {"words": True, "both": False}
                    for rules, keep in repeats.items():
                        kept = figures_of(seen, tau_f, keep_repeats=keep).kept[threshold_name(tau_f)]
                        shares = {name: getattr(kept, name) for name in _SHARES}
                        rows.append({"frames": frames, "tool": seen.tool, "rules": rules, "kept": kept.calls, **shares})
    return sorted(rows, key=lambda row: list(FRAMES).index(row["frames"]))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded", help="'embedded', a folder, or a hub name")
    parser.add_argument("--documents", type=int, default=24, help="per tool and kind of frames")
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    given = parser.parse_args()
    rows = figures(given.model, given.documents)
    if given.json:
        _say(json.dumps(rows))
        return
    _say("| frames | tool | rules | kept | right call | also at the right place | recall |")
    _say("| --- | --- | --- | --- | --- | --- | --- |")
    for row in rows:
        shares = " | ".join("-" if row[name] is None else f"{row[name]:.2f}" for name in _SHARES)
        _say(f"| {row['frames']} | {row['tool']} | {row['rules']} | {row['kept']} | {shares} |")


if __name__ == "__main__":
    main()
