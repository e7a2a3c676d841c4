"""The papers' own results, shown beside ours: Toolformer's Tables 2 to 10 and §4.2 (GPT-J, 6.7 B), GEAR's Tables 2 to
4.

They are percent correct, or perplexity for Table 8. Nothing computes with them; `tasks` and the tables show them.
Figure 4 is a picture; the text only gives the model sizes, and that tools start to help at about 775 M parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_MODELS = ("gpt-j", "gpt-j + cc", "toolformer (disabled)", "toolformer", "opt 66b", "gpt-3 175b")


def _columns(models: Sequence[str], **columns: Sequence[float]) -> dict[str, dict[str, float]]:
    return {name: dict(zip(models, values, strict=True)) for name, values in columns.items()}


def _dashed(columns: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    return {name.replace("_", "-"): values for name, values in columns.items()}


# Number of the table -> task -> model -> result.
TABLES: Mapping[int, Mapping[str, Mapping[str, float]]] = {
    3: _dashed(
        _columns(
            _MODELS,
            lama_squad=(17.8, 19.2, 22.1, 33.8, 21.6, 26.8),
            lama_google_re=(4.9, 5.6, 6.3, 11.5, 2.9, 7.0),
            lama_trex=(31.9, 33.2, 34.9, 53.5, 30.1, 39.8),
        )
    ),
    4: _columns(
        _MODELS,
        asdiv=(7.5, 9.6, 14.8, 40.4, 6.0, 14.0),
        svamp=(5.2, 5.0, 6.3, 29.4, 4.9, 10.0),
        mawps=(9.9, 9.3, 15.0, 44.0, 7.9, 19.8),
    ),
    5: _columns(
        _MODELS,
        webqs=(18.5, 18.4, 18.9, 26.3, 18.6, 29.0),
        nq=(12.8, 12.2, 12.6, 17.7, 11.4, 22.6),
        triviaqa=(43.9, 45.6, 46.7, 48.8, 45.7, 65.9),
    ),
    6: _dashed(
        _columns(
            _MODELS,
            mlqa_es=(15.2, 15.7, 19.8, 20.6, 0.3, 3.4),
            mlqa_de=(16.5, 14.9, 11.9, 13.5, 0.1, 1.1),
            mlqa_hi=(1.3, 0.5, 1.2, 1.4, 1.1, 0.1),
            mlqa_vi=(8.2, 8.3, 10.1, 10.6, 0.2, 1.7),
            mlqa_zh=(18.2, 13.7, 15.0, 16.8, 0.7, 17.7),
            mlqa_ar=(8.2, 4.6, 3.1, 3.7, 0.1, 0.1),
        )
    ),
    7: _columns(
        _MODELS,
        templama=(13.7, 12.9, 12.7, 16.3, 14.5, 15.5),
        dateset=(3.9, 2.9, 5.9, 27.3, 1.3, 0.8),
    ),
}

# Table 8: perplexity, tools disabled; by text and model.
PERPLEXITY: Mapping[str, Mapping[str, float]] = _columns(
    _MODELS[:3], wikitext=(9.9, 10.3, 10.3), ccnet=(10.6, 10.5, 10.5)
)

# Table 9: task -> k -> (accuracy on all, with a call, without one, percent of items with a call); None: no such item.
DECODING: Mapping[str, Mapping[int, tuple[float, float | None, float | None, float]]] = {
    "lama-trex": {
        0: (34.9, None, 34.9, 0.0),
        1: (47.8, 53.0, 44.3, 40.3),
        3: (52.9, 58.0, 29.0, 82.8),
        10: (53.5, 54.0, 22.5, 98.1),
    },
    "webqs": {
        0: (18.9, None, 18.9, 0.0),
        1: (19.3, 17.1, 19.9, 8.5),
        3: (26.3, 26.5, 6.6, 99.3),
        10: (26.3, 26.4, None, 100.0),
    },
}

# Groups of tasks in §4.2 and Figure 4, and the table that holds their tasks.
GROUPS: Mapping[str, int] = {"LAMA": 3, "math": 4, "QA": 5}

# §4.2: group, or task -> tool ("other": any other, "none": no call) -> percent of items for which Toolformer called it.
# Of MLQA's languages but Hindi the text gives the range alone.
CALL_RATES: Mapping[str, Mapping[str, float | str]] = {
    "LAMA": {"qa": 98.1, "other": 0.7, "none": 1.2},
    "math": {"calculator": 97.9},
    "QA": {"wikisearch": 99.3},
    **{task: {"mt": 7.3 if task == "mlqa-hi" else "63.8 to 94.9"} for task in TABLES[6]},
    "templama": {"calendar": 0.2},
    "dateset": {"calendar": 54.8},
}

# Table 2: tool -> tau_f -> examples in C*.
EXAMPLES_BY_THRESHOLD: Mapping[str, Mapping[float, int]] = {
    "qa": {0.5: 51_987, 1.0: 18_526, 2.0: 5_135},
    "wikisearch": {0.5: 207_241, 1.0: 60_974, 2.0: 13_944},
    "calculator": {0.5: 3_680, 1.0: 994, 2.0: 138},
    "calendar": {0.5: 61_811, 1.0: 20_587, 2.0: 3_007},
    "mt": {0.5: 3_156, 1.0: 1_034, 2.0: 229},
}

# Table 10: the tool and the gain L- - L+, in nats, of each example.
GAINS: Sequence[tuple[str, float]] = (
    ("wikisearch", 5.49),
    ("calendar", 2.11),
    ("qa", 2.08),
    ("calculator", 1.59),
    ("wikisearch", 0.92),
    ("mt", 0.70),
    ("calendar", 0.33),
    ("calculator", -0.02),
    ("calendar", -0.41),
    ("qa", -1.23),
)

# Figure 4: parameters of the compared models (GPT-2 and GPT-J), and the size from which on tools help.
MODEL_SIZES: Sequence[int] = (124_000_000, 355_000_000, 775_000_000, 1_600_000_000, 6_700_000_000)
TOOLS_PAY_FROM = 775_000_000


def figures_for(task: str) -> dict[str, float]:
    """Return the paper's results for a task by model; empty if it has none (GSM8K, any other text, the demo)."""
    if task in PERPLEXITY:
        return dict(PERPLEXITY[task])
    return next((dict(table[task]) for table in TABLES.values() if task in table), {})


def measured_text(task: str, source: str) -> str:
    """Return the text of Table 8 that a perplexity belongs to: "wikitext", "ccnet", or "" for any other.

    The text itself is not examined: the user names it, by the task `wikitext` or by the name of the file or folder.

    Args:
        task: the task's name.
        source: the name of the file or folder; "" for the task's default from the hub, which is WikiText.
    """
    if task in PERPLEXITY:
        return task
    if not source:
        return "wikitext"
    name = source.lower().replace("-", "")
    return next((text for text in PERPLEXITY if text in name), "")


# GEAR (Lu et al., EACL 2024), percent, by our names of benchmarks. Its models, encoder and tools are other ones than a
# run's here: the figures compare the order of methods, and are not to be reached.
#     Table 4  grounding accuracy: GEAR (GPT-Neo 1.3B chooses), and ART_cs (MiniLM) by the data set of its
# demonstrations     Table 2  answers by GPT-J: zero-shot, few-shot, ART_llm and GEAR (GPT-Neo chooses)
#     Table 3  answers: Toolformer (GPT-J), ART_llm (GPT-Neo / GPT-3), ART_cs and GEAR (with GPT-3 davinci-003)
Figures = Mapping[str, float]

_SIX = ("asdiv", "gsm8k", "svamp", "triviaqa", "nq", "webqs")


def _row(tasks: tuple[str, ...], *values: float | None) -> Figures:
    return {task: value for task, value in zip(tasks, values, strict=True) if value is not None}


# Table 4, last row.
GROUNDING: Figures = _row(_SIX, 83.1, 83.0, 89.0, 63.0, 65.6, 54.3)

# Table 4, the other rows: ART_cs, by the data set that its demonstrations are from.
GROUNDING_BY_DEMONSTRATIONS: Mapping[str, Figures] = {
    "asdiv": _row(_SIX, 97.9, 88.5, 87.2, 2.1, 1.4, 0.0),
    "gsm8k": _row(_SIX, 93.8, 88.4, 81.9, 0.3, 1.1, 0.0),
    "svamp": _row(_SIX, 98.3, 74.5, 75.7, 0.0, 1.1, 0.0),
    "triviaqa": _row(_SIX, 25.8, 32.2, 22.5, 98.1, 96.2, 0.4),
    "nq": _row(_SIX, 25.3, 25.2, 22.4, 97.4, 98.2, 0.4),
    "webqs": _row(_SIX, 28.6, 39.9, 28.3, 94.8, 96.8, 1.1),
}

# Table 2, by our method; its translations (IWSLT) and multiple-choice questions are no benchmarks here.
_TABLE_2 = ("asdiv", "gsm8k", "svamp", "nq", "webqs", "triviaqa")
ANSWERS_GPT_J: Mapping[str, Figures] = {
    "zero-shot": _row(_TABLE_2, 7.5, 0.4, 2.0, 10.2, 5.3, 27.3),
    "few-shot": _row(_TABLE_2, 21.4, 5.6, 13.1, 31.1, 18.2, 46.5),
    "lm": _row(_TABLE_2, 16.7, 9.8, 11.2, 21.2, 11.2, 29.3),
    "gear": _row(_TABLE_2, 23.3, 3.8, 18.6, 43.4, 22.1, 50.3),
}

# Table 3, by our method.
_TABLE_3 = ("asdiv", "svamp", "lama-squad", "lama-trex", "triviaqa", "mlqa-es")
ANSWERS_GPT3: Mapping[str, Figures] = {
    "toolformer": _row(_TABLE_3, 40.4, 29.4, 33.8, 53.5, 48.8, 20.6),
    "lm": _row(_TABLE_3, 37.0, 21.3, 17.7, 20.6, 24.3, 14.0),
    "cosine": _row(_TABLE_3, 86.7, 77.3, 39.3, 50.4, 61.0, None),
    "gear": _row(_TABLE_3, 74.9, 79.9, 61.1, 83.1, 62.5, 58.3),
}
