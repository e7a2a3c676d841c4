"""Evaluations that allow several calls per item: beside those of one call, which stay what they were."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from flows.evaluate.flow import run_evaluate
from flows.evaluate.metrics import table_of
from flows.evaluate.parameters import EvaluateParameters
from flows.evaluate.resolve import resolve
from tasks.specs.evaluation_spec import Evaluation
from tests.support.small_builds import write_jsonl
from toolformer_core.decode.records import Generation, GenerationSettings, ToolCall
from toolformer_core.embedded import CHAIN_PASSAGES
from toolformer_core.lm.load import load_model
from warehouse.queries import rows_of


def asked(data: Path, **changes: Any) -> EvaluateParameters:
    plain = {"task": "small-world-chains", "limit": 4, "k": [10], "max_new_tokens": 6, "data": str(data)}
    return EvaluateParameters.model_validate({**plain, **changes})


def test_one_call_is_the_default_and_its_evaluations_are_known_by_what_they_were(tmp_path: Path) -> None:
    off, on = resolve(asked(tmp_path)).evaluations
    # as the code before there was an option wrote it
    assert on.parts()["settings"] == '{"arm":"base+tools","k":10,"max_calls":1,"max_new_tokens":6}'
    assert off.parts()["settings"] == '{"arm":"base","k":0,"max_calls":0,"max_new_tokens":6}'
    other_off, several = resolve(asked(tmp_path, max_calls=8)).evaluations
    assert other_off == off  # without tools there is no call: it is not asked again
    assert several.parts()["settings"] == on.parts()["settings"].replace('"max_calls":1', '"max_calls":8')
    with pytest.raises(ValueError, match="max_calls"):
        asked(tmp_path, max_calls=0)


def test_the_tasks_own_passages_are_searched_unless_others_are_named(tmp_path: Path) -> None:
    def passages(**changes: Any) -> Path | None:
        return resolve(asked(tmp_path, **changes)).evaluations[1].tool_settings.passages

    mine = write_jsonl(tmp_path / "mine.jsonl", [{"title": "Velden", "text": "Velden was founded in 1820."}])
    assert passages() == CHAIN_PASSAGES
    assert passages(passages=str(mine)) == mine
    assert passages(task="small-world") is None


class Chaining:
    """Stands for a Toolformer: the n-th text, from 0, has n calls one behind the other, if so many are allowed."""

    keys: Mapping[str, str] = {}

    def __init__(self, evaluation: Evaluation) -> None:
        self.lm = load_model(evaluation.model)

    def generate(self, prompts: Sequence[str], settings: Sequence[GenerationSettings]) -> list[Generation]:
        return [self._text(min(n, s.max_calls)) for n, s in enumerate(settings)]

    def _text(self, calls: int) -> Generation:
        text, made = " It is", []
        for n in range(calls):
            written = f" [Calculator({n} + 1) -> {n + 1}]"
            made.append(ToolCall("Calculator", f"{n} + 1", str(n + 1), None, "", len(text), len(text + written), 0.0))
            text += written
        return Generation(f"{text} so.", " It is so.", tuple(made), "length", 9, 4, 7 * calls, 0, ())


def test_all_calls_are_stored_and_counted(
    prefect_server: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.stages.evaluate.toolformer_of", Chaining)
    one = run_evaluate(asked(tmp_path / "data"))
    several = run_evaluate(asked(tmp_path / "data", max_calls=2))
    assert several.skipped == 2  # the items, and the arm without tools
    off, on = several.arms
    assert [arm.calls_per_item for arm in (*one.arms, off)] == [None, None, None]
    # no call, one, two, and two of the three that it would write
    assert (on.call_rate, on.calls_per_item, on.rates) == (3 / 4, (0 + 1 + 2 + 2) / 4, {"calculator": 3 / 4})
    rows = rows_of(several.snapshot, "FROM predictions WHERE evaluation = $e", {"e": on.evaluation})
    calls = sorted([(c["tool"], c["position"], c["input"], c["response"]) for c in row["calls"]] for row in rows)
    first, second = ("calculator", 6, "0 + 1", "1"), ("calculator", 6, "1 + 1", "2")  # " It is" has 6 characters
    assert calls == [[], [first], [first, second], [first, second]]

    rows = rows_of(several.snapshot, "FROM accuracy")
    viewed = {row["evaluation"]: (row["max_calls"], row["calls_per_item"]) for row in rows}
    assert (viewed[on.evaluation], viewed[one.arms[1].evaluation]) == ((2, 5 / 4), (1, 3 / 4))
    tracked = MlflowClient(several.tracking, several.tracking).get_run(several.mlflow_run).data
    assert (tracked.params["max_calls"], tracked.metrics["calls_per_item/base-tools"]) == ("2", 5 / 4)

    assert ["per item" in table_of(result).columns for result in (one, several)] == [False, True]
    assert table_of(several).rows[1][3:5] == ("75.0", 1.25)


def test_calls_against_random_operands(prefect_server: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.stages.evaluate.toolformer_of", Chaining)
    problems = [("She has 3 pens, and 4 and 1 more.", 1), ("2 and 5.", 7), ("It is 1 and 1.", 2)]
    rows = [{"ID": f"p{n}", "Body": body, "Question": "How many?", "Answer": a} for n, (body, a) in enumerate(problems)]
    path = tmp_path / "problems.json"
    path.write_text(json.dumps(rows))
    of_problems = {"task": "svamp", "path": str(path), "limit": None, "tools": ["calculator"]}
    result = run_evaluate(asked(tmp_path / "data", max_calls=2, **of_problems))
    off, on = result.arms
    assert (off.operands, off.right_calls) == (None, None)  # no tools, no calls
    # the calls are sums alone: of the ordered pairs of 3, 4, 1 none gives 1; of 2, 5 all give 7; of 1, 1 all give 2
    assert on.operands is not None
    assert on.operands.value == pytest.approx((0 + 1 + 1) / 3)
    # the second item has one call, 0 + 1 -> 1, not 7; the third has 0 + 1 -> 1 and 1 + 1 -> 2, which is its answer
    assert on.right_calls == 1 / 2
    (told,) = (note for note in table_of(result).notes if "random pairs" in note)
    assert "would be right in 66.7 %" in told
    assert "its calls give the answer in 50.0 % of the items with one" in told
