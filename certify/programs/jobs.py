"""Answers the jobs that `certify` gives to a program of another environment, with the standard library alone.

A job is a dict: `file`, `tokenizer` (a folder), `how` (what the program is to do) and what else it needs.
"""

import json
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

_COLUMNS = ("input_ids", "attention_mask", "labels")

Answer = Callable[[dict[str, Any]], dict[str, Any]]  # a job -> {"rows": [...], and what else was seen}


def answer_jobs(package: str, answer: Answer) -> None:
    """Answer the jobs of the file that is the first argument; write the answers to the second, with versions.

    What `answer` raises is that job's error: a loader may raise anything.
    """
    jobs, out = Path(sys.argv[1]), Path(sys.argv[2])
    answers = []
    for job in json.loads(jobs.read_text(encoding="utf-8")):
        sys.stderr.write(f"{package}: {job['how']} {job['file']} {job['tokenizer']}\n")
        try:
            answers.append({"error": "", **answer(job)})
        except Exception as exc:  # noqa: BLE001
            answers.append({"error": f"{type(exc).__name__}: {exc}", "rows": []})
    versions = {name: version(name) for name in (package, "transformers")}
    out.write_text(json.dumps({"versions": versions, "answers": answers}), encoding="utf-8")


def collated_rows(rows: Any, collate: Callable[[list[Any]], Any]) -> list[dict[str, list[int]]]:
    """Return rows of tokens as a collator pads them, four at a time, in their order."""
    features = [{name: row[name] for name in _COLUMNS} for row in rows]
    batches = [features[at : at + 4] for at in range(0, len(features), 4)]
    return [row for batch in batches for row in rows_of_batch(collate(batch))]


def rows_of_batch(batch: Any) -> list[dict[str, list[int]]]:
    columns = [batch[name].tolist() for name in _COLUMNS]
    return [dict(zip(_COLUMNS, row, strict=True)) for row in zip(*columns, strict=True)]
