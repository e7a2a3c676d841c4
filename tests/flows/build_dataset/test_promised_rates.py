"""`--tau-f fdr=...`: a build of twelve documents, worked out by hand, with a scripted model."""

import json
import re
from pathlib import Path

import pytest

from flows.build_dataset.flow import BuildResult, run_build
from flows.build_dataset.parameters import BuildParameters, build_command
from flows.build_dataset.plan import plan_build
from flows.build_dataset.record import BuildRecord
from flows.build_dataset.resolve import resolve
from flows.build_dataset.what_if import materialise, thresholds_for
from flows.build_dataset.what_if_query import ask
from tasks.shards import arrow as translate
from tests.support.commands import Run
from tests.support.scripted_lm import ScriptedLM, use_model
from tests.support.small_builds import small_build, write_jsonl
from toolformer_core.errors import UsageError
from toolformer_core.lm.base import ScoreRequest
from warehouse.queries import rows_of, stats
from warehouse.store import Store

Built = tuple[BuildResult, Path]

TEXT = "Of {} apples 12 are red and {} are green in box {}."
TEXTS = [TEXT.format(30 + n, 18 + n, n) for n in range(12)]
AT = TEXTS[0].index(" 18")
_IS_TABLE = "SELECT table_type FROM information_schema.tables WHERE table_name = 'chain_scored'"


def log_probs(asked: ScoreRequest) -> list[float]:
    """3 nats a token; 1 behind the right response in box 0 to 8, 2.6 in box 9 to 11, 2.8 behind a wrong one.

    So right calls gain 2 or 0.4, and decoys 0.2.
    """
    box = int(asked.text.split()[-1].rstrip("."))
    if asked.prefix.endswith("-> ]") or not asked.prefix:
        return [-3.0] * asked.tokens
    if not asked.prefix.endswith(f"-> {18 + box}]"):
        return [-2.8] * asked.tokens
    return [-1.0 if box < 9 else -2.6] * asked.tokens


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> None:
    use_model(monkeypatch, scripted())


def scripted() -> ScriptedLM:
    return ScriptedLM(
        {("calculator", text): {AT: -0.1} for text in TEXTS},
        {("calculator", text, AT): [f"Calculator({30 + n} - 12)]"] for n, text in enumerate(TEXTS)},
        log_probs,
    )


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_jsonl(tmp_path_factory.mktemp("corpus") / "corpus.jsonl", TEXTS)


def asked(corpus: Path, data: Path, **changes: object) -> BuildParameters:
    own: dict[str, object] = {"tools": ["calculator"], "shard_documents": 6, "top_k": 1, "samples": 1}
    return small_build(corpus, data, **{**own, "tau_f": "fdr=0.1", **changes})


@pytest.fixture(scope="module")
def promised(prefect_server: None, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Built:
    data = tmp_path_factory.mktemp("promised")
    with pytest.MonkeyPatch.context() as patch:
        use_model(patch, scripted())
        return run_build(asked(corpus, data)), data


def test_the_threshold_keeps_what_the_papers_would_not(promised: Built, run: Run) -> None:
    # Twelve calls and three decoys each. At 0.2 all 36 decoys and all 12 calls pass: the rate is 1. Above, none does.
    # So the next call's gain is the threshold, 0.4, where the paper's 0.5 would keep nine.
    result, data = promised
    assert (result.thresholds["calculator"], result.counts, result.examples) == (0.4, {"calculator": 12}, 12)
    store = Store(data)
    (found,) = BuildRecord.of_run(store, result.run_id).found
    assert (found.tool, found.promised, found.reason) == ("calculator", 0.1, "")
    assert found.tau_f == result.thresholds["calculator"]
    assert (found.at.calls, found.at.decoys, found.at.of_decoys) == (12, 0, 36)
    card = run("datasets", "cstar", "--data", data).out
    assert re.search(r"\| calculator \| 0.1 \| .* 12 of 12 \|", card)


def test_decoys_are_stored_with_the_scores_and_counted(promised: Built) -> None:
    _, data = promised
    store = Store(data)
    tables = [store.read(commit.files[0]) for commit in store.commits("score")]
    calls = [call for table in tables for call in translate.scored_of(table, decoys=True)]
    assert [call.decoy_gains for call in calls] == [pytest.approx((0.2, 0.2, 0.2))] * 12
    counted = [[one.counters[name] for name in ("decoys", "decoys_from_reserve")] for one in store.commits("score")]
    assert counted == [[18, 0]] * 2


def test_the_same_build_again_finds_all_done(promised: Built, corpus: Path, model: None) -> None:
    result, data = promised
    assert plan_build(asked(corpus, data)).nothing_to_do
    again = run_build(asked(corpus, data))
    assert (again.done, again.version, again.made) == (0, result.version, result.made)


def test_the_rate_at_any_threshold_is_asked_in_sql(promised: Built, run: Run) -> None:
    result, data = promised
    for tau, expected in ((0.1, (12, 36, 1.0)), (0.3, (12, 0, 0.0)), (3.0, (0, 0, None))):
        (row,) = rows_of(result.snapshot, f"SELECT tool, calls, decoys, rate FROM false_discovery_rate({tau})")
        assert tuple(row.values()) == ("calculator", *expected)
    assert "Estimated rate of false discoveries" in run("stats", "--data", data).out
    said = json.loads(run("stats", "--data", data, "--json").out)["false_discovery_rates"]
    assert [one["rate"] for one in said] == [0.0, 0.0, 0.0]  # at 0.5, 1 and 2


def test_what_if_finds_thresholds_without_a_model(promised: Built, run: Run) -> None:
    result, data = promised
    store = Store(data)
    strict, loose = thresholds_for(store, result.snapshot, [0.01, 0.2])
    assert (strict.reason, loose.reason) == ("too_few", "")  # 0.01 of 36 decoys are fewer than 3
    assert strict.tau_f == loose.tau_f == result.thresholds["calculator"]  # its own is the one that was found
    assert "too few calls" in run("what-if", "--fdr", "0.01,0.2", "--data", data).out
    one = json.loads(run("what-if", "--fdr", "0.2", "--data", data, "--json").out)
    assert [found["promised"] for found in one["found"]] == [0.2]
    assert run("what-if", "--fdr", "0.1,0.2", "--materialise", "x", "--data", data).code == 2
    assert run("what-if", "--fdr", "1.5", "--data", data).code == 2


def test_scores_with_decoys_are_assembled_by_a_rate(promised: Built, corpus: Path, tmp_path: Path, model: None) -> None:
    paper = run_build(asked(corpus, tmp_path, tau_f={}, decoys=3))
    assert (paper.examples, paper.thresholds["calculator"]) == (9, 0.5)
    store = Store(tmp_path)
    (found,) = thresholds_for(store, paper.snapshot, [0.1])
    made = materialise(store, ask(paper.snapshot, {"calculator": found.tau_f}), "promised")
    assert made.version == promised[0].version


def test_without_decoys_there_is_nothing_to_promise(as_built: Path) -> None:
    snapshot = as_built / "warehouse.duckdb"
    assert stats(snapshot).rates == ()
    with pytest.raises(UsageError, match="with --decoys 3"):
        thresholds_for(Store(as_built), snapshot, [0.05])


def test_a_rate_is_for_all_tools_or_for_one(corpus: Path, tmp_path: Path) -> None:
    def rates(tau_f: str) -> dict[str, float]:
        chosen = ["calculator", "qa", "calendar"]
        return dict(resolve(asked(corpus, tmp_path, tools=chosen, tau_f=tau_f)).rates)

    assert rates("fdr=0.05") == dict.fromkeys(["calculator", "qa", "calendar"], 0.05)
    assert rates("qa=fdr=0.1") == {"qa": 0.1}
    assert rates("qa=fdr=0.1,fdr=0.05,calculator=0.7") == {"qa": 0.1, "calendar": 0.05}
    written = build_command(asked(corpus, tmp_path, tau_f="qa=fdr=0.1,fdr=0.05,calculator=0.7"))
    assert "--tau-f calculator=0.7,qa=fdr=0.1,all=fdr=0.05" in written


@pytest.mark.parametrize("wrong", ["fdr=0", "fdr=1", "fdr=x", "qa=fdr=2", "all=0.5"])
def test_what_is_no_rate_is_refused(corpus: Path, tmp_path: Path, wrong: str) -> None:
    with pytest.raises(ValueError, match=r"fdr|all"):
        asked(corpus, tmp_path, tau_f=wrong)


def test_what_cannot_be_promised_is_said_before_anything_runs(corpus: Path, tmp_path: Path) -> None:
    for changes, says in (
        ({"decoys": 0}, "--decoys 0 scores none"),
        ({"stop_when_full": True}, "--stop-when-full counts examples"),
        ({"tau_f": "wiki=fdr=0.1"}, "unknown tool 'wiki'"),
    ):
        with pytest.raises(UsageError, match=says):
            resolve(asked(corpus, tmp_path, **changes))
