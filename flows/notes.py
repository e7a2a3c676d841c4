"""What a user should know of a flow before it runs, though nothing is wrong: one line each.

Notes are logged by the flow (so they are in Prefect's pages and on the terminal) and shown by `plan`. They change
nothing and stop nothing.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from flows.parameters import BuildParameters
from toolformer_core.annotate.ingest import other_files
from toolformer_core.smallworld.embedded import CORPUS

__all__ = ["notes_on_build", "notes_on_training"]

_NAMED = 3  # files that are named, of those that are only counted


def notes_on_build(p: BuildParameters) -> list[str]:
    """Return what a build leaves out of its corpus, and which of its tools answer from invented data."""
    notes = []
    if others := other_files(p.corpus):
        kinds = Counter(file.suffix.lower() or "no extension" for file in others)
        counts = ", ".join(f"{kind} {n:,}" for kind, n in sorted(kinds.items(), key=lambda kind: (-kind[1], kind[0])))
        names = ", ".join(file.relative_to(p.corpus).as_posix() for file in others[:_NAMED])
        more = f" and {len(others) - _NAMED:,} more" if len(others) > _NAMED else ""
        notes.append(
            f"{len(others):,} files of the corpus are of other kinds and are not read ({counts}): {names}{more}"
        )
    invented = [tool for tool in p.tools if _invented(tool, p)]
    if invented and Path(p.corpus).absolute() != CORPUS:
        who = f"{' and '.join(invented)} {'answers' if len(invented) == 1 else 'answer'}"
        notes.append(
            f"{who} from the small invented world that comes with the program, which knows nothing of your corpus: "
            "name your own data with --passages (wikisearch, qa) and --phrases (mt)"
        )
    return notes


def _invented(tool: str, p: BuildParameters) -> bool:
    return (tool in ("wikisearch", "qa") and p.passages is None) or (tool == "mt" and p.phrases is None)


def notes_on_training(model: str, annotated_by: str) -> list[str]:
    """Return whether a model is finetuned on calls that another model sampled and scored.

    Args:
        model: the model that is finetuned, as its user names it.
        annotated_by: the model that made the dataset, as its user named it.
    """
    if _place(model) == _place(annotated_by):
        return []
    return [
        f"the calls of this dataset were sampled and scored by {annotated_by}, and {model} is finetuned on them: what "
        "helps the one need not help the other; build with --model to annotate with the model that is finetuned"
    ]


def _place(model: str) -> str:
    """Return a folder's real path; `embedded` and names on the hub as they are."""
    folder = Path(model).expanduser()
    return str(folder.resolve()) if model != "embedded" and folder.exists() else model
