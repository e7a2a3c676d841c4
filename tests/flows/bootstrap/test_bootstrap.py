"""The flow `bootstrap`: what each round asks of the other flows, what it came to, and when it is the last."""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from wh_fixtures import make_run, put, scored

from flows.bootstrap import flow as rounds_flow
from flows.bootstrap.flow import rounds_card, run_bootstrap
from flows.bootstrap.parameters import BootstrapParameters, check_rounds, of_build, of_evaluations, of_training
from flows.bootstrap.rounds import Answers, Round, gain_of
from flows.build_dataset.flow import BuildResult
from flows.build_dataset.parameters import BuildParameters
from flows.evaluate.metrics import ArmFigures, EvaluateResult
from flows.evaluate.parameters import EvaluateParameters
from flows.finetune.flow import FinetuneResult
from flows.finetune.parameters import FinetuneParameters
from toolformer_core.errors import UsageError
from warehouse.commits import Dataset, RowCounts, dataset_version
from warehouse.store import Store


def parameters(data: Path, **changes: Any) -> BootstrapParameters:
    (data / "corpus.jsonl").write_text('{"text": "Two and two makes 4."}\n', encoding="utf-8")
    asked = {"corpus": str(data / "corpus.jsonl"), "data": str(data), "tools": ["qa"], "steps": 7, "batch": 2}
    return BootstrapParameters.model_validate({**asked, **changes})


def test_what_a_round_asks_for(tmp_path: Path) -> None:
    p = parameters(tmp_path, tau_f={"qa": "fdr=0.05"}, seed=3, task=["svamp=/s.json", "perplexity=/t.jsonl"], k=3)
    first, later = of_build(p, 0, "embedded"), of_build(p, 2, "/checkpoint")
    assert (first.model, first.score_model, first.dataset, first.seed) == ("embedded", None, "rounds-0", 3)
    assert (later.model, later.score_model, later.dataset) == ("/checkpoint", "embedded", "rounds-2")
    assert later.tau_f == {"qa": "fdr=0.05"}
    training = of_training(p, "rounds-2@ab")
    assert (training.dataset, training.model, training.arm) == ("rounds-2@ab", "embedded", "toolformer")
    assert (training.steps, training.batch, training.seed) == (7, 2, 3)
    answers, texts = of_evaluations(p, "/job")
    assert (answers.task, answers.path, answers.toolformer, answers.k) == ("svamp", "/s.json", "/job", [3])
    assert answers.arms == ["toolformer", "toolformer-disabled"]
    assert (texts.task, texts.arms) == ("perplexity", ["toolformer-disabled"])


@pytest.mark.parametrize(
    ("changes", "judges"),
    [
        ({}, [None, "embedded"]),
        ({"self_judge": True}, [None, None]),
        ({"score_model": "/judge"}, ["/judge", "/judge"]),
        ({"score_model": "/judge", "self_judge": True}, ["/judge", None]),
    ],
)
def test_who_judges(tmp_path: Path, changes: dict[str, Any], judges: list[str | None]) -> None:
    p = parameters(tmp_path, **changes)
    assert [of_build(p, 0, p.model).score_model, of_build(p, 1, "/checkpoint").score_model] == judges


@pytest.mark.parametrize(
    ("changes", "bare"),
    [({}, [False, False]), ({"bare_rounds": True}, [False, True]), ({"bare": True}, [True, True])],
)
def test_which_rounds_go_without_prompts(tmp_path: Path, changes: dict[str, Any], bare: list[bool]) -> None:
    p = parameters(tmp_path, **changes)
    assert [of_build(p, number, "/m").bare for number in (0, 1)] == bare


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model": "remote+http://127.0.0.1:1/v1#m"}, "rounds finetune the model"),
        ({"task": ["swamp"]}, "unknown benchmark 'swamp'"),
        ({"task": ["svamp=/nowhere.json"]}, "there is no such file"),
    ],
)
def test_mistakes_are_found_before_anything_is_annotated(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        check_rounds(parameters(tmp_path, **changes))
    check_rounds(parameters(tmp_path, task=["svamp"]))


def a_round(number: int, calls: int, accuracy: float | None = None) -> Round:
    answers = {} if accuracy is None else {"svamp": Answers(accuracy, 0.25, 0.5, None)}
    return Round(number, "m", "m", "d@1", 500, calls, 40, 30, {"qa": calls}, 20_000, "/job", 2.0, answers)


def test_figures_of_a_round() -> None:
    one = a_round(0, 4, 0.5)
    assert one.calls_per_thousand == 8.0  # 4 of 500 documents
    assert one.calls_per_million_tokens == 200.0  # 4 for 20,000 tokens
    assert one.accuracy == 0.5
    assert gain_of(one, a_round(1, 2, 0.75)) == 0.25  # benchmarks decide where there are any
    assert gain_of(one, a_round(1, 6)) == 4.0  # (6 - 4) / 0.5
    assert gain_of(one, a_round(1, 2, math.nan)) == 0.0
    card = rounds_card([one, a_round(1, 6, 0.75)])
    assert "| 1 | `m` | 6 | 0.750 | 12.0 | 300.0 | 2.000 | 0.750 | 0.250 |" in card


@dataclass
class Flows:
    """The three flows, of which a round keeps as many calls, and answers as well, as the lists say."""

    store: Store
    calls: list[int]
    accuracy: list[float]
    asked: list[Any] = field(default_factory=list)

    def build(self, p: BuildParameters) -> BuildResult:
        number = sum(isinstance(one, BuildParameters) for one in self.asked)
        self.asked.append(p)
        kept = self.calls[number]
        shard, parts = f"s{number}", {"round": str(number)}
        documents = put(self.store, "ingest", "", shard, [{"doc_id": "a"}, {"doc_id": "b"}], parts=parts)
        draws = [RowCounts("draws", 10, 8, dropped={"unparsable": 2})]
        sampled = put(self.store, "sample", "qa", shard, [], parts=parts, balances=draws)
        losses = put(self.store, "score", "qa", shard, [scored("a", "qa", 4, 1.0)], parts=parts)
        call = {"tool": "qa", "position": 4, "start": 4, "end": 9, "input": "1", "response": "2", "gain": 1.0}
        rows = [{"doc_id": f"a{n}", "text": "Two and two", "calls": [call]} for n in range(kept)]
        examples = put(self.store, "assemble", "", shard, rows, parts=parts)
        commits = [documents, sampled, losses, examples]
        run = make_run(f"r{number}", [commit.key for commit in commits])
        self.store.write_run(run)
        version = dataset_version(examples.files)
        dataset = Dataset(p.dataset, version, examples.files, {"qa": kept}, {}, run.run_id, p.model, "c", "t")
        self.store.write_dataset(dataset)
        return BuildResult(run.run_id, p.dataset, version, "", "", kept, {"qa": kept}, 4, 0, 1.0)

    def finetune(self, p: FinetuneParameters) -> FinetuneResult:
        self.asked.append(p)
        folder = f"/jobs/{p.dataset}"
        return FinetuneResult(folder, f"{folder}/model", p.arm, p.dataset, 7, 7, 2.0, 3.0, "", "", False, 1.0)

    def evaluate(self, p: EvaluateParameters) -> EvaluateResult:
        number = sum(isinstance(one, EvaluateParameters) for one in self.asked)
        self.asked.append(p)
        figures = {"model": "m", "parameters": 1, "items": 4, "right": 2, "low": 0.0, "high": 1.0, "call_rate": 0.5}
        shares = {"accuracy_called": 0.5, "accuracy_uncalled": 0.5}
        arms = tuple(
            ArmFigures(evaluation="e", arm=arm, k=10, accuracy=accuracy, **figures, **shares)
            for arm, accuracy in (("toolformer", self.accuracy[number]), ("toolformer-disabled", 0.25))
        )
        return EvaluateResult("e", p.task, p.task, "", 4, {}, arms, (), {}, "", "", "", 1, 0, 1.0)


@pytest.fixture
def data(tmp_path: Path, empty_database: Path, prefect_server: None) -> Path:
    shutil.copy(empty_database, tmp_path / "mlflow.db")
    return tmp_path


def teach(data: Path, monkeypatch: pytest.MonkeyPatch, calls: list[int], accuracy: list[float], **changes: Any) -> Any:
    flows = Flows(Store(data), calls, accuracy)
    monkeypatch.setattr(rounds_flow, "build_dataset", flows.build)
    monkeypatch.setattr(rounds_flow, "finetune", flows.finetune)
    monkeypatch.setattr(rounds_flow, "evaluate", flows.evaluate)
    monkeypatch.setattr(rounds_flow, "track_build_if_in_use", lambda *_: None)
    return flows, run_bootstrap(parameters(data, **changes))


def test_each_round_samples_with_what_the_last_one_taught(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flows, result = teach(data, monkeypatch, [1, 2, 3], [], rounds=3)
    assert result.stopped == "3 rounds are done"
    builds = [one for one in flows.asked if isinstance(one, BuildParameters)]
    trainings = [one for one in flows.asked if isinstance(one, FinetuneParameters)]
    taught = [f"/jobs/{one.dataset}/model" for one in trainings]
    assert [one.model for one in builds] == ["embedded", *taught[:2]]
    assert [one.score_model for one in builds] == [None, "embedded", "embedded"]
    assert [one.model for one in trainings] == ["embedded"] * 3  # a fresh model in every round
    assert [(one.number, one.documents, one.examples, one.calls) for one in result.rounds] == [
        (0, 2, 1, {"qa": 1}),
        (1, 2, 2, {"qa": 2}),
        (2, 2, 3, {"qa": 3}),
    ]
    first = result.rounds[0]
    assert (first.draws, first.well_formed, first.lm_tokens) == (10, 8, 200)  # 100 of sample, 100 of score
    assert (first.checkpoint, first.dev_perplexity) == (f"/jobs/{first.dataset}", 2.0)
    assert result.gains == (500.0, 500.0)  # one call more of two documents
    client = MlflowClient(f"sqlite:///{data / 'mlflow.db'}")
    [run] = client.search_runs([e.experiment_id for e in client.search_experiments()])
    assert (run.info.status, run.data.tags["kind"]) == ("FINISHED", "bootstrap")
    history = client.get_metric_history(run.info.run_id, "calls_per_thousand")
    assert sorted((m.step, m.value) for m in history) == [(0, 500.0), (1, 1000.0), (2, 1500.0)]
    teach(data, monkeypatch, [1, 2, 3], [], rounds=3)  # again: the same run goes on
    assert len(client.search_runs([run.info.experiment_id])) == 1


@pytest.mark.parametrize(
    ("calls", "accuracy", "rounds", "stopped"),
    [
        ([2, 2, 9], [], 2, "round 1 gained +0, no more than 0"),
        ([3, 2, 9], [0.5, 0.75, 0.7], 3, "round 2 gained -0.05, no more than 0"),  # accuracy rises though calls fall
        ([1, 0, 9], [], 2, "round 1 kept no call"),
    ],
)
def test_it_stops_when_a_round_gains_nothing(
    data: Path, monkeypatch: pytest.MonkeyPatch, calls: list[int], accuracy: list[float], rounds: int, stopped: str
) -> None:
    task = {"task": ["svamp"]} if accuracy else {}
    _, result = teach(data, monkeypatch, calls, accuracy, rounds=4, **task)
    assert (len(result.rounds), result.stopped) == (rounds, stopped)


@pytest.mark.slow
def test_a_model_teaches_itself_in_rounds(prefect_server: None, few_documents: Path, tmp_path: Path) -> None:
    """Two real rounds; killed or not, the same call again finds them done and says the same."""
    small = {"tools": ["calculator", "calendar"], "top_k": 3, "draws": 2, "tau_f": {"calendar": 0.2}}
    recipe = {"steps": 4, "batch": 2, "learning_rate": 1e-3, "evaluate_every": 4, "sequence_length": 256}
    where = {"corpus": str(few_documents), "data": str(tmp_path), "profile": "core", "rounds": 2, "min_gain": 0}
    asked = BootstrapParameters.model_validate({**small, **recipe, **where})
    result = run_bootstrap(asked)
    assert [one.scored_by for one in result.rounds][:1] == ["embedded"]
    assert all(one.examples and one.lm_tokens and one.checkpoint for one in result.rounds)
    if len(result.rounds) > 1:
        assert result.rounds[1].sampled_by == f"{result.rounds[0].checkpoint}/model"
        assert result.rounds[1].scored_by == "embedded"
    again = run_bootstrap(asked)
    assert (again.rounds, again.stopped) == (result.rounds, result.stopped)
