"""The product's face, in a real browser: a form is filled in, a build runs, two builds are compared.

With TOOLFORMER_PICTURES=docs/images the pictures that the documentation shows are written anew.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from mlflow import MlflowClient

from tests.support.served_app import answered
from tests.support.servers_up import Running, started
from tests.support.waiting import soon
from toolformer_core.embedded import CORPUS

if TYPE_CHECKING:
    from playwright.sync_api import Locator

pytestmark = pytest.mark.slow  # two minutes: servers, a browser, two builds

PICTURES = os.environ.get("TOOLFORMER_PICTURES")
_WIDTH_PX, _HEIGHT_PX = 1100, 800  # of the pictures
_WALKED_PX = (390, 1400)  # a telephone's window and a laptop's
_SHOWN_MS = 120_000  # at most, on a busy machine


@pytest.fixture(scope="module")
def up(screenshots: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    pytest.importorskip("playwright", reason="the package playwright is not installed")
    if screenshots.chromium() is None:
        pytest.skip("there is no chromium on PATH (Debian's package `chromium`)")
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("browser")
        if PICTURES:  # in which paths are seen
            folder = Path(tempfile.gettempdir()) / "example"
            folder.mkdir()
            stack.callback(shutil.rmtree, folder)
        yield stack.enter_context(started(folder / "runs"))


_ATTACK = """async ({url, body}) => {
    const told = {method: 'POST', headers: {'Content-Type': 'application/json'}, body};
    const read = await fetch(url, told).then(answer => answer.status, error => String(error));
    // Without asking first: the browser sends it, and lets nobody read the answer.
    const sent = await fetch(url, {...told, headers: {'Content-Type': 'text/plain'}, mode: 'no-cors'})
        .then(answer => answer.type, error => String(error));
    return [read, sent];
}"""


def test_a_page_of_another_origin_runs_nothing(up: Running, screenshots: ModuleType, tmp_path: Path) -> None:
    deployment = up.ask("/deployments/name/build-dataset/build-dataset")["id"]
    url = f"{up.told['api']}/deployments/{deployment}/create_flow_run"
    told = {"parameters": {"parameters": {"corpus": "/none.jsonl", "data": "/none"}}, "state": {"type": "SCHEDULED"}}
    body = json.dumps({**told, "job_variables": {"command": f"touch {tmp_path / 'here'}"}})
    before = up.ask("/flow_runs/count", {})
    statuses = []
    foreign_page = 200, {"Content-Type": "text/html"}, b"<title>Another page</title>"
    with answered(lambda *_: foreign_page) as foreign, screenshots.browser_page(_WIDTH_PX, _HEIGHT_PX) as page:
        page.on("response", lambda answer: statuses.append((answer.request.method, answer.status, answer.url)))
        page.goto(foreign)
        assert page.evaluate(_ATTACK, {"url": url, "body": body}) == ["TypeError: Failed to fetch", "opaque"]
        page.goto(up.told["ui"].replace("127.0.0.1", "localhost"), wait_until="domcontentloaded")  # its own page
        page.get_by_text("Deployments", exact=True).first.click()
        page.get_by_text("build-dataset").first.wait_for()
    assert {status for method, status, at in statuses if at == url} == {403}
    assert ("POST", 403, url) in statuses
    assert up.ask("/flow_runs/count", {}) == before
    assert not (tmp_path / "here").exists()


def test_a_form_is_filled_in_runs_and_is_compared(up: Running, screenshots: ModuleType, tmp_path: Path) -> None:
    with gzip.open(CORPUS, "rt", encoding="utf-8") as stream:
        corpus = Path(up.told["logs"]).parents[1] / "corpus.jsonl"
        corpus.write_text("".join(next(stream) for _ in range(12)), encoding="utf-8")
    deployment = up.ask("/deployments/name/build-dataset/build-dataset")["id"]
    elsewhere = []
    with screenshots.browser_page(_WIDTH_PX, _HEIGHT_PX) as page:
        page.set_default_timeout(_SHOWN_MS)
        page.on("request", lambda asked: elsewhere.append(asked.url) if "127.0.0.1" not in asked.url else None)

        def shot(name: str) -> None:
            if PICTURES:
                page.screenshot(path=Path(PICTURES) / f"{name}.png", animations="disabled")

        def walk(path: str, *shown: Locator) -> None:
            """Open a page in a narrow, a wide and the pictures' window; each must show these parts."""
            for width in (*_WALKED_PX, _WIDTH_PX):
                page.set_viewport_size({"width": width, "height": _HEIGHT_PX})
                page.goto(f"{up.told['ui']}{path}", wait_until="domcontentloaded")
                for part in shown:
                    part.first.wait_for()

        page.goto(up.told["ui"], wait_until="domcontentloaded")
        page.get_by_text("Deployments", exact=True).first.click()
        for name in ("build-dataset", "evaluate", "finetune", "ground"):
            page.get_by_text(name).first.wait_for()

        field = page.locator("textarea").first
        walk(f"/deployments/deployment/{deployment}/run", field, page.get_by_role("button", name="Submit"))
        field.fill("corpus.jsonl")
        page.locator("input[type=number]").first.fill("0.5")  # every tool has an input for its threshold
        page.get_by_role("button", name="Submit").click()
        page.get_by_text("does not match").first.wait_for()  # refused in the form
        field.scroll_into_view_if_needed()
        shot("prefect-form")
        assert up.ask("/flow_runs/count", {}) == 0
        field.fill(str(corpus))
        for tool in ("mt", "qa", "wikisearch", "calendar"):
            page.locator(".p-tag", has_text=tool).locator("button").last.click()
        page.get_by_text("does not match").first.wait_for(state="hidden")  # a form that was refused is not sent
        page.get_by_role("button", name="Submit").click()
        [run] = soon(lambda: up.ask("/flow_runs/filter", {}))
        assert run["parameters"]["parameters"]["tools"] == ["calculator"]
        assert run["parameters"]["parameters"]["tau_f"] == {"calculator": 0.5}
        assert up.ended(run["id"])["type"] == "COMPLETED"

        walk(f"/runs/flow-run/{run['id']}", page.get_by_text("Completed", exact=True))
        page.get_by_text("Artifacts", exact=True).first.click()
        made = up.ask("/artifacts/filter", {"artifacts": {"flow_run_id": {"any_": [run["id"]]}}})
        assert made
        for key in sorted({one["key"] for one in made}):
            page.get_by_text(key, exact=True).first.wait_for()
        shot("prefect-run")
        assert [url for url in elsewhere if not url.startswith(("data:", "blob:"))] == []
        [summary] = [one for one in made if one["key"] == "build-summary"]
        chart = page.get_by_alt_text("Scored calls by gain")
        walk(f"/artifacts/artifact/{summary['id']}", chart)
        chart.scroll_into_view_if_needed()
        shot("prefect-summary")

    data = up.told["logs"].removesuffix("/up")
    other = {"corpus": str(corpus), "data": data, "tools": ["calculator"], "tau_f": {"calculator": 0.1}}
    assert up.ended(up.submit("build-dataset", other))["type"] == "COMPLETED"
    client = MlflowClient(up.told["mlflow"])
    experiments = [one for one in client.search_experiments() if one.name != "Default"]
    [*runs] = client.search_runs([one.experiment_id for one in experiments], order_by=["attributes.start_time"])
    texts = ["\t".join(["tau_f.calculator", "0.5", "0.1"]), "examples/calculator"]
    for width in (*_WALKED_PX, _WIDTH_PX):
        shown = screenshots.compare(
            up.told["mlflow"],
            runs[0].info.experiment_id,
            [one.info.run_id for one in runs],
            texts,
            Path(PICTURES if PICTURES and width == _WIDTH_PX else tmp_path) / "mlflow-builds.png",
            down_to="examples/calculator",
            differences=True,
            width=width,
        )
        assert "Comparing 2 Runs" in shown
