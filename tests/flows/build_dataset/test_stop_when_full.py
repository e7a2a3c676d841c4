"""`--stop-when-full`: a build of six documents, worked out by hand, with a model that answers from a script."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from wh_fixtures import snapshot_of

from flows.build_dataset.estimate import CACHED
from flows.build_dataset.flow import BuildResult, run_build
from flows.build_dataset.parameters import BuildParameters
from flows.build_dataset.plan import plan_build
from flows.build_dataset.resolve import resolve
from flows.build_dataset.what_if import materialise
from flows.build_dataset.what_if_query import ask
from tasks.shards.stage import Shard
from tasks.specs.example_limit import shard_order
from tests.support.commands import Run
from tests.support.scripted_lm import ScriptedLM, use_model
from tests.support.small_builds import small_build, write_jsonl
from tests.support.stage_runs import run_all
from toolformer_core.errors import ModelError
from toolformer_core.lm.base import ScoreRequest
from warehouse.commits import DataFile
from warehouse.gc import find_garbage
from warehouse.queries import stats
from warehouse.store import Store

Built = tuple[BuildResult, Path]

TEXT = "Of 30 apples 12 are red and 18 are green in box {}."
AT = TEXT.index(" 18")
ORDER = [s.name for s in shard_order([Shard(f"part-{n:05d}", DataFile("", "", 1, 1)) for n in range(6)], seed=0)]

# Document n is the shard `part-0000n`. In the order in which shards are taken, by their place in it, a call helps with:
#   place       0           1         2                      3           4           5
#   helps       calculator  calendar  calendar, calculator   calculator  calculator  calendar
# Two examples of each are enough. Calculator: 1 with place 0; at 2 calendar gains more at the same position, so it
# stays 1; 2 with place 3. Calendar: 1 with place 1, 2 with place 2. So calendar is annotated on places 0 to 2,
# calculator on 0 to 3, and places 4 and 5 not at all.
HELPS = [{"calculator"}, {"calendar"}, {"calendar", "calculator"}, {"calculator"}, {"calculator"}, {"calendar"}]
NOT_ANNOTATED = {ORDER[3]: ["calendar"], ORDER[4]: ["calculator", "calendar"], ORDER[5]: ["calculator", "calendar"]}


SCORED = sorted([("calculator", name) for name in ORDER[:4]] + [("calendar", name) for name in ORDER[:3]])


def helps(text: str) -> set[str]:
    return HELPS[ORDER.index(f"part-{int(text.split()[-1].rstrip('.')):05d}")]


def log_probs(asked: ScoreRequest) -> list[float]:
    """Of the text 3 nats a token; behind a call with its response that helps 1 nat, calendar's half a nat."""
    if "-> 18" in asked.prefix and "calculator" in helps(asked.text):
        return [-1.0] * asked.tokens
    return [-0.5 if "Today" in asked.prefix and "calendar" in helps(asked.text) else -3.0] * asked.tokens


class Model(ScriptedLM):
    """Scripted for all six documents; it may break after some scans."""

    def __init__(self, breaks_after: int = 1000) -> None:
        texts = [TEXT.format(n) for n in range(6)]
        said = {"calculator": ["Calculator(30 - 12)]"], "calendar": ["Calendar()]"]}
        super().__init__(
            {(tool, text): {AT: -0.1} for tool in said for text in texts},
            {(tool, text, AT): calls for tool, calls in said.items() for text in texts},
            log_probs,
        )
        self.left = breaks_after

    def scan(self, *asked: object, **more: object) -> Iterator[object]:  # type: ignore[override]
        self.left -= 1
        if self.left < 0:
            raise ModelError("the machine went down")
        return super().scan(*asked, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [{"text": TEXT.format(n), "url": f"https://news.example/2023/01/30/{n}.html"} for n in range(6)]
    return write_jsonl(tmp_path_factory.mktemp("corpus") / "corpus.jsonl", rows)


def asked(corpus: Path, data: Path, **changes: object) -> BuildParameters:
    own: dict[str, object] = {"shard_documents": 1, "top_k": 1, "samples": 1, "tau_f": {}, "max_examples": 2}
    return small_build(corpus, data, **{**own, "stop_when_full": True, **changes})


def scored_by_runs(store: Store) -> list[tuple[str, str]]:
    return sorted({(k.tool, k.shard) for one in store.runs() for k in one.commits if k.stage == "score"})


@pytest.fixture(scope="module")
def filled(prefect_server: None, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The build, one task at a time, and its data folder."""
    data = tmp_path_factory.mktemp("filled")
    with pytest.MonkeyPatch.context() as patch:
        use_model(patch, Model())
        return run_build(asked(corpus, data, workers=1)), data


def test_stages_stop_with_enough_examples_and_every_page_says_so(filled: Built, run: Run) -> None:
    result, data = filled
    assert (result.counts, result.examples) == ({"calculator": 2, "calendar": 2}, 4)
    store = Store(data)
    assemblies = {c.shard: c.config.get("not_annotated") for c in store.commits("assemble")}
    assert assemblies == {name: NOT_ANNOTATED.get(name) for name in ORDER}
    assert scored_by_runs(store) == SCORED

    found = stats(result.snapshot)
    assert found.conserved
    by = {(b.stage, b.tool, b.unit): b for b in found.balances}
    assert by["assemble", "", "documents"].dropped == {"not_annotated": 2}
    covered = [(c.tool, c.shards, c.of_shards, c.documents) for c in found.coverage]
    assert covered == [("calculator", 4, 6, 4), ("calendar", 3, 6, 3)]
    told = "calendar was annotated on 3 of 6 shards (3 of 6 documents)"
    assert told in run("stats", "--data", data).out
    assert [one["shards"] for one in json.loads(run("stats", "--data", data, "--json").out)["coverage"]] == [4, 3]
    assert told in run("what-if", "--tau", "calendar=0.1", "--data", data).out
    card = run("datasets", "cstar", "--data", data).out
    assert "- calendar: annotated on 3 of 6 shards" in card
    (ingested,) = store.commits("ingest")
    for place, says in ((2, False), (3, True)):
        (row,) = store.read(ingested.files[int(ORDER[place][-5:])]).to_pylist()
        explained = run("explain", row["doc_id"], "--data", data).out
        assert ("not annotated for calendar: " in explained) == says


def test_same_bytes_with_8_tasks(filled: Built, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_model(monkeypatch, Model())
    many = run_build(asked(corpus, tmp_path / "many", workers=8))
    assert many.version == filled[0].version
    store = Store(tmp_path / "many")
    done = {(commit.tool, commit.shard) for commit in store.commits("score")}
    # eight tasks, four shards of each tool, are begun at once: calendar's fourth for nothing, and of no use to anybody
    assert ("calendar", ORDER[3]) in done
    assert scored_by_runs(store) == SCORED
    unused = {f"commits/{one.id}.json" for one in store.commits("score") if (one.tool, one.shard) not in SCORED}
    assert unused <= {one.path for one in find_garbage(store)}


def test_same_bytes_if_it_breaks(filled: Built, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_model(monkeypatch, Model(breaks_after=3))
    with pytest.raises(ModelError, match="went down"):
        run_build(asked(corpus, tmp_path / "broken", workers=1))
    use_model(monkeypatch, Model())
    broken = run_build(asked(corpus, tmp_path / "broken", workers=2))
    assert broken.version == filled[0].version
    assert broken.skipped > 0


def test_a_plan_knows_where_stored_scores_stop(filled: Built, corpus: Path, tmp_path: Path) -> None:
    new = plan_build(asked(corpus, tmp_path / "new"))
    assert "--stop-when-full: calculator, calendar may have 2 examples earlier" in new.notes[0]
    assert len(new.shards) == 1 + 6 * 2 * 4 + 6  # nobody knows: as if all were to be annotated
    plan = plan_build(asked(corpus, filled[1]))
    assert (plan.nothing_to_do, plan.notes) == (True, ())
    assert sorted((one.tool, one.shard) for one in plan.shards if one.stage == "score") == SCORED


def test_other_thresholds_are_asked_of_the_annotated_part(filled: Built, tmp_path: Path) -> None:
    data = Path(shutil.copytree(filled[1], tmp_path / "data", ignore=shutil.ignore_patterns("prefect", "*.lock")))
    store = Store(data)
    strict = materialise(store, ask(snapshot_of(store), {"calendar": 9.0}), "strict")
    # without calendar's calls calculator's stands at place 2 as well: three examples, and a limit of two
    assert strict.counts == {"calculator": 2, "calendar": 0}
    assert "calendar: annotated on 3 of 6 shards" in strict.notes


def test_a_raised_limit_repeats_no_whole_shard(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_model(monkeypatch, Model())
    plain = {"tools": ["calculator"], "shard_documents": 2, "stop_when_full": False, "max_examples": 100}
    run_all(resolve(asked(corpus, tmp_path / "data", limit=4, **plain)))
    plan = plan_build(asked(corpus, tmp_path / "data", limit=6, **plain))
    assert {one.state for one in plan.shards if one.shard in ("part-00000", "part-00001")} == {CACHED}
