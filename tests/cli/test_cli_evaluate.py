"""The commands `evaluate` and `tables`, through `main`, as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.commands import Run

ITEMS = [
    {"item_id": "a", "prompt": "Adding the 12 nuts to the 30 already here gives us", "answers": ["42"]},
    {"item_id": "b", "prompt": "Twice 8 is", "answers": ["16", "sixteen"], "tool": "calculator", "group": "product"},
    {"item_id": "c", "prompt": " ", "answers": ["nothing was asked"]},
]


@pytest.fixture
def items(tmp_path: Path) -> Path:
    path = tmp_path / "items.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ITEMS), encoding="utf-8")
    return path


def test_evaluate_and_tables_as_json_and_in_print(prefect_server: None, run: Run, items: Path, tmp_path: Path) -> None:
    asked = ["--path", items, "--data", tmp_path / "d", *"--tools calculator --k 1,0 --max-new-tokens 5".split()]
    asked = ["evaluate", "--task", "small-world", *asked]
    code, out, _ = run(*asked, "--json")
    assert code == 0
    told = json.loads(out)
    assert [(a["arm"], a["k"], a["items"]) for a in told["arms"]] == [("base", 0, 2), ("base+tools", 1, 2)]
    assert told["rejected"] == {"no_prompt": 1}
    assert "NaN" not in out
    code, out, _ = run(*asked)
    assert code == 0
    assert "The small world items.jsonl: percent right of 2 items" in out
    assert "base+tools, k=1" in out
    assert "0 shards worked on, 3 found done" in out
    assert "no_prompt 1" in out
    code, out, _ = run("tables", "--data", tmp_path / "d", "--json")
    assert code == 0
    assert [t["name"] for t in json.loads(out)][5:8] == ["Table 7", "§4.2", "Table 8"]
    code, out, _ = run("tables", "--data", tmp_path / "d")
    assert code == 0
    assert "toolformer evaluate --task svamp --path PATH --model embedded" in out
    assert "- / 29.4" in out
    code, _, err = run("tables", "--data", tmp_path / "d", "--model", "another")
    assert code == 1
    assert "nothing has been evaluated for the base model 'another'" in err
