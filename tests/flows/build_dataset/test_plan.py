"""The plan against the build: what was planned is what is then done, for one change after another."""

import json
import shlex
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.build_dataset.estimate import CACHED, DEPENDS, TO_DO, Plan
from flows.build_dataset.flow import run_build
from flows.build_dataset.parameters import BuildParameters
from flows.build_dataset.plan import plan_build
from flows.runtime.ledger import reporting_to
from tasks.shards.run_shard import ShardResult
from tests.support.commands import Run
from tests.support.small_builds import small_build
from toolformer_core.embedded import MODEL
from warehouse.store import Store

ShardSpec = tuple[str, str, str]  # stage, tool, shard


def states(plan: Plan) -> dict[ShardSpec, str]:
    return {(one.stage, one.tool, one.shard): one.state for one in plan.shards}


def done_by(parameters: BuildParameters) -> dict[ShardSpec, bool]:
    """Build; return of every shard whether it was worked on."""
    worked: dict[ShardSpec, bool] = {}

    def progress(stage: str, finished: int, total: int, done: ShardResult) -> None:
        worked[stage, done.key.tool, done.key.shard] = not done.skipped

    with reporting_to(progress):
        run_build(parameters)
    return worked


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model whose loading raises."""
    for name in ("load_model", "load_parts"):
        monkeypatch.setattr(f"toolformer_core.lm.load.{name}", lambda *_, **__: pytest.fail("a model was loaded"))


def one_tau(asked: BuildParameters, tmp_path: Path) -> BuildParameters:
    return asked.model_copy(update={"tau_f": {"calendar": 0.1}})


def one_prompt(asked: BuildParameters, tmp_path: Path) -> BuildParameters:
    from toolformer_core.prompts import load

    folder = Path(shutil.copytree(Path(load.__file__).parent, tmp_path / "prompts"))
    text = (folder / "calendar.txt").read_text(encoding="utf-8")
    (folder / "calendar.txt").write_text(text.replace("Input:", "Text:", 1), encoding="utf-8")
    return asked.model_copy(update={"prompts": str(folder)})


def one_more_document(asked: BuildParameters, tmp_path: Path, date: str = "2000-01-01") -> BuildParameters:
    corpus = tmp_path / "few.jsonl"  # of the same name: a document's source is part of its row
    corpus.write_bytes(Path(asked.corpus).read_bytes())
    with corpus.open("a", encoding="utf-8") as stream:
        # dated as all the others are, and earlier: the corpus's latest date stays
        stream.write(json.dumps({"text": "A text that was not there before.", "timestamp": date}) + "\n")
    return asked.model_copy(update={"corpus": str(corpus), "replace": True})


def one_newer_document(asked: BuildParameters, tmp_path: Path) -> BuildParameters:
    return one_more_document(asked, tmp_path, date="2025-06-01")


def with_a_note_in(file: str) -> Callable[[BuildParameters, Path], BuildParameters]:
    """A copy of the model that differs in one file."""

    def change(asked: BuildParameters, tmp_path: Path) -> BuildParameters:
        folder = tmp_path / "model"
        shutil.copytree(MODEL, folder)
        config = json.loads((folder / file).read_text(encoding="utf-8"))
        (folder / file).write_text(json.dumps({**config, "note": "another"}), encoding="utf-8")
        return asked.model_copy(update={"model": str(folder)})

    return change


another_model, another_tokenizer = with_a_note_in("config.json"), with_a_note_in("tokenizer_config.json")


# What is changed -> what is to do, per stage, of 1 + 4 * 2 * 3 + 3 shards; and why. A text of which the prefilter keeps
# nothing costs no model and is tried out, so a plan may know more than its stage's name says.
@pytest.mark.parametrize(
    ("change", "to_do", "because"),
    [
        (lambda asked, _: asked, {}, set()),
        (one_tau, {"assemble": 3}, {"tau_f.calendar: 0.2 -> 0.1"}),
        pytest.param(one_prompt, {"sample": 3}, {"prompt", "data"}, marks=pytest.mark.slow),
        (
            one_more_document,
            {"ingest": 1, "prefilter": 2, "sample": 2, "execute": 2, "score": 2, "assemble": 1},
            {"data"},
        ),
        pytest.param(  # of the first two shards the calendar's prefilter, which keeps the same
            one_newer_document,
            {"ingest": 1, "prefilter": 4, "sample": 2, "execute": 2, "score": 2, "assemble": 1},
            {"data", "latest_date: 2021-05-02 -> 2025-06-01"},
            marks=pytest.mark.slow,
        ),
        pytest.param(another_model, {"sample": 6, "score": 6}, {"model", "data"}, marks=pytest.mark.slow),
        (another_tokenizer, {"sample": 6, "score": 6}, {"tokenizer", "data"}),
    ],
)
def test_what_is_planned_is_done(
    few_documents: Path,
    as_built: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[BuildParameters, Path], BuildParameters],
    to_do: dict[str, int],
    because: set[str],
) -> None:
    asked = change(small_build(few_documents, as_built), tmp_path)
    before = contents(as_built)
    plan = plan_build(asked)
    assert contents(as_built) == before  # nothing is written, not even set aside
    planned = states(plan)
    assert Counter(stage for (stage, _, _), state in planned.items() if state == TO_DO) == to_do
    assert {reason for one in plan.shards for reason in one.because} == because
    assert plan.nothing_to_do == (not to_do)
    if change is another_tokenizer:  # what is done is as for another model
        return
    if to_do.keys() <= {"assemble"}:
        for stage in ("sample", "score"):
            monkeypatch.setattr(f"tasks.stages.{stage}.model_of", lambda *_: pytest.fail("a model was loaded"))
    worked = done_by(asked)
    if change is one_more_document:
        assert {shard for (_, _, shard), done in worked.items() if done} == {"corpus", "part-00002"}
    assert len(Store(as_built).datasets()) == 1 + bool(to_do)
    assert planned.keys() == worked.keys()
    for work, done in worked.items():
        assert planned[work] in ((TO_DO, DEPENDS) if done else (CACHED, DEPENDS))


def test_a_plan_loads_no_model_and_makes_no_folder(few_documents: Path, tmp_path: Path, no_model: None) -> None:
    plan = plan_build(small_build(few_documents, tmp_path / "none"))
    assert not (tmp_path / "none").exists()
    # 16 documents in shards of 6, 6 and 4: every shard is new
    assert plan.documents == 16
    assert set(states(plan).values()) == {TO_DO}
    assert len(plan.shards) == 1 + 4 * 2 * 3 + 3
    assert {reason for one in plan.shards for reason in one.because} == {"new"}
    assert all(own.estimate is None for own in plan.stages)


def test_estimates_are_in_proportion_to_documents(few_documents: Path, as_built: Path, no_model: None) -> None:
    plan = plan_build(small_build(few_documents, as_built, top_k=2))
    commits = [c for c in Store(as_built).commits("sample") if c.tool == "calculator"]
    (own,) = (one for one in plan.stages if (one.stage, one.tool) == ("sample", "calculator"))
    assert own.because == {"top_k: 3 -> 2": 3}
    assert own.estimate is not None
    # the three past shards hold the same 16 documents, and two of three positions at two samples each: 2 * 2 / (3 * 2)
    assert (own.estimate.shards, own.estimate.same_samples) == (3, False)
    assert own.estimate.seconds == pytest.approx(2 / 3 * sum(c.seconds for c in commits))
    assert own.estimate.lm_tokens == pytest.approx(2 / 3 * sum(c.counters["lm_tokens"] for c in commits))
    assert own.estimate.lm_tokens > 0
    assert own.estimate.bytes == pytest.approx(2 / 3 * sum(f.bytes for c in commits for f in c.files))
    # what is scored follows what is drawn; the same k and m from now on are those of the past, and not scaled
    (score,) = (one for one in plan.stages if (one.stage, one.tool) == ("score", "calculator"))
    tokens = sum(c.counters["lm_tokens"] for c in Store(as_built).commits("score") if c.tool == "calculator")
    assert score.at_most is not None
    assert score.at_most.lm_tokens == pytest.approx(2 / 3 * tokens)
    other = plan_build(small_build(few_documents, as_built, top_k=2, samples=3))  # 2 * 3 = 3 * 2
    assert all(one.at_most.same_samples for one in other.stages if one.at_most is not None)
    assert not any(plan.total.lower_bound for plan in (plan, other))


def test_what_is_not_known_makes_a_sum_a_lower_bound_and_a_pilot_is_named(
    run: Run, few_documents: Path, as_built: Path, tmp_path: Path, no_model: None
) -> None:
    options = [*"--top-k 3 --samples 2 --shard-documents 6 --tau-f calendar=0.2".split(), "--licence", "CC 0"]
    asked = ["plan", "--corpus", few_documents, "--tools", "calculator,calendar,mt", *options, "--data"]
    assert json.loads(run(*asked, as_built, "--json").out)["total"]["lower_bound"]  # nothing is known of mt
    assert "To do: at least " in run(*asked, as_built).out

    new = tmp_path / "my data"
    told = json.loads(run(*asked, new, "--json").out)
    unknown = {"seconds": 0, "lm_tokens": 0, "bytes": 0, "lower_bound": True, "lm_tokens_unknown": True}
    assert told["total"] == told["total_at_most"] == unknown
    said = run(*asked, new).out
    assert "To do: at least 0 s of work, LM tokens unknown" in said
    command = next(line for line in said.splitlines() if line.startswith("  toolformer build "))
    assert told["pilot"] == command.strip()
    # a tenth of 16 documents is 1; what is asked for in the default way is not repeated
    expected = f"toolformer build --corpus {few_documents} --data '{new}' --tools calculator,calendar,mt --limit 1 "
    assert command.strip() == (
        f"{expected}--top-k 3 --samples 2 --tau-f calendar=0.2 --shard-documents 6 --licence 'CC 0'"
    )
    # the command is one that the program takes, and asks for the same but for the limit
    again = json.loads(run(*shlex.split(command.replace(" build ", " plan "))[1:], "--json").out)
    assert (again["documents"], again["pilot"]) == (1, "")


def test_what_is_damaged_is_planned_again(few_documents: Path, as_built: Path, no_model: None) -> None:
    victim = sorted((as_built / "shards" / "score" / "calendar").glob("*.parquet"))[0]
    victim.write_bytes(victim.read_bytes()[:-9] + b"something")
    plan = plan_build(small_build(few_documents, as_built))
    damaged = [(one.stage, one.tool, one.because) for one in plan.shards if one.state == TO_DO]
    assert damaged == [("score", "calendar", ("damaged",))]
    assert not (as_built / "quarantine").exists()
