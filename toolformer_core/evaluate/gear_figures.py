"""GEAR's own figures (Lu et al., EACL 2024), percent, as its Tables 2 to 4 give them, by our names of benchmarks.

The paper's models, encoder and tools are other ones than a run's here: its figures stand beside ours to compare the
order of methods, not to be reached.

    Table 4  grounding accuracy: GEAR (GPT-Neo 1.3B chooses), and ART_cs (MiniLM) by the data set of its demonstrations
    Table 2  answers by GPT-J: zero-shot, few-shot, ART_llm and GEAR (GPT-Neo chooses)
    Table 3  answers: Toolformer (GPT-J), ART_llm (GPT-Neo / GPT-3), ART_cs and GEAR (with GPT-3 davinci-003)
"""

from __future__ import annotations

from collections.abc import Mapping

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
