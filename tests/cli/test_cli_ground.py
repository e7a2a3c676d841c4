"""The command `ground`: what it prints, what it says to mistakes, and its one JSON object."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cli.render.grounding import print_grounding
from flows.ground.metrics import LibrarySize
from tests.flows.ground.test_ground_tables import figures, result, share
from tests.support.commands import Run
from toolformer_core.evaluate.queries import Rejection

HALF = share(2)
RESULT = result(
    figures("svamp", 2, rejected={"no_answer": 2}, by_paper={"gear": HALF, "cosine": HALF}),
    threshold=0.4,
    confusion={"gear": {"svamp": {"calculator": 3, "no tool": 1}}},
    sizes=(LibrarySize(1, 4, {"gear": HALF}), LibrarySize(2, 4, {"gear": HALF})),
    rejection=Rejection(0.4, 0.25, float("nan"), HALF),
    skipped=4,
)


def test_the_result_is_printed_with_the_papers_figures(capsys: pytest.CaptureFixture[str]) -> None:
    print_grounding(RESULT)
    said = " ".join(capsys.readouterr().out.split())
    for words in (
        "GEAR Table 4. Right tool chosen, percent of queries (ours / the paper's)",
        *("svamp 50.0 / 89.0", "no tool 1"),  # the second in the confusion matrix
        "ground 6.0 0.0 100.0 2.5 500.0",  # per query: calls, tokens, calls of tools, milliseconds
        "No tool below a score of 0.4: precision 25.0 %, recall - %.",
        "svamp: rows left out: no_answer 2",
    ):
        assert words in said
    print_grounding(replace(RESULT, sizes=RESULT.sizes[:1]))  # of one size there is nothing to compare
    assert ("by size of the library" in said, "by size of the" in capsys.readouterr().out) == (True, False)


def test_credentials_in_a_models_url_are_refused(run: Run, tmp_path: Path) -> None:
    words = ("--task", "small-world", "--model", "vllm+http://user:pw@host/v1#m")
    said = run("ground", *words, "--data", tmp_path / "data")
    assert (said.code, said.out, "credentials" in said.err) == (2, "", True)
    assert not (tmp_path / "data").exists()


@pytest.mark.slow
def test_json_is_one_object_with_all_figures_and_the_papers(run: Run, prefect_server: None, tmp_path: Path) -> None:
    queries = tmp_path / "queries.jsonl"
    rows = [{"query": f"How much is {n} + 1?", "tools": ["calculator"], "answers": [str(n + 1)]} for n in range(5)]
    queries.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ("--tools", "calculator,calendar", "--max-answer-tokens", 4, "--max-call-tokens", 8, "--no-answers")
    said = run("ground", "--task", f"queries={queries}", *options, "--data", tmp_path / "data", "--json")
    assert said.code == 0, said.err
    told = json.loads(said.out)
    assert (told["tools"], told["done"]) == (["calculator", "calendar"], 1 + 1 + 1)
    (task,) = told["tasks"]
    assert (task["queries"], set(task["chosen"]), task["answered"]) == (2, {"gear", "cosine", "lm"}, {})
    assert told["tables"][0]["name"] == "GEAR Table 4"


SHARED = "Fadroko Girkor shared 6732 shells among 34 friends, and each got"


def test_one_query_is_ranked_with_a_reason(run: Run) -> None:
    said = run("ground", SHARED, "--tools", "calculator,calendar", "--date", "2024-03-01")
    assert said.code == 0, said.err
    shown = " ".join(said.out.split())
    assert "6732 / 34 198" in shown  # the call, and the tool's preliminary answer
    assert "Today is Friday, March 1, 2024." in shown
    assert "Without a tool the small LM answers: " in shown
    assert "Chosen: calculator is " in shown


def test_one_query_is_answered_and_told_to_machines(run: Run) -> None:
    words = (SHARED, "--tools", "calculator,calendar", "--mock", "calendar", "--date", "2024-03-01")
    told = json.loads(run("ground", "query", *words, "--answer", "--json").out)
    assert (told["grounded"]["tool"], told["call"], told["text"]) == ("calculator", "6732 / 34", "198")
    by_tool = {one["tool"]: one for one in told["grounded"]["tools"]}
    assert by_tool["calendar"]["mock"]
    assert by_tool["calendar"]["response"] != "Today is Friday, March 1, 2024."


def test_the_group_says_what_it_is_short_for(run: Run) -> None:
    said = run("ground", "--help")
    assert all(word in said.out for word in ("query", "benchmarks", "How far is"))
