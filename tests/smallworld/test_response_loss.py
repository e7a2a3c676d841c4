"""The report on the loss on responses: a page from figures made up here."""

from __future__ import annotations

from typing import Any

from benchmarks.response_loss import report
from toolformer_core.config import TOOL_NAMES


def model(right: int, disabled: int, called: int, perplexity: float) -> dict[str, Any]:
    rows = [
        {"arm": arm, "k": k, "tool": tool, "new": new, "items": 10, "right": of - new, "called": of}
        for arm, k, of in (("toolformer", 10, right), ("toolformer-disabled", 0, disabled))
        for tool in TOOL_NAMES
        for new in (False, True)
    ]
    return {"answers": rows, "needless": {"toolformer 10": {"items": 50, "called": called}}, "perplexity": perplexity}


def seed(more: int) -> dict[str, Any]:
    on, off = model(6 + more, 3, 10, 8.0 + more), model(8, 1, 20, 9.0)
    return {"kept": dict.fromkeys(TOOL_NAMES, 30), "models": {"on": on, "off": off}}


def test_the_page_compares_both_settings_by_seed_and_by_tool() -> None:
    page = report({"240 documents": {"1": seed(0), "2": seed(2)}})
    # on: 6 and 8 of 10 known items are right, 5 and 7 of new ones; 10 of 50 plain items have a call
    assert "| on | k = 10 | 70.0 (60.0 to 80.0) | 60.0 (50.0 to 70.0) | 20.0 (20.0 to 20.0) |  |" in page
    assert "| on | disabled | 30.0 (30.0 to 30.0) | 20.0 (20.0 to 20.0) | - | 9.00 (8.00 to 10.00) |" in page
    assert "| off | k = 10 | 80.0 (80.0 to 80.0) | 70.0 (70.0 to 70.0) | 40.0 (40.0 to 40.0) |  |" in page
    # of both seeds 14 of 20 and 16 of 20 with tools, 6 of 20 and 2 of 20 without
    (line,) = [row for row in page.splitlines() if row.startswith("| known | qa |")]
    assert [cell.split()[0] for cell in line.split("|")[3:7]] == ["70", "80", "30", "10"]


def test_runs_of_other_sizes_have_a_section_of_their_own() -> None:
    page = report({"60 documents": {"1": seed(0)}, "240 documents": {"1": seed(2)}})
    assert page.count("\n## ") == 2
    assert "| on | k = 10 | 60.0 | 50.0 | 20.0 |  |" in page
    assert "| on | k = 10 | 80.0 | 70.0 | 20.0 |  |" in page
