"""A version's report: its figures, and that it is one file which loads nothing and runs nothing."""

import re
import shutil
from pathlib import Path

from tests.support.commands import Run
from tests.viewer.test_viewer_pages import words
from viewer.report import report_page
from warehouse.ratings import CallIdentity, add_ratings
from warehouse.store import Store


def test_figures_by_hand(data: Path, tmp_path: Path) -> None:
    store = Store(shutil.copytree(data, tmp_path / "data"))
    [dataset] = store.datasets()
    add_ratings(store, "a", [(CallIdentity("apples", "calculator", 16, "2 + 2", "4"), "accept")])
    add_ratings(store, "b", [(CallIdentity("long", "calculator", 110_000, "9" * 100_000, "1"), "reject")])
    shown = words(report_page(store, dataset))
    assert f"{dataset.name}@{dataset.version} 3 texts with tool calls" in shown
    # gains 11/15, 1.5 and 2.0: quartiles of three by the exclusive method are the values themselves
    assert "calculator 0.5 3 3 0.73 · 1.50 · 2.00 1 of 2" in shown
    assert "qa 1 0 0" in shown
    assert "Two and two make [Calculator(2 + 2) -> 4] 4 apples" in shown
    assert "score calculator rows 5 5" in shown
    assert "score qa rows 1 1" in shown
    assert '"tools": [' in shown


def test_it_loads_nothing_and_hostile_texts_are_text(data: Path) -> None:
    [dataset] = Store(data).datasets()
    page = report_page(Store(data), dataset)
    assert not re.search(r"<(script|link|img|iframe)|https?://(?!www\.\w+\.example)|url\(", page)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_the_calls_that_are_shown_follow_the_seed(data: Path) -> None:
    [dataset] = Store(data).datasets()
    pages = [report_page(Store(data), dataset, 1, seed) for seed in range(6)]
    assert pages[0] == report_page(Store(data), dataset, 1, 0)
    assert len(set(pages)) > 1
    assert all(page.count("<mark") == 1 for page in pages)
    assert "<mark" not in report_page(Store(data), dataset, 0)


def test_the_command(run: Run, data: Path, tmp_path: Path, version: str) -> None:
    out = tmp_path / "c.html"
    said = run("report", out, "--data", data)
    assert (said.code, said.err) == (0, "")
    assert version in out.read_text(encoding="utf-8")
    assert "exists already" in run("report", out, "--data", data).err
    assert run("report", tmp_path / "other.html", "--data", data, "--dataset", version).code == 0
    assert "there is no folder" in run("report", tmp_path / "no" / "c.html", "--data", data).err
    for name in ("nobody", "cstar@0"):
        assert run("report", tmp_path / "d.html", "--data", data, "--dataset", name).code == 2
