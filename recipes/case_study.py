"""Write the page of the case study from what its recipe left in a data folder.

    python -m recipes.case_study recipes/smollm2.yaml --data case-study/smollm2-data --gold case-study/gsm8k \
        --out docs/case-study.md --context 0

The page holds the recipe's results, the calls of its last build against GSM8K's own, twenty kept calls of every build
and ten dropped ones in the order of a digest, the costs, and the recipe itself. Nothing in it is written by hand.
"""

import argparse
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.levers import THRESHOLDS, figures, gold_texts, query, scored_calls
from flows.recipe.flow import results_folder
from flows.recipe.read import read_recipe
from flows.report.tables import markdown_table
from tasks.shards.cpu_time import CPU_SECONDS, MODEL_CPU_SECONDS
from toolformer_core.config import TOOL_NAMES
from toolformer_core.evaluate.figures import TABLES
from toolformer_core.records import digest_of

_AGAINST_GOLD = """\
## Calls against GSM8K's own

Of the last build, by filtering threshold in nats: the calls with at least this gain, the best at each place."""
_PAPER = ("gpt-j", "gpt-j + cc", "toolformer (disabled)", "toolformer")


def _calls(rows: Iterable[Mapping[str, Any]], number: int, around: int) -> str:
    """Return some of the calls as lines of a list, chosen and ordered by a digest."""
    chosen = sorted(rows, key=lambda row: digest_of("case study", row["doc_id"], str(row["position"]), row["input"]))
    return "\n".join(_line(row, around) for row in chosen[:number])


def _line(row: Mapping[str, Any], around: int) -> str:
    text, start, end = row["text"], row["start"], row["end"]
    call = f"`[{TOOL_NAMES.get(row['tool'], row['tool'])}({row['input']}) -> {row['response']}]`"
    if not around:
        return f"- {row['gain']:+.2f} {call} in {row['url'] or 'document ' + row['doc_id'][:8]}"
    before, after = text[max(0, start - around) : start].split("\n")[-1], text[end : end + around].split("\n")[0]
    return f"- {row['gain']:+.2f} …{before.rstrip()} {call}{after}…"


def _kept(data: Path, around: int) -> list[str]:
    rows = query(
        data,
        "SELECT dataset, doc_id, url, e.text, unnest(calls, recursive := true) FROM dataset_examples e "
        "LEFT JOIN documents USING (doc_id) SEMI JOIN (SELECT name AS dataset, arg_max(version, created) AS version "
        "FROM datasets GROUP BY name) USING (dataset, version)",
    )
    named = dict.fromkeys(row["dataset"] for row in rows)
    return [f"### {name}\n\n{_calls([r for r in rows if r['dataset'] == name], 10, around)}" for name in sorted(named)]


def _against_gold(data: Path, gold: Path) -> list[list[str]]:
    """Return by threshold: kept calls, share with the number they stand before, with a gold value, recall, of gold.

    Nothing for a build of other texts than GSM8K's.
    """
    read = {row["url"] for row in query(data, "SELECT url FROM documents")}
    texts, calls = gold_texts(gold, 0, len(read), only=read)
    if not texts:
        return []
    rows = []
    for tau_f in THRESHOLDS:
        n = figures(scored_calls(data), calls, texts, tau_f)
        kept = max(1, n["kept"])
        shares = (n["number"] / kept, n["right"] / kept, n["right"] / max(1, n["gold"]))
        rows.append([f"{tau_f:g}", f"{n['kept']:,}", *(f"{share:.2f}" for share in shares), f"{n['gold']:,}"])
    return rows


def _costs(data: Path) -> list[list[str]]:
    counter = "coalesce((counters::JSON ->> '{}')::DOUBLE, 0)"
    cpu, model, tokens = map(counter.format, (CPU_SECONDS, MODEL_CPU_SECONDS, "lm_tokens"))
    rows = query(
        data,
        f"SELECT stage, sum(seconds) AS seconds, sum({cpu} + {model}) AS cpu, sum({tokens}) AS tokens "
        "FROM shards GROUP BY stage ORDER BY min(created)",
    )
    [trained] = query(data, "SELECT sum(seconds) AS seconds FROM trainings")
    tables = [
        [
            row["stage"],
            *(f"{(row[name] or 0) / 3600:,.2f}" for name in ("seconds", "cpu")),
            f"{row['tokens'] or 0:,.0f}",
        ]
        for row in rows
    ]
    return [*tables, ["finetune", f"{(trained['seconds'] or 0) / 3600:,.2f}", "", ""]]


def _machine() -> str:
    if torch.cuda.is_available():
        return f"one {torch.cuda.get_device_name()}"
    return f"{len(os.sched_getaffinity(0))} cores of a {platform.machine()} processor"


def page(recipe: Path, data: Path, gold: Path, around: int = 90) -> str:
    """Return the page in Markdown, of a recipe's file and the data folder in which it was run.

    `gold` holds what `recipes/gsm8k.py` writes. `around` characters of the text are shown in front of a call and after
    it; 0: its document's address instead.
    """
    steps = read_recipe(str(recipe))
    results = (results_folder(steps, str(data)) / "results.md").read_text("utf-8")
    dropped = query(
        data,
        "SELECT doc_id, url, d.text, s.tool, position, position AS start, position AS end, input, response, gain "
        "FROM best_calls s JOIN documents d USING (doc_id) ANTI JOIN kept_calls USING (doc_id, position, input)",
    )
    gold_names = ["tau_f", "kept", "give their number", "gold value at its place", "recall of gold", "gold calls"]
    paper = [[model, *(f"{TABLES[4][task][model]:g}" for task in ("asdiv", "svamp", "mawps"))] for model in _PAPER]
    parts: Sequence[str] = (
        "# A real model on real text",
        f"Written by `python -m recipes.case_study {recipe} --data {data} --gold {gold} --context {around}` on "
        f"{_machine()}, from what "
        f"`toolformer run {recipe} --data {data}` left there.",
        "## Results of the recipe",
        "No item is known, that is shares 13 words in a row with a text of the training, where not said otherwise.",
        "\n".join(f"#{line}" if line.startswith("#") else line for line in _shortened(results)[1:]).strip(),
        *(
            [_AGAINST_GOLD, markdown_table(gold_names, against_gold)]
            if (against_gold := _against_gold(data, gold))
            else []
        ),
        "## Kept calls, as they are",
        "Ten of each build, with their gain in nats.",
        *_kept(data, around),
        "## Ten dropped calls of the last build",
        _calls(dropped, 10, around),
        "## Cost",
        "Of all that lies in the folder, runs that were killed and resumed included.",
        markdown_table(["stage", "hours of its tasks", "CPU hours", "LM tokens"], _costs(data)),
        "What helped and what did not on the way here: [a real model](real-model.md), [what was tried](tried.md).",
        "## The paper's figures",
        "Percent right, of models with 6.7 billion weights (Toolformer, Table 4); the smallest model that the paper "
        "found to gain by tools has 775 million.",
        markdown_table(["model", "ASDiv", "SVAMP", "MAWPS"], paper),
    )
    return "\n\n".join(parts) + "\n"


def _shortened(text: str) -> list[str]:
    """Return a page's lines without pictures, legends that stand above, and lines on arms of which no item is known."""
    lines: list[str] = []
    for line in text.splitlines():
        unknown = line.find(": known items (") > 0 and "): 0; " in line
        if not (line.startswith("![") or unknown or (line.startswith("calls: ") and line in lines)):
            lines.append(line)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--data", type=Path, required=True, help="data folder that the recipe was run in")
    parser.add_argument("--gold", type=Path, required=True, help="folder with corpus.jsonl and gold.jsonl")
    parser.add_argument("--out", type=Path, required=True, help="page to write")
    parser.add_argument("--context", type=int, default=90, help="characters shown around a call; 0: where it stands")
    given = parser.parse_args()
    given.out.write_text(page(given.recipe, given.data, given.gold, given.context), "utf-8")
    print(given.out)


if __name__ == "__main__":
    main()
