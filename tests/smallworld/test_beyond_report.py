"""The report on the options beyond the paper: shares by hand, and a page from figures made up here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.beyond.calibration import PROMISES
from benchmarks.beyond.further_report import chains_chapter
from benchmarks.beyond.pooled import Share, summed
from benchmarks.beyond.report import write_report
from benchmarks.beyond.sampling import PLACES
from toolformer_core.config import POSITIONS, TOOL_NAMES

FRAMES = ("known", "new")


def test_a_share_has_wilsons_interval() -> None:
    share = Share.of(0, 16)
    assert share is not None
    assert share.value == 0.0
    # z² / (n + z²) with z = 1.96: 3.8415 / 19.8415
    assert (share.low, share.high) == (0.0, pytest.approx(0.19361, abs=1e-5))
    assert Share.of(0, 0) is None


def test_calls_of_one_document_count_once_in_the_interval() -> None:
    of_calls, of_documents = Share.of(10, 100), Share.of(10, 100, independent=20)
    assert of_calls is not None
    assert of_documents is not None
    assert of_calls.value == of_documents.value == 0.1
    assert of_documents.said(2) == Share.of(2, 20).said(2)  # type: ignore[union-attr]
    assert of_documents.high > of_calls.high


def test_only_numbers_are_summed() -> None:
    assert summed([{"a": 1, "b": 0.5, "why": "x", "yes": True}, {"a": 2, "b": 0.25, "why": "", "yes": True}]) == {
        "a": 3,
        "b": 0.75,
    }


def kept(wrong: int, tau_f: float = 0.5) -> dict[str, Any]:
    return {"tau_f": tau_f, "kept": 100, "wrong": wrong, "partly": 1, "documents": 50, "found": 40, "reason": ""}


def calibration(wrong: int) -> dict[str, Any]:
    tool = {
        "gold": 50,
        "paper": kept(2),
        "promised": {str(promise): kept(wrong) for promise in PROMISES},
        "all_wrong": {"calls": 200, "kept": 1, "tau_f": 0.9, "reason": ""},
    }
    return {"documents": 60, **{frames: dict.fromkeys(TOOL_NAMES, tool) for frames in FRAMES}}


def sampling() -> dict[str, Any]:
    tool = {
        "forms": {
            "free": {"kept": 20, "right": 18, "documents": 15, "scored": 40, "tokens": 1_000_000},
            "forced": {"kept": 50, "right": 45, "documents": 30, "scored": 50, "tokens": 1_000_000},
        },
        "gold": 20,
        "places": {way: {str(k): min(20, 2 * k) for k in PLACES} for way in POSITIONS},
    }
    return {"documents": 40, **{frames: dict.fromkeys(TOOL_NAMES, tool) for frames in FRAMES}}


def asked(arm: str, ks: tuple[int, ...], right: int, called: int, needless: int) -> dict[str, Any]:
    rows = [
        {"arm": arm, "k": k, "tool": tool, "new": new, "items": 10, "right": right, "called": called}
        for k in ks
        for tool in TOOL_NAMES
        for new in (False, True)
    ]
    return {"answers": rows, "needless": {f"{arm} {k}": {"items": 100, "called": needless} for k in ks if k}}


def trained() -> dict[str, Any]:
    on, off = asked("toolformer", (1, 10), 6, 9, 40), asked("toolformer-disabled", (0,), 0, 0, 0)
    both = {"answers": [*on["answers"], *off["answers"]], "needless": on["needless"]}
    one = {
        "kept": dict.fromkeys(TOOL_NAMES, 30),
        "asked": both,
        "triggered": asked("toolformer-trigger", (10,), 6, 8, 5),
        "perplexity": 8.5,
    }
    priced = {**one, "asked": asked("toolformer", (1, 10), 6, 6, 10)}
    return {
        "sizes": {"documents": 100, "items": 20, "steps": 10},
        "cstar": {"paper": one, "fdr": one, "price-0.5": priced},
        "curve": {"0.1": asked("toolformer-trigger", (10,), 6, 7, 20)},
    }


def test_the_page_says_where_a_promise_is_broken(tmp_path: Path) -> None:
    write_report({"1": {"calibration": calibration(4)}, "2": {"calibration": calibration(6)}}, tmp_path)
    page = (tmp_path / "beyond.md").read_text()
    # two seeds: 10 of 200 kept calls are wrong, in 100 documents: 5 % (Wilson's low is 2.2 %, so 0.01 and 0.02 break)
    assert (
        "| known | calculator | 0.02 | 0.50 (0.50 to 0.50) | 200 | 0.050 (0.022 to 0.112) | 0.80 | **broken** |" in page
    )
    assert "| known | calculator | 0.05 | 0.50 (0.50 to 0.50) | 200 | 0.050 (0.022 to 0.112) | 0.80 | holds |" in page
    assert "mt, new, 0.01 (2 of 10 wrong ones tell a part)" in page
    assert "| calculator | 800 | 4 | 0 |" in page  # two seeds, two kinds of frames
    assert (tmp_path / "images/beyond-calibration.svg").is_file()


def test_the_page_compares_forms_and_positions(tmp_path: Path) -> None:
    write_report({"1": {"sampling": sampling()}}, tmp_path)
    page = (tmp_path / "beyond.md").read_text()
    assert "| known | qa | 18 | 45 | 2.50 | 1.25 | 0.90 (" in page  # right calls for a million tokens; 50/40 scored
    assert "| new | mt | need | 0.10 | 0.30 | 0.50 | 1.00 |" in page
    assert "--part sampling --documents 40`" in page
    assert "calibration" not in page


def wordings(kept: int, right: int, well_formed: float | None) -> dict[str, Any]:
    row = {"well_formed": well_formed, "executes": 0.5, "equals_gold": 0.25}
    row |= {"kept": kept, "right": right, "recall": 0.75}
    tools = {tool: {"1": row, "2": row} for tool in TOOL_NAMES}
    return {"documents": 24, **dict.fromkeys(FRAMES, tools)}


def test_the_page_compares_wordings(tmp_path: Path) -> None:
    write_report({"1": {"wordings": wordings(8, 8, 1.0)}, "2": {"wordings": wordings(2, 0, 0.5)}}, tmp_path)
    page = (tmp_path / "beyond.md").read_text()
    # shares are means of the models: (1 + 1/2) / 2; precision is that of all kept calls: 8 of 8 and 0 of 2
    assert "| qa | 2 | 0.75 / 0.75 | 0.50 / 0.50 | 0.25 / 0.25 | 10 / 10 | 0.80 / 0.80 | 0.75 / 0.75 |" in page
    write_report({"1": {"wordings": wordings(0, 0, None)}}, tmp_path)  # nothing was drawn, nothing kept
    page = (tmp_path / "beyond.md").read_text()
    assert "| qa | 2 | - / - | 0.50 / 0.50 | 0.25 / 0.25 | 0 / 0 | - / - | 0.75 / 0.75 |" in page


def test_the_page_shows_what_fewer_calls_cost(tmp_path: Path) -> None:
    write_report({"1": {"trained": trained()}}, tmp_path)
    page = (tmp_path / "beyond.md").read_text()
    assert "| paper | k = 10, fitted | 60.0 | 60.0 | 5.0 |  |" in page
    # 100 items with 90 calls and 100 plain ones with 40: 65 %; at the price 60 and 10: 35 %; 1 - 35/65 = 46 %
    assert "| 0 | 60.0 | 65.0 | 40.0 | 0 % |" in page
    assert "| 0.5 | 60.0 | 35.0 | 10.0 | 46 % |" in page
    # of 130 calls those of 60 right answers are needed, and 59 for one point less: 1 - 59/130 = 55 %
    assert "at most 55 % of the calls could be spared" in page
    assert (tmp_path / "images/beyond-calls.svg").is_file()


def test_equal_figures_give_an_equal_page_and_pictures(tmp_path: Path) -> None:
    figures = {"1": {"calibration": calibration(4), "trained": trained()}}
    for name in "ab":
        write_report(figures, tmp_path / name)
    names = ["beyond.md", "images/beyond-calibration.svg", "images/beyond-calls.svg"]
    assert [(tmp_path / "a" / n).read_bytes() for n in names] == [(tmp_path / "b" / n).read_bytes() for n in names]


def test_chains_are_compared_arm_by_arm() -> None:
    def answers(right: int) -> list[dict[str, object]]:
        return [
            {"family": "fact-sum", "new": new, "items": 10, "right": right, "called": 10, "calls": 20}
            for new in (False, True)
        ]

    arms = {"toolformer 1": 0, "toolformer 2": 6, "toolformer 3": 3, "toolformer-disabled 1": 0}
    gold = {
        "all": {"kept": 8, "right": 6, "gold": 12, "found": 6},
        "fact-sum known": {"kept": 8, "right": 6, "gold": 10, "found": 6},
    }
    side = {"lm_tokens": 300, "gold": gold, "answers": {arm: answers(right) for arm, right in arms.items()}}
    single = {**side, "lm_tokens": 100, "answers": {arm: answers(0) for arm in arms}}
    sizes = {"documents": 3, "items": 10, "steps": 4}
    found = "\n".join(chains_chapter({"1": {"sizes": sizes, "chained": side, "single": single}}))
    assert "| known | all | 60.0 | 30.0 | 0.0 | 0.0 | 0.0 | 0.0 | 0.0 |" in found
    assert "| all | 8 | 12 | 75 (41 to 93) | 50 (25 to 75) |" in found
    assert "| fact-sum known |  | 10 |  | 60 (31 to 83) |" in found
    assert "with chains over without: 3.00" in found
