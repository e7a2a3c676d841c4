"""A build with chains, worked out by hand: the calendar says which year it is, the calculator goes on."""

import html
import json
import re
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from flows.build_dataset.estimate import CACHED
from flows.build_dataset.flow import BuildResult, run_build
from flows.build_dataset.parameters import BuildParameters
from flows.build_dataset.plan import plan_build
from flows.build_dataset.what_if import compare_by_shard, materialise
from flows.build_dataset.what_if_query import ask
from flows.report.judging import judgements
from tests.support.commands import Run
from tests.support.scripted_lm import ScriptedLM, use_model
from tests.support.small_builds import small_build, write_jsonl
from toolformer_core.errors import UsageError
from toolformer_core.lm.base import ScoreRequest
from viewer.app import make_app
from warehouse.queries import rows_of, stats
from warehouse.store import Store
from warehouse.what_if import what_if

Built = tuple[BuildResult, Path]

TEXT = "Of 30 apples 12 are red and 18 are green. The club, begun in 2000, is 23 years old."
AT = TEXT.index(" 23")
TODAY = " [Calendar() -> Today is Monday, January 30, 2023.]"
SUM = " [Calculator(2023 - 2000) -> 23]"
GUESS = " [Calculator(30 - 12) -> 18]"  # the first call that the calculator's prompt gives at this place

# Nats for each of the three tokens left, " 23 years old.": (5 + 4 + 3) / 15 = 0.8 of it is the loss.
NATS = {
    "": 5.0,
    TODAY: 4.0,  # the date alone: a gain of 0.8, which the calendar's tau_f of 1 does not keep
    GUESS: 5.0,
    TODAY + SUM: 1.0,  # L- is the first call's 3.2, so that the chain gains 3.2 - 0.8 = 2.4
    TODAY + GUESS: 4.0,
    GUESS + SUM: 4.5,  # 0.4: the calculator's tau_f of 0.5 does not keep it
    GUESS + TODAY: 5.0,
}


def log_probs(asked: ScoreRequest) -> list[float]:
    empty = " -> ]"  # e(c, eps): never better than without the call
    return [-NATS.get(asked.prefix, 5.0 if asked.prefix.endswith(empty) else 9.0)] * 3


def model() -> ScriptedLM:
    first = {"calculator": "Calculator(30 - 12)]", "calendar": "Calendar()]"}
    behind = {"calculator": "Calculator(2023 - 2000)]", "calendar": "Calendar()]"}
    samples = {(tool, TEXT, AT): [call] for tool, call in first.items()}
    samples |= {(t, TEXT[:AT] + z, AT + len(z)): [call] for t, call in behind.items() for z in (TODAY, GUESS)}
    return ScriptedLM({(tool, TEXT): {AT: -0.1} for tool in first}, samples, log_probs)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    row = {"text": TEXT, "url": "https://news.example/2023/01/30/a.html"}
    return write_jsonl(tmp_path_factory.mktemp("corpus") / "corpus.jsonl", [row])


def parameters(corpus: Path, data: Path, **changes: object) -> BuildParameters:
    own: dict[str, object] = {"top_k": 1, "samples": 1, "tau_f": {}, "workers": 1}
    return small_build(corpus, data, **{**own, **changes})


@pytest.fixture(scope="module")
def chained(prefect_server: None, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Built:
    data = tmp_path_factory.mktemp("chained")
    with pytest.MonkeyPatch.context() as patch:
        use_model(patch, model())
        return run_build(parameters(corpus, data, chain_depth=2)), data


def text_of(data: Path) -> str:
    (row,) = rows_of(data / "warehouse.duckdb", "SELECT text FROM examples")
    return str(row["text"])


def test_the_chain_is_kept_and_every_row_accounted_for(chained: Built) -> None:
    result, data = chained
    assert text_of(data) == TEXT[:AT] + TODAY + SUM + TEXT[AT:]
    assert result.counts == {"calculator": 1, "calendar": 1}
    found = stats(result.snapshot)
    assert found.conserved
    by = {(b.stage, b.tool, b.unit): b for b in found.balances}
    # two starts (each single call leaves 3.2 or 4 nats), two tools, one draw each; the calendar is asked once
    steps = [by["sample_2", tool, "samples"] for tool in ("calculator", "calendar")]
    assert [(step.rows_in, dict(step.dropped)) for step in steps] == [(2, {}), (2, {"repeated": 1})]
    assert by["assemble", "", "calls"].dropped == {"below_threshold": 2}
    assert (by["assemble", "", "chains"].rows_in, by["assemble", "", "chains"].kept) == (3, 1)
    assert by["assemble", "", "chains"].dropped == {"below_threshold": 2}


def test_what_a_response_was_is_known_at_the_next_depth(chained: Built) -> None:
    _, data = chained
    counted = {c.tool: c.counters["cache_hits"] for c in Store(data).commits("execute_2")}
    assert counted == {"calculator": 0, "calendar": 1}  # Calendar() with this document's date was asked before


def test_people_see_the_chain(chained: Built, run: Run) -> None:
    _, data = chained
    kept = rows_of(data / "warehouse.duckdb", "FROM kept_calls ORDER BY link")
    assert [(row["tool"], row["link"], row["links"]) for row in kept] == [("calendar", 1, 2), ("calculator", 2, 2)]
    assert [row["gain"] for row in kept] == [pytest.approx(2.4)] * 2
    assert [row["loss_response"] for row in kept] == [None, pytest.approx(0.8)]
    (row,) = rows_of(data / "warehouse.duckdb", "SELECT doc_id FROM documents")
    told = json.loads(run("explain", row["doc_id"], "--data", data, "--json").out)
    outcomes = {
        (*(one["tool"] for one in call.get("preceding_calls") or ()), call["tool"]): call["outcome"]
        for call in told["calls"]
    }
    assert outcomes["calendar", "calculator"] == "kept"
    assert outcomes["calendar",] == outcomes["calculator", "calculator"] == "below_threshold"
    assert "[calendar:" in run("explain", row["doc_id"], "--data", data).out
    sql = "SELECT DISTINCT stage, tool FROM lineage WHERE ends_with(stage, '_2')"
    assert len(rows_of(data / "warehouse.duckdb", sql)) == 6


def test_a_plan_knows_what_is_done_and_costs(chained: Built, corpus: Path, tmp_path: Path) -> None:
    _, data = chained
    done = plan_build(parameters(corpus, data, chain_depth=2))
    assert {shard.state for shard in done.shards} == {CACHED}
    fresh = plan_build(parameters(corpus, tmp_path / "none", chain_depth=2))
    assert any("at most 5 starts" in note for note in fresh.notes)


def test_without_chains_nothing_is_done_again_but_c_star(
    chained: Built, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, data = chained
    plan = plan_build(parameters(corpus, data))
    assert {shard.stage for shard in plan.shards if shard.state != CACHED} == {"assemble"}
    use_model(monkeypatch, model())
    own = tmp_path / "single"
    run_build(parameters(corpus, own, tau_f={"calendar": 0.5}))
    assert text_of(own) == TEXT[:AT] + TODAY + TEXT[AT:]
    keys = {c.key for c in Store(own).commits() if c.stage != "assemble"}
    assert keys <= {c.key for c in Store(data).commits()}
    files = [file for commit in Store(own).commits() for file in commit.files if file.is_result]
    assert not any("preceding_calls" in Store(own).read(file).column_names for file in files)


def test_other_thresholds_move_chains_and_their_first_calls(chained: Built, run: Run) -> None:
    result, data = chained
    store = Store(data)
    query = ask(result.snapshot, {"calculator": 3.0, "calendar": 0.5})  # the chain gains 2.4
    dataset = materialise(store, query, "other")
    (file,) = dataset.files
    (row,) = store.read(file).to_pylist()
    assert row["text"] == TEXT[:AT] + TODAY + TEXT[AT:]
    for tau, calls in (("calendar=0.5", [1, 1]), ("calculator=3,calendar=0.5", [0, 1])):  # the chain stays, or goes
        told = json.loads(run("what-if", "--tau", tau, "--data", data, "--json").out)
        assert [one["after"]["calls"] for one in told["changes"]] == calls  # of the calculator, of the calendar


def test_the_index_says_of_other_thresholds_what_all_scores_say(chained: Built) -> None:
    result, data = chained
    for taus in ({"calculator": 3.0, "calendar": 0.5}, {"calendar": 0.5}, {"calculator": 0.1, "calendar": 9.0}):
        query = ask(result.snapshot, taus)
        found = what_if(result.snapshot, query.before, query.after)
        assert found == compare_by_shard(Store(data), query)
        # only without the chain does the date stand alone
        assert [(one.tool, len(one.preceding_calls)) for one in found.goes] == [("calculator", 1)] * (
            3.0 in taus.values()
        )


def test_the_viewer_lists_and_judges_a_chain(chained: Built) -> None:
    _, data = chained
    client = TestClient(make_app(str(data)), base_url="http://127.0.0.1")
    kept = client.get("/calls?outcome=kept").text
    assert "</bdi>, then " in kept  # the first call stands in front of the second
    [there] = set(re.findall(r'href="(/documents/[^"#]+call=calendar%2Bcalculator%3A[0-9]+%3A0)', kept))
    assert "2.4" in client.get(html.unescape(there)).text  # its panel
    assert "</bdi>, then " in client.get("/thresholds?tau.calculator=3").text
    page = client.get("/judge?tool=calculator").text
    assert html.escape((TODAY + SUM).strip()) in page
    shown = dict(re.findall(r'name="(call|doc)" value="([^"]+)"', page))
    form = {**shown, "verdict": "accept", "back": "/judge"}
    answer = client.post("/ratings", data=form, headers={"origin": "http://127.0.0.1"}, follow_redirects=False)
    assert answer.status_code == 303
    [rated] = judgements(Store(data), data / "warehouse.duckdb").calls
    assert (rated.call.tool, rated.gain) == ("calculator", pytest.approx(2.4))


def test_chains_need_all_tools(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="chains need the responses of all tools"):
        plan_build(parameters(corpus, tmp_path, chain_depth=2, stop_when_full=True))
