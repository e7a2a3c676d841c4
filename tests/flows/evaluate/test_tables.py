"""The paper's tables, over evaluations written by hand: figures of other items never stand side by side."""

from pathlib import Path
from typing import Any

import pytest
from wh_fixtures import make_run, put, scored, snapshot_of

from flows.evaluate.tables import paper_tables
from flows.report.tables import Cell, ResultTable
from warehouse.ratings import CallIdentity, Verdict, add_ratings, read_ratings
from warehouse.store import Store


class Written:
    """A warehouse of evaluations, one an hour."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder)
        self.hour = 0

    def evaluated(self, task: str, source: str, right: int, items: int, tools: str = "", **more: Any) -> None:
        """Toolformer, or another `arm`, on items of a file, of which some are right; the first items call `tools`.

        It is the newest. `more`: arm, k, max_calls; limit and state of the run.
        """
        self.hour += 1
        run = {"parameters": {"limit": more.pop("limit", None)}, "state": more.pop("state", "completed")}
        arm = {"task": task, "arm": "toolformer", "k": 10, **more}
        own = {"evaluation": "-".join(map(str, [*arm.values(), source])), **arm}
        rows = [{**own, "item_id": str(n), "correct": n < right} for n in range(items)]
        for row, tool in zip(rows, tools.split(), strict=False):
            row |= {"called": True, "tool": tool}
        models = {"model": "m", "base": "embedded", "model_digest": "d1", "base_digest": "d0"}
        about = {"config": {**own, **models, "source": source, "path": f"/{source}"}, "parts": {"hour": str(self.hour)}}
        commit = put(self.store, "evaluate", "", f"{own['evaluation']}-0", rows, **about)
        started = f"2024-05-02T{self.hour:02}:00:00+00:00"
        self.store.write_run(make_run(f"r{self.hour}", [commit.key], started, flow="evaluate", **run))

    def tables(self) -> dict[str, ResultTable]:
        tables = paper_tables(snapshot_of(self.store), "d", ratings=read_ratings(self.store)[0])
        return {t.name: t for t in tables}


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path)


def svamp(table: ResultTable) -> tuple[Cell, ...]:
    """Our figures of SVAMP: of the base, of Toolformer, and of Toolformer with tools off."""
    ours = {row[0]: row[3] for row in table.rows}  # of arm, ASDiv, paper, SVAMP, paper, ...
    return ours["base"], ours["toolformer, k=10"], ours["toolformer-disabled"]


def test_a_column_holds_figures_of_the_items_asked_last_alone(written: Written) -> None:
    written.evaluated("svamp", "whole.json", 1, 4, arm="base", k=0)
    written.evaluated("svamp", "whole.json", 3, 4)
    written.evaluated("svamp", "part.json", 1, 2, arm="toolformer-disabled", k=0)
    table = written.tables()["Table 4"]
    assert svamp(table) == (None, None, 50.0)  # 1 of 2; the others were not asked part.json
    assert table.notes == ("SVAMP: 2 items of part.json", "SVAMP: 4 items of whole.json, measured before: not shown")
    assert any("--path /part.json" in m and "--arms base,cc,base+tools,toolformer " in m for m in table.missing)
    written.evaluated("svamp", "whole.json", 2, 4)  # the file of four is the last one now, and base stands again
    assert svamp(written.tables()["Table 4"]) == (25.0, 50.0, None)


def test_fewer_items_of_the_same_file_are_other_items(written: Written) -> None:
    written.evaluated("svamp", "whole.json", 1, 4, arm="base", k=0)
    written.evaluated("svamp", "whole.json", 1, 2)  # --limit 2
    assert svamp(written.tables()["Table 4"]) == (None, 50.0, None)


def test_the_tables_hold_evaluations_of_one_call_per_item_as_the_papers_do(written: Written) -> None:
    written.evaluated("svamp", "whole.json", 1, 4)
    written.evaluated("svamp", "whole.json", 3, 4, max_calls=8)
    tables = written.tables()
    assert svamp(tables["Table 4"]) == (None, 25.0, None)
    assert [row[2] for row in tables["Table 9"].rows if row[:2] == ("SVAMP", 10)] == [25.0]


def commands(table: ResultTable, task: str) -> list[str]:
    return [command for command in table.missing if f"--task {task} " in command]


def test_a_command_asks_for_as_many_items_as_were_asked_last(written: Written) -> None:
    asked = "toolformer evaluate --task svamp --path /whole.json"
    for items, limit, option in ((4, None, ""), (2, 2, " --limit 2")):
        written.evaluated("svamp", "whole.json", 1, items, arm="base", k=0, limit=limit)
        [command] = commands(written.tables()["Table 4"], "svamp")
        assert command.startswith(f"{asked}{option} --model embedded ")
    # Table 9: of the four k there is none; another task, of which nothing is known, is asked whole
    written.evaluated("webqs", "webqs.json", 1, 3, limit=3)
    table = written.tables()["Table 9"]
    assert [" --limit 3 " in command for command in commands(table, "webqs")] == [True]
    assert not any("--limit" in command for command in table.missing if "--task webqs" not in command)


def test_a_run_that_failed_says_nothing_of_how_many_items_compare(written: Written) -> None:
    written.evaluated("svamp", "whole.json", 1, 4, arm="base", k=0, limit=4)
    written.evaluated("svamp", "whole.json", 1, 9, arm="base", k=0, limit=9, state="failed")
    [command] = commands(written.tables()["Table 4"], "svamp")
    assert " --limit 4 " in command


def test_decoding_with_k_has_a_group_of_rows_for_each_set_of_items(written: Written) -> None:
    written.evaluated("small-world", "", 3, 4, k=1)
    written.evaluated("small-world", "", 2, 4, k=10)
    written.evaluated("small-world", "heldout.jsonl.gz", 1, 2, k=10)
    written.evaluated("small-world", "heldout.jsonl.gz", 0, 2, arm="toolformer-disabled", k=0)
    written.evaluated("webqs", "webqs.json", 1, 1, k=10)
    table = written.tables()["Table 9"]
    own, other = "The small world: 4 items of its own", "The small world: 2 items of heldout.jsonl.gz"
    rows = [row for row in table.rows if str(row[0]).startswith("The small world")]
    assert [row[:3] for row in rows] == [
        *((own, 0, None), (own, 1, 75.0), (own, 3, None), (own, 10, 50.0)),
        *((other, 0, 0.0), (other, 1, None), (other, 3, None), (other, 10, 50.0)),
    ]
    # of a task with a single set the title suffices; how many items they are stands below
    assert [row[:4] for row in table.rows if row[1] == 10 and row[2] == 100.0] == [("WebQuestions", 10, 100.0, 26.3)]
    assert table.notes[:3] == ("WebQuestions: 1 items of webqs.json", own, other)


def test_a_point_of_figure_4_is_a_mean_over_the_items_asked_last(written: Written) -> None:
    for task in ("asdiv", "svamp", "mawps"):
        written.evaluated(task, "whole.json", 1, 4, arm="base", k=0)
        written.evaluated(task, "whole.json", 2, 4)
    figure = written.tables()["Figure 4"]
    assert dict(zip(figure.columns, figure.rows[0], strict=True))["math base"] == 25.0
    written.evaluated("mawps", "part.json", 1, 1)
    figure = written.tables()["Figure 4"]
    point = dict(zip(figure.columns, figure.rows[0], strict=True))
    assert point["math base"] is None  # of mawps the base has not been asked part.json
    assert point["math on"] == pytest.approx((50 + 50 + 100) / 3)


def test_the_shares_of_items_with_a_call_stand_beside_the_papers(written: Written) -> None:
    written.evaluated("lama-squad", "squad", 0, 4, tools="qa qa qa")
    written.evaluated("lama-trex", "trex", 0, 4, tools="qa qa qa qa")
    written.evaluated("mlqa-de", "mlqa", 0, 2, tools="mt")
    written.evaluated("dateset", "", 0, 2, tools="calendar qa")

    def shares() -> dict[str, list[tuple[Any, ...]]]:
        rows = written.tables()["§4.2"].rows
        return {str(row[0]): [other[1:] for other in rows if other[0] == row[0]] for row in rows}

    # of LAMA's three tasks one has not been run: no share of all three
    assert shares()["LAMA"] == [("qa", None, 98.1), ("other", None, 0.7), ("none", None, 1.2)]
    written.evaluated("lama-google-re", "re", 0, 2, tools="qa calculator")
    told = shares()
    # of 4 + 4 + 2 items QA was called for 3 + 4 + 1, another tool for 1, and none for 1
    assert told["LAMA"] == [("qa", 80.0, 98.1), ("other", 10.0, 0.7), ("none", 10.0, 1.2)]
    assert told["math"] == [("calculator", None, 97.9)]
    assert told["QA"] == [("wikisearch", None, 99.3)]
    assert told["MLQA German"] == [("mt", 50.0, "63.8 to 94.9")]
    assert told["MLQA Hindi"] == [("mt", None, 7.3)]
    assert told["TempLAMA"] == [("calendar", None, 0.2)]
    assert told["Dateset"] == [("calendar", 50.0, 54.8)]


def test_what_people_say_of_a_call_stands_beside_its_gain(written: Written) -> None:
    document = put(written.store, "ingest", "", "s0", [{"doc_id": "d1", "text": "1 + 1 is 2"}])
    calls = [scored("d1", "calculator", 3, 1.5), scored("d1", "calculator", 5, 0.1)]
    commit = put(written.store, "score", "calculator", "s0", calls)
    written.store.write_run(make_run("r0", [document.key, commit.key]))
    said: dict[int, tuple[Verdict, ...]] = {3: ("accept", "accept", "reject"), 5: ("accept", "reject")}
    for position, verdicts in said.items():
        for user, verdict in zip("abc", verdicts, strict=False):
            add_ratings(written.store, user, [(CallIdentity("d1", "calculator", position, "1 + 1", "2"), verdict)])
    table = written.tables()["Table 10"]
    assert table.columns == ("tool", "paper", "ours", "judged", "our call")
    rows = [row[1:4] for row in table.rows if row[0] == "calculator"]
    # two of three accept the one, one of two the other
    assert rows == [(1.59, pytest.approx(1.5), "right"), (-0.02, pytest.approx(0.1), "open")]
    assert {row[3] for row in table.rows if row[0] != "calculator"} == {None}


def test_a_table_says_in_what_it_differs_from_the_papers(written: Written) -> None:
    notes = {name: " ".join(table.notes) for name, table in written.tables().items()}
    reworded = {name for name, told in notes.items() if "in words of our own" in told}
    # math and question answering are asked in App. C's form itself
    assert reworded == {"Table 3", "Table 6", "Table 7", "§4.2", "Table 9", "Figure 4"}
    assert all(told in notes["Figure 4"] for told in ("--tools qa,calculator,wikisearch", "at about 775 M"))
