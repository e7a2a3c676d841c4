"""`toolformer marks`: what it tells and writes."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.commands import Run
from warehouse.marks import CallIdentity, add_marks
from warehouse.queries import rows_of
from warehouse.store import Store

KEPT = 'SELECT doc_id, tool, "position", input, response FROM kept_calls ORDER BY ALL LIMIT 2'


def test_precision_agreement_and_a_file(run: Run, as_built: Path, tmp_path: Path) -> None:
    nothing = run("marks", "--data", as_built)
    assert (nothing.code, nothing.out) == (0, "nobody has judged a call yet: toolformer view, page Judge\n")
    store = Store(as_built)
    one, other = (CallIdentity(**row) for row in rows_of(as_built / "warehouse.duckdb", KEPT))
    unknown = CallIdentity("d", one.tool, 0, "x", "y")
    add_marks(store, "[b]a", [(one, "accept"), (other, "reject"), (unknown, "reject")])
    add_marks(store, "b", [(one, "accept")])
    out = tmp_path / "judged.jsonl"
    said = run("marks", "--data", as_built, "--tau", "-9", "--export", out)
    assert said.code == 0, said.err
    assert "3 marked calls; of [b]a 3, b 1" in said.out
    assert "1 of them are not among the current scores" in said.out
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["doc_id"], row["judgement"]) for row in rows] == sorted(
        [(one.doc_id, "right"), (other.doc_id, "wrong"), ("d", "wrong")]
    )
    assert rows[0].keys() == {*("doc_id", "tool", "position", "input", "response"), *("gain", "verdicts", "judgement")}
    found = json.loads(run("marks", "--data", as_built, "--tau", "-9", "--json").out)
    assert (found["calls"], found["users"]) == (3, {"[b]a": 3, "b": 1})
    lowest = [(p["tool"], p["right"], p["wrong"]) for p in found["precisions"] if p["tau_f"] == -9]
    expected = {one.tool: [0, 0], other.tool: [0, 0]}
    expected[one.tool][0] += 1
    expected[other.tool][1] += 1
    assert lowest == [(tool, *counts) for tool, counts in sorted(expected.items())]


def test_mistakes(run: Run, as_built: Path, tmp_path: Path) -> None:
    assert "no list of numbers" in run("marks", "--data", as_built, "--tau", "high").err
    (tmp_path / "there").touch()
    there = run("marks", "--data", as_built, "--export", tmp_path / "there")
    assert (there.code, "exists already" in there.err) == (2, True)
    nobody = run("what-if", "--ratings", "accepted", "--data", as_built)
    assert (nobody.code, "nobody has accepted a call" in nobody.err) == (2, True)
