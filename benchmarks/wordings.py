"""What each wording of the annotation prompts gives, against known truth.

    python benchmarks/wordings.py [--model embedded] [--documents 24] [--tools wikisearch,qa] [--work FOLDER] [--json]

Texts, gold calls and shares are those of `small_world.py`; `toolformer diagnose --wordings all` prints the same figures
of texts of your own. With `--work` every finished wording is written down there, and not measured again. For the
embedded model some 40 minutes of one core.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from report import parser_of, print_json, progress, say
from small_world import FRAMES, gold_texts

from toolformer_core.annotate.tool_prompt import prompts_for
from toolformer_core.config import TOOL_NAMES, check_tools
from toolformer_core.diagnose.run import DiagnoseConfig
from toolformer_core.diagnose.wordings import measure_wordings
from toolformer_core.lm.load import load_model

_COLUMNS = ("well_formed", "executes", "equals_gold", "kept", "precision", "recall")


def rows_of(model: str, documents: int, tools: Sequence[str], work: Path) -> list[dict[str, Any]]:
    """Return a row for every kind of frames, tool and wording; those in `work` are read from there."""
    done = work / "wordings.jsonl"
    rows = [json.loads(line) for line in done.read_text("utf-8").splitlines()] if done.is_file() else []
    known = {(row["frames"], row["tool"], row["wording"]) for row in rows}
    lm, config = load_model(model), DiagnoseConfig(documents=documents)
    given = {frames: gold_texts(work / f"texts-{frames}", held_out, documents) for frames, held_out in FRAMES.items()}
    for key in tools:
        for frames, (built, texts) in given.items():
            for prompt in prompts_for(built[key], None):
                if (frames, key, prompt.wording) in known:
                    continue
                for one in measure_wordings(lm, {key: built[key]}, texts, config, (prompt.wording,)):
                    rows.append({"frames": frames, **asdict(one)})
                    with done.open("a", encoding="utf-8") as stream:
                        stream.write(json.dumps(rows[-1]) + "\n")
                    progress(f"{frames} {key} {prompt.wording}")
    return sorted(
        rows, key=lambda r: (list(TOOL_NAMES).index(r["tool"]), r["wording"], list(FRAMES).index(r["frames"]))
    )


def table_of(rows: Sequence[dict[str, Any]]) -> str:
    """Return the rows as a Markdown table: of each figure that of known frames, then that of new ones."""
    cells: dict[tuple[str, int], dict[str, dict[str, Any]]] = {}
    for row in rows:
        cells.setdefault((row["tool"], row["wording"]), {})[row["frames"]] = row
    lines = ["| tool | wording | " + " | ".join(name.replace("_", " ") for name in _COLUMNS) + " |"]
    lines.append("|---|---|" + "---|" * len(_COLUMNS))
    for (tool, wording), by_frames in cells.items():
        figures = [" / ".join(_text(by_frames[f][name]) for f in FRAMES if f in by_frames) for name in _COLUMNS]
        lines.append(f"| {tool} | {wording} | " + " | ".join(figures) + " |")
    return "\n".join(lines)


def _text(value: float | int | None) -> str:
    return "-" if value is None else str(value) if isinstance(value, int) else f"{value:.2f}"


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--model", default="embedded", help="'embedded', a folder, or a hub name")
    parser.add_argument("--documents", type=int, default=24, help="per tool and kind of frames")
    parser.add_argument("--tools", default=",".join(TOOL_NAMES), help="separated by commas")
    parser.add_argument("--work", type=Path, help="folder for what is finished (default: nothing is written down)")
    given = parser.parse_args()
    tools = check_tools(given.tools.split(","))
    with tempfile.TemporaryDirectory() as folder:
        work = given.work or Path(folder)
        work.mkdir(parents=True, exist_ok=True)
        rows = rows_of(given.model, given.documents, tools, work)
    if given.json:
        print_json(rows)
    else:
        say(table_of(rows))


if __name__ == "__main__":
    main()
