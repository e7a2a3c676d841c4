"""OpenLineage events: they keep the rules, are the same each time, and arrive in a file or at a server."""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openlineage", reason="the extra `lineage` is not installed")

from dataclasses import asdict

from wh_fixtures import a_training

from flows.export.delivery import deliver
from flows.export.parameters import ExportParameters
from flows.lineage.events import as_json, events_of, run_id
from flows.lineage.select import steps_of
from flows.lineage.send import LineageError, send, send_run
from tests.flows.test_export import EXAMPLES, stored
from tests.support.commands import Run as Command
from tests.support.event_server import EventServer, event_server
from tests.support.openlineage_rules import check_event
from tests.support.small_builds import Built
from tests.support.small_chain import BEGAN, BUILD, JOB, chain
from toolformer_core.errors import UsageError
from toolformer_core.finetune.recipe import Recipe
from warehouse.commits import Run
from warehouse.records import exports, write_training
from warehouse.store import Store


@pytest.fixture(autouse=True)
def nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOOLFORMER_LINEAGE", "OPENLINEAGE_API_KEY", "OPENLINEAGE_URL", "OPENLINEAGE_DISABLED"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return chain(tmp_path / "data")


@pytest.fixture
def server() -> Iterator[EventServer]:
    with event_server() as running:
        yield running


def events(store: Store, **which: str) -> list[dict[str, Any]]:
    return [json.loads(as_json(event)) for event in events_of(steps_of(store, **which))]


def test_every_event_keeps_the_rules(store: Store) -> None:
    found = events(store)
    # 8 steps of the build, one training, one export, 3 of the evaluation; each begins and ends.
    assert len(found) == 2 * (8 + 1 + 1 + 3)
    for event in found:
        check_event(event)
    kinds = {event["run"]["facets"]["toolformer_run"]["kind"] for event in found}
    assert kinds == {"FLOW", "STAGE", "VERSION", "TRAINING", "EXPORT"}


def test_a_stage_begins_and_ends_as_one_run_within_the_flows(store: Store) -> None:
    start, end = (one for one in events(store, run=BUILD) if one["job"]["name"] == "build-dataset.sample.calculator")
    assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert start["run"]["runId"] == end["run"]["runId"] == run_id("build-dataset.sample.calculator", BUILD)
    parent = start["run"]["facets"]["parent"]
    assert (parent["run"]["runId"], parent["job"]["name"]) == (run_id("build-dataset", BUILD), "build-dataset")
    flow = events(store, run=BUILD)[0]
    assert (flow["run"]["runId"], flow["eventTime"]) == (parent["run"]["runId"], BEGAN)
    assert start["outputs"] == []
    (drawn,) = end["outputs"]
    statistics = drawn["outputFacets"]["outputStatistics"]
    assert (statistics["rowCount"], statistics["fileCount"]) == (2, 2)
    columns = {field["name"]: field["type"] for field in drawn["facets"]["schema"]["fields"]}
    assert (columns["doc_id"], columns["position"], columns["log_p"]) == ("string", "long", "double")
    read = {one["name"]: one.get("inputFacets", {}) for one in end["inputs"]}
    assert read[f"{store.root}/shards/ingest/_"]["inputStatistics"]["rowCount"] == 5
    assert read["gpt2"] == {}


@pytest.mark.parametrize(("state", "last"), [("running", "START"), ("failed", "FAIL"), ("cancelled", "ABORT")])
def test_how_a_run_ends(tmp_path: Path, state: str, last: str) -> None:
    found = events(chain(tmp_path / "data", state=state), run=BUILD)
    assert {one["eventType"] for one in found} == {"START", last}
    if state != "running":
        assert found[-1]["outputs"][0]["name"].endswith("shards/assemble/_")


def test_the_same_records_give_the_same_events(store: Store) -> None:
    assert events(store) == events(store)
    (run,) = store.runs([BUILD])
    store.write_run(replace(run, run_id="other"))
    mine, others = events(store, run=BUILD), events(store, run="other")
    assert not {one["run"]["runId"] for one in mine} & {one["run"]["runId"] for one in others}


def test_a_file_gets_each_event_once(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "new" / "events.ndjson"
    half = events_of(steps_of(store, run=BUILD))
    assert send(half, str(path)) == len(half) == 16
    everything = events_of(steps_of(store))
    assert send(everything, str(path)) == 26 - 16  # another run's are added
    written = path.read_bytes()
    assert send(events_of(steps_of(store)), str(path)) == 0
    assert path.read_bytes() == written
    read = [json.loads(line) for line in written.splitlines()]
    for event in read:
        check_event(event)
    named = [(event["job"]["name"], event["eventType"]) for event in read]
    assert sorted(named) == sorted((event.job.name, event.eventType.value) for event in everything)


def test_a_file_that_cannot_be_written(store: Store, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(LineageError, match="the events cannot be written to"):
        send(events_of(steps_of(store, run=JOB)), str(tmp_path / "file" / "events"))


def test_a_server_gets_every_event(store: Store, server: EventServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "of-these-tests")
    sent = events_of(steps_of(store))
    assert send(sent, server.url) == len(server.got) == 26
    for event in server.got:
        check_event(event)
    assert [one["run"]["runId"] for one in server.got] == [one.run.runId for one in sent]
    assert set(server.paths) == {"/api/v1/lineage"}
    assert set(server.keys) == {"Bearer of-these-tests"}
    monkeypatch.delenv("OPENLINEAGE_API_KEY")
    send(events_of(steps_of(store, run=JOB)), f"{server.url}/openapi/openlineage/api/v1/lineage")
    assert (server.paths[-1], server.keys[-1]) == ("/openapi/openlineage/api/v1/lineage", None)


def test_a_server_that_refuses_and_addresses_that_are_none(store: Store, server: EventServer) -> None:
    sent = events_of(steps_of(store, run=JOB))
    server.status = 403
    with pytest.raises(LineageError, match=r'not sent to .*: it answered 403: {"error": "so it was told"}'):
        send(sent, server.url)
    with pytest.raises(UsageError, match="set OPENLINEAGE_API_KEY instead") as refused:
        send(sent, "http://user:secret-word@host:5000")
    assert "secret-word" not in str(refused.value)
    with pytest.raises(UsageError, match="takes a file, or the address of a server"):
        send(sent, "kafka://host")


def test_a_flow_sends_its_run_if_the_environment_says_where(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "events.ndjson"
    send_run(store, BUILD)
    assert not path.exists()  # nowhere is the default
    monkeypatch.setenv("TOOLFORMER_LINEAGE", str(path))
    send_run(store, BUILD)
    assert len(path.read_text(encoding="utf-8").splitlines()) == 16
    monkeypatch.setenv("TOOLFORMER_LINEAGE", "kafka://host")
    send_run(store, BUILD)  # the run is done all the same
    assert "the run's lineage was not sent, the run is not affected: " in caplog.text


def test_a_recorded_run_sends_its_events(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from flows.runtime.ledger import open_run

    path = tmp_path / "events.ndjson"
    monkeypatch.setenv("TOOLFORMER_LINEAGE", str(path))
    with open_run(store, Run("r9", "build-dataset", BEGAN, None, "running", {}, "c", "m")):
        assert not path.exists()
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [(one["job"]["name"], one["eventType"]) for one in found] == [
        ("build-dataset", "START"),
        ("build-dataset", "COMPLETE"),
    ]


def test_an_export_is_recorded_once_and_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, path = stored(tmp_path / "data", EXAMPLES), tmp_path / "events.ndjson"
    monkeypatch.setenv("TOOLFORMER_LINEAGE", str(path))
    out = tmp_path / "out.jsonl"
    deliver(ExportParameters(data=store.root, out=str(out)))
    (export,) = exports(store).values()
    assert (export.format, export.folder, export.repository) == ("jsonl", str(tmp_path), None)
    end = json.loads(path.read_text(encoding="utf-8").splitlines()[-1])
    assert end["job"]["name"] == "export.jsonl"
    (rows, card) = end["outputs"]
    assert (rows["name"], rows["outputFacets"]["outputStatistics"]["rowCount"]) == (str(out), 3)
    assert rows["facets"]["toolformer_dataset"]["sha256"] == export.files[0]["sha256"]
    assert card["name"].endswith("out.card.md")
    for part in tmp_path.glob("out.*"):
        part.unlink()
    deliver(ExportParameters(data=store.root, out=str(out)))
    assert len(exports(store)) == 1
    assert len(path.read_text(encoding="utf-8").splitlines()) == 2


def test_the_command(run: Command, store: Store, tmp_path: Path, server: EventServer) -> None:
    asked = ["lineage", "--data", store.root]
    said = run(*asked, "--run", JOB)
    assert said.code == 0
    assert said.out.splitlines()[0] == f"finetune.toolformer  ({JOB})"
    assert f"    -> {store.root}/finetunes/{JOB}/model  @0123456789abcdef" in said.out.splitlines()
    told = json.loads(run(*asked, "--run", BUILD, "--json").out)
    assert told == events(store, run=BUILD)
    path = tmp_path / "events.ndjson"
    said = run(*asked, "--dataset", "cstar", "--to", path)
    assert said.out == f"20 events of 10 runs of jobs, 20 sent to {path}\n"
    assert json.loads(run(*asked, "--to", server.url, "--json").out) == {"events": 26, "sent": 26, "to": server.url}
    for wrong, says in (
        (["--run", BUILD, "--dataset", "cstar"], "error: give --run or --dataset, not both"),
        (["--run", "none"], "error: unknown run 'none'"),
    ):
        said = run(*asked, *wrong)
        assert (said.code, said.out) == (2, "")
        assert said.err.startswith(says)


def test_without_the_client(run: Command, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openlineage", None)
    assert run("lineage", "--data", store.root).code == 0
    said = run("lineage", "--data", store.root, "--to", "events.ndjson")
    assert said.code == 2
    assert said.err.startswith("error: OpenLineage events need the package openlineage-python; run: ")


def test_the_chain_of_a_build(built: Built, as_built: Path) -> None:
    result = built[0]
    store = Store(as_built)
    given = {"version": result.version, "recipe": asdict(Recipe(steps=2)), "checkpoint": "finetunes/job/model"}
    job = f"{result.dataset}-toolformer-0123456789abcdef"
    write_training(store, a_training(job, **given, finished="2100-01-01T00:00:00.000000+00:00"))
    events = [json.loads(as_json(event)) for event in events_of(steps_of(store, dataset=result.dataset))]
    for event in events:
        check_event(event)
    ends = [event for event in events if event["eventType"] == "COMPLETE"]
    made_from = {
        made["name"]: [read["name"] for read in event["inputs"]] for event in ends for made in event["outputs"]
    }
    # From the checkpoint back, everything has a maker but the corpus and the model.
    seen, left = set(), [f"{store.root}/finetunes/job/model"]
    while left:
        name = left.pop()
        seen.add(name)
        left += [one for one in made_from.get(name, []) if one not in seen]
    (run,) = store.runs([result.run_id])
    assert {name for name in seen if name not in made_from} == {run.corpus, "models/embedded"}
    tables = {name.removeprefix(f"{store.root}/shards/") for name in seen if "/shards/" in name}
    stages = ("prefilter", "sample", "execute", "score")
    assert tables == {
        "ingest/_",
        "assemble/_",
        *(f"{stage}/{tool}" for stage in stages for tool in ("calculator", "calendar")),
    }
    assert f"{store.root}/datasets/cstar" in seen
