"""The papers' own results, shown beside ours: Toolformer's Tables 2 to 10 and §4.2 (GPT-J, 6.7 B), GEAR's Tables 2 to
4. They stand in `figures.toml`, and nothing computes with them.
"""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

Figures = Mapping[str, float]

_PAPERS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
_GEAR = _PAPERS["gear"]


def _by_model(models: Sequence[str], tasks: Mapping[str, Sequence[float]]) -> dict[str, Figures]:
    return {task: dict(zip(models, values, strict=True)) for task, values in tasks.items()}


# Number of the table -> task -> model -> result.
TABLES: Mapping[int, Mapping[str, Figures]] = {
    int(number): _by_model(_PAPERS["models"], tasks) for number, tasks in _PAPERS["tables"].items()
}
# Table 8: perplexity, tools disabled; by text and model.
PERPLEXITY: Mapping[str, Figures] = _by_model(_PAPERS["models"][:3], _PAPERS["perplexity"])
# Table 9: task -> k -> (accuracy on all, with a call, without one, percent of items with a call); None: no such item.
DECODING: Mapping[str, Mapping[int, tuple[float | None, ...]]] = {
    task: {int(k): tuple(None if value == "-" else value for value in values) for k, values in rows.items()}
    for task, rows in _PAPERS["decoding"].items()
}
# §4.2: group, or task -> tool ("other": any other, "none": no call) -> percent of items for which Toolformer called it.
CALL_RATES: Mapping[str, Mapping[str, float | str]] = _PAPERS["call_rates"]
# Table 2: tool -> tau_f -> examples in C*.
EXAMPLES_BY_THRESHOLD: Mapping[str, Mapping[float, int]] = {
    tool: {float(tau_f): examples for tau_f, examples in row.items()}
    for tool, row in _PAPERS["examples_by_threshold"].items()
}
GAINS: Sequence[tuple[str, float]] = [tuple(row) for row in _PAPERS["gains"]]  # Table 10: tool, L- - L+ in nats
GROUPS: Mapping[str, int] = _PAPERS["groups"]  # of tasks in §4.2 and Figure 4; the table that holds the tasks
MODEL_SIZES: Sequence[int] = _PAPERS["model_sizes"]  # Figure 4: parameters of the compared models
TOOLS_PAY_FROM: int = _PAPERS["tools_pay_from"]  # the size from which on tools help

# GEAR: grounding accuracy; that of ART_cs by the data set of its demonstrations; answers by method.
GROUNDING: Figures = _GEAR["grounding"]
GROUNDING_BY_DEMONSTRATIONS: Mapping[str, Figures] = _GEAR["grounding_by_demonstrations"]
ANSWERS_GPT_J: Mapping[str, Figures] = _GEAR["answers_gpt_j"]
ANSWERS_GPT3: Mapping[str, Figures] = _GEAR["answers_gpt3"]


def figures_for(task: str) -> dict[str, float]:
    if task in PERPLEXITY:
        return dict(PERPLEXITY[task])
    return next((dict(table[task]) for table in TABLES.values() if task in table), {})


def measured_text(task: str, source: str) -> str:
    """Return the text of Table 8, if any, that a task or the name of a file or folder names; "" is the task's own."""
    if task in PERPLEXITY:
        return task
    if not source:
        return "wikitext"
    name = source.lower().replace("-", "")
    return next((text for text in PERPLEXITY if text in name), "")
