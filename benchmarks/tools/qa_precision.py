"""How often QA's answers are right where it answers, and how often it answers: precision and coverage by threshold.

    python benchmarks/tools/qa_precision.py --passages passages.jsonl --questions NQ-open.dev.jsonl [--json] [--fit]

The passages are JSON lines of title and text, the questions any file that `toolformer evaluate --task nq` reads. Every
question is put to the tool's own retrieval and reader. The even items (from 0) are for tuning: on them the threshold is
sought at which right answers exceed wrong ones by most, and with `--fit` the weights of
`toolformer_core/tools/qa_readers/confidence.py` are fitted anew and used. All figures shown are of the odd items.

    answered    share of all questions that get an answer
    precision   share of the answers that are right: an accepted answer stands in them (the rule of NQ in `scoring`)
    answerable  an accepted answer stands somewhere in the passages, be it by chance: of the others no answer is right
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from toolformer_core.evaluate.items import Item
from toolformer_core.evaluate.scoring import is_right
from toolformer_core.evaluate.tasks import read, task_named
from toolformer_core.evaluate.words import normalise, tokens_of
from toolformer_core.tools.qa import QA
from toolformer_core.tools.qa_readers.confidence import Evidence, confidence
from toolformer_core.tools.qa_readers.embedded import LEAST_CONFIDENCE, ExtractiveReader
from toolformer_core.tools.search.passages import PassageIndex, read_passages

THRESHOLDS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, LEAST_CONFIDENCE, 0.6, 0.7, 0.8)


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, and the best span whatever its confidence."""

    answerable: bool
    evidence: Evidence | None  # None: there is no span
    right: bool
    confidence: float


@dataclass(frozen=True, slots=True)
class Point:
    """One point of the curve."""

    threshold: float
    answers: int
    right: int
    answered: float
    precision: float | None
    answered_answerable: float
    precision_answerable: float | None


def ask(passages: Path, questions: Path) -> list[Asked]:
    """Ask every question of a file."""
    task, qa = task_named("nq"), QA(PassageIndex(passages))
    reader = ExtractiveReader(least_confidence=0.0)
    told = "\n".join(_joined(passage.text) for passage in read_passages(passages))
    items = [item for item in read(task, questions) if isinstance(item, Item)]
    asked = []
    for number, item in enumerate(items):
        if number % 200 == 0:
            sys.stderr.write(f"{number} of {len(items)} questions" + "\n")
        question = item.prompt.partition(": ")[2]  # without the instruction to a model
        best = reader.best(question, qa.hits(question))
        answerable = any(_joined(answer) in told for answer in item.answers)
        if best is None:
            asked.append(Asked(answerable, None, False, -1.0))
        else:
            asked.append(Asked(answerable, best.evidence, is_right(task, item, best.text), best.confidence))
    return asked


def _joined(text: str) -> str:
    return f" {' '.join(token.text for token in tokens_of(normalise(text)))} "


def curve(asked: Sequence[Asked], thresholds: Sequence[float] = THRESHOLDS) -> list[Point]:
    """Return precision and coverage at each threshold."""
    return [_point(asked, threshold) for threshold in thresholds]


def _point(asked: Sequence[Asked], threshold: float) -> Point:
    answers = [one for one in asked if one.confidence >= threshold]
    answerable = [one for one in answers if one.answerable]
    right = sum(one.right for one in answers)
    could = sum(one.answerable for one in asked)
    return Point(
        threshold=threshold,
        answers=len(answers),
        right=right,
        answered=len(answers) / len(asked),
        precision=right / len(answers) if answers else None,
        answered_answerable=len(answerable) / could if could else 0.0,
        precision_answerable=sum(one.right for one in answerable) / len(answerable) if answerable else None,
    )


def best_threshold(asked: Sequence[Asked]) -> float:
    """Return the threshold, in hundredths, at which right answers exceed wrong ones by most; the highest of several."""
    points = curve(asked, [hundredths / 100 for hundredths in range(100)])
    return max(points, key=lambda point: (2 * point.right - point.answers, point.threshold)).threshold


def fit(asked: Sequence[Asked]) -> tuple[NDArray[np.float64], float]:
    """Return the weights and the bias of least logistic loss, found by Newton's method."""
    found = [one for one in asked if one.evidence is not None]
    measures = np.array([[*one.evidence.measures, 1.0] for one in found if one.evidence])  # (questions, measures + 1)
    right = np.array([one.right for one in found], dtype=np.float64)
    weights = np.zeros(measures.shape[1])
    for _ in range(30):
        p = 1 / (1 + np.exp(-measures @ weights))
        curvature = (measures * (p * (1 - p))[:, None]).T @ measures
        weights += np.linalg.solve(curvature + 1e-6 * np.eye(len(weights)), measures.T @ (right - p))
    return weights[:-1], float(weights[-1])


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=Path, required=True, help="JSON lines of title and text")
    parser.add_argument("--questions", type=Path, required=True, help="NQ-open's JSON lines: question, answer")
    parser.add_argument("--fit", action="store_true", help="fit the weights on the even rows first, and print them")
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")
    given = parser.parse_args()
    asked = ask(given.passages, given.questions)
    if given.fit:
        weights, bias = fit(asked[::2])
        _say(f"weights {[round(float(weight), 2) for weight in weights]} bias {round(bias, 2)}")
        asked = [
            Asked(
                a.answerable, a.evidence, a.right, confidence(a.evidence, weights.tolist(), bias) if a.evidence else -1
            )
            for a in asked
        ]
    tuning, shown = asked[::2], asked[1::2]
    _say(f"{len(shown)} questions, {sum(a.answerable for a in shown)} of them answerable")
    _say(f"threshold: default {LEAST_CONFIDENCE}, best on the tuning half {best_threshold(tuning)}")
    _say(f"{'threshold':>9}{'answered':>10}{'precision':>11}{'of answerable: answered':>25}{'precision':>11}")
    points = curve(shown)
    for p in points:
        shares = (p.answered, p.precision, p.answered_answerable, p.precision_answerable)
        told = [f"{100 * share:.1f}" if share is not None else "-" for share in shares]
        _say(f"{p.threshold:>9}{told[0]:>10}{told[1]:>11}{told[2]:>25}{told[3]:>11}")
    if given.json:
        _say(json.dumps([asdict(point) for point in points]))


if __name__ == "__main__":
    main()
