"""Notes for the user before a flow runs, one line each, on settings that are valid but easily overlooked.

The flow logs them (so they are in Prefect's pages and on the terminal), and `plan` shows them. They change nothing.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from flows.build_dataset.parameters import BuildParameters
from tasks.specs.build_spec import BuildSpec
from toolformer_core.annotate.ingest import other_files
from toolformer_core.config import CHAIN_STARTS
from toolformer_core.embedded import CORPUS
from toolformer_core.folders import not_a_file
from toolformer_core.lm.reference import ModelRef

_LISTED = 3  # files that are listed by name; the others are counted


def notes_on_build(p: BuildParameters) -> list[str]:
    """Return notes on files of the corpus that are not read, and on tools that answer from invented data."""
    notes = []
    others = other_files(p.corpus)
    flaws = {file: flaw for file in others if (flaw := not_a_file(file))}
    kinds = {file: file.suffix.lower() or "no extension" for file in others if file not in flaws}
    for what, entries in (
        ("files of the corpus are of other kinds", kinds),
        ("names in the corpus are no files", flaws),
    ):
        if entries:
            counted = sorted(Counter(entries.values()).items(), key=lambda kind: (-kind[1], kind[0]))
            counts = ", ".join(f"{kind} {n:,}" for kind, n in counted)
            names = ", ".join(file.relative_to(p.corpus).as_posix() for file in [*entries][:_LISTED])
            more = f" and {len(entries) - _LISTED:,} more" if len(entries) > _LISTED else ""
            notes.append(f"{len(entries):,} {what} and are not read ({counts}): {names}{more}")
    named = dict.fromkeys(name.strip().lower() for name in (*p.tools, *p.tool))
    invented = [tool for tool in named if _invented(tool, p)]
    if invented and Path(p.corpus).absolute() != CORPUS:
        who = f"{' and '.join(invented)} {'answers' if len(invented) == 1 else 'answer'}"
        notes.append(
            f"{who} from the small invented world that comes with the program, which knows nothing of your corpus: "
            "name your own data with --passages (wikisearch, qa) and --translator (mt)"
        )
    return notes


def notes_on_chains(spec: BuildSpec, documents: int) -> list[str]:
    """Return what chains cost at most, in texts read and calls drawn; nothing where there are none.

    Args:
        spec: the build.
        documents: of the corpus.
    """
    chains = spec.chains
    if chains.depth == 1:
        return []
    starts = documents * CHAIN_STARTS
    read = starts * len(spec.tools)
    drawn = starts * sum(config.draws for config in spec.sample.values())
    depths = "at the second depth" if chains.depth == 2 else f"at each depth from the second to number {chains.depth}"
    return [
        f"--chain-depth {chains.depth}: {depths} at most {CHAIN_STARTS} starts in each of {documents:,} documents, so "
        f"{read:,} texts read and {drawn:,} calls drawn by {len(spec.tools)} tools"
    ]


def _invented(tool: str, p: BuildParameters) -> bool:
    if tool in ("wikisearch", "qa"):
        return p.passages is None
    return tool == "mt" and p.translator is None


def notes_on_training(model: str, annotated_by: str, scored_by: str = "") -> list[str]:
    """Return a note if a model is finetuned on calls that another model scored.

    Args:
        model: the model that is finetuned, as the user named it.
        annotated_by: the model that made the dataset, as the user named it.
        scored_by: the model that scored its calls, if that was another one.
    """
    if _identity(model) == _identity(scored_by or annotated_by):
        return []
    if scored_by:
        return [
            f"the calls of this dataset were sampled by {annotated_by} and scored by {scored_by}, and {model} is "
            "finetuned on them: what helps the one that scores need not help the other; build with --score-model to "
            "score with the model that is finetuned"
        ]
    return [
        f"the calls of this dataset were sampled and scored by {annotated_by}, and {model} is finetuned on them: what "
        "helps the one need not help the other; build with --model to annotate with the model that is finetuned"
    ]


def _identity(model: str) -> str:
    """Return a folder's real path; `embedded` and hub names unchanged."""
    named = ModelRef.of(model)
    return str(named.path.resolve()) if named.kind in ("folder", "gguf") else model
