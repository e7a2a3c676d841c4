"""Take the pictures that the documentation shows, from a real MLflow and a real viewer in a real browser.

    python docs/screenshots.py                  two synthetic runs in MLflow, in a folder that is thrown away
    python docs/screenshots.py --view DIR       the viewer over a data folder with a build

Writes images/mlflow-compare.png beside this file: two runs in MLflow's compare view; that their thresholds and
perplexities stand in the page's text is asserted first. With --view it writes images/viewer-*.png: of two versions and
of two evaluated arms only where there are two. Needs Debian's `chromium` and the package `playwright`; no browser is
downloaded, and the server is reachable from this machine alone.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ops.ports import LOOPBACK, free_port
from ops.processes import ProcessGroup, Service
from ops.services import answer_of
from tasks.environment import prepare_environment

if TYPE_CHECKING:
    from playwright.sync_api import Page

IMAGES = Path(__file__).parent / "images"
EXPERIMENT = "synthetic"
_TAGS = {"registered_model": "toolformer-synthetic", "dataset_digest": "synthetic"}
_START_S = 60.0  # for the server, on a busy machine
_SHOW_MS = 120_000  # for a page, at most
_WIDTH_PX, _HEIGHT_PX = 1100, 1000  # the window; it grows until the perplexities are in the picture
# Where a picture of the viewer ends.
_DOWN_TO = {
    "viewer-document.png": "section.panel",
    "viewer-thresholds.png": "#comes tbody tr:nth-child(3)",
    "viewer-judge.png": "section.panel",
    "viewer-compare.png": "#goes tbody tr:nth-child(8)",
    "viewer-models.png": "article:nth-of-type(1)",
}


def chromium() -> str | None:
    return shutil.which("chromium")


def _events(steps: int, gain: float) -> list[dict[str, Any]]:
    """A training's events, by formula: perplexity falls from 12 towards 12 - gain. Nothing was trained."""
    start = 1_700_000_000.0
    events: list[dict[str, Any]] = [
        {"t": start, "event": "started", "attempt": 1, "engine": "synthetic", "world_size": 1, "from_step": 0}
    ]
    for step in range(steps + 1):
        perplexity = 12.0 - gain * (1 - math.exp(-4 * step / steps))
        t = start + 2 * step
        if step:
            wave = 0.05 * math.sin(step * 2.4)
            rate = 1e-5 * min(1.0, step / (0.1 * steps))
            figures = {"loss": math.log(perplexity) + wave, "learning_rate": rate, "grad_norm": 1 + wave}
            events.append({"t": t, "event": "step", "step": step, **figures})
        if step % (steps // 4) == 0:
            figures = {"loss": math.log(perplexity), "perplexity": perplexity}
            events.append({"t": t + 1, "event": "evaluated", "step": step, **figures})
        if step and step % (steps // 4) == 0:
            where = f"checkpoints/step-{step:06d}"
            left = {"checkpoint": where, "model": f"{where}/model", "perplexity": perplexity, "best": True}
            events.append({"t": t + 1.5, "event": "saved", "step": step, **left})
    end = {"best_step": steps, "best_perplexity": perplexity, "model": "model"}
    return [*events, {"t": t + 2, "event": "finished", "step": steps, **end}]


def synthetic_runs(uri: str, folder: Path) -> list[str]:
    """Track two runs that differ in their thresholds; return their ids. Their names say that they are synthetic."""
    from tasks.tracking import DatasetRef, Tracking

    tracking = Tracking(uri)
    run_ids = []
    for label, factor, gain in (("loose", 0.5, 3.1), ("strict", 1.0, 3.9)):
        run = tracking.start(
            experiment=EXPERIMENT,
            name=f"synthetic-{label}",
            params={
                "tau_f": {"calculator": 0.5 * factor, "calendar": factor, "mt": 0.5 * factor, "qa": factor},
                "dataset": {"name": f"synthetic-{label}", "version": "1"},
                "learning_rate": 1e-5,
                "steps": 40,
            },
            tags={"kind": "finetune", "arm": "toolformer", **_TAGS},
            datasets=[
                DatasetRef(f"synthetic/{label}", f"5e1f{label.encode().hex()}", f"{folder}/train.jsonl", "train", 150),
                DatasetRef("synthetic/dev", "5e1fde5", f"{folder}/dev.jsonl", "dev", 24),
            ],
            folder=str(folder / label),
            system_metrics=False,
        )
        run.record(_events(40, gain))
        run.figures()
        run.finish("FINISHED")
        run_ids.append(run.run_id)
    return run_ids


def expected_texts(uri: str, run_ids: Sequence[str]) -> list[str]:
    """Return what the compare view must show: each threshold's row with every run's value, and their perplexities."""
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    runs = [client.get_run(run_id).data for run_id in run_ids]
    thresholds = sorted({key for run in runs for key in run.params if key.startswith("tau_f.")})
    rows = ["\t".join([key, *(run.params.get(key, "") for run in runs)]) for key in thresholds]
    perplexities = [run.metrics["dev_perplexity"] for run in runs]
    digits = [f"{value:.4g}" if value < 1000 else str(int(value)) for value in perplexities]  # as the page rounds
    return [*rows, "dev_perplexity", *digits]


@contextlib.contextmanager
def mlflow_server(uri: str, log: Path) -> Iterator[str]:
    """Run `mlflow server` on a free port of loopback, yield its address, and end it with all its workers."""
    port = str(free_port())
    address = f"http://{LOOPBACK}:{port}"
    words = ["server", "--backend-store-uri", uri, "--workers", "1", "--host", LOOPBACK, "--port", port]
    service = Service(
        "MLflow server",
        (sys.executable, "-m", "mlflow", *words, "--no-serve-artifacts"),
        log,
        {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
        lambda: answer_of(f"{address}/health") is not None,
    )
    group = ProcessGroup()
    try:
        group.start(service)
        group.wait_until_healthy([service], _START_S)
        yield address
    finally:
        group.close()


@contextlib.contextmanager
def browser_page(width: int, height: int) -> Iterator[Page]:
    """Open a page in Chromium, its window as large as this in pixels."""
    from playwright.sync_api import sync_playwright

    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=arguments)
        try:
            yield browser.new_page(viewport={"width": width, "height": height})
        finally:
            browser.close()


def compare(
    address: str,
    experiment_id: str,
    run_ids: Sequence[str],
    texts: Sequence[str],
    picture: Path,
    down_to: str = "dev_perplexity",
    differences: bool = False,
    width: int = _WIDTH_PX,
) -> str:
    """Open the compare view, wait until it shows the texts, take a picture of it, and return its text.

    The picture ends at `down_to`; with `differences`, what is the same in all runs is left out. An AssertionError names
    the texts that are not there in time.
    """
    from playwright.sync_api import TimeoutError as NotShown

    query = f"runs={json.dumps(list(run_ids))}&experiments={json.dumps([experiment_id])}"
    with browser_page(width, _HEIGHT_PX) as page:
        page.goto(f"{address}/#/compare-runs?{query}", wait_until="domcontentloaded")
        if differences:
            page.get_by_text("Show diff only", exact=True).first.click()
        shown = "texts => texts.every(text => document.body.innerText.includes(text))"
        with contextlib.suppress(NotShown):
            page.wait_for_function(shown, arg=list(texts), timeout=_SHOW_MS)
        text = page.inner_text("body")
        missing = [wanted for wanted in texts if wanted not in text]
        if not missing:
            _picture(page, picture, down_to, width)
    if missing:
        raise AssertionError(f"the compare view does not show {', '.join(missing)}")
    return text


def _picture(page: Page, path: Path, down_to: str, width: int) -> None:
    """Fold what stands above and beside the tables away, and write a picture down to a text."""
    for clutter in (page.get_by_role("button", name="Close"), page.get_by_text("Visualizations", exact=True)):
        if clutter.count() == 1:  # a chat panel that opens by itself; a chart
            clutter.click()
    last = page.get_by_text(down_to, exact=True).last.bounding_box()
    if last is not None:
        page.set_viewport_size({"width": width, "height": math.ceil(last["y"] + last["height"] + 60)})
    path.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=path, animations="disabled")


@contextlib.contextmanager
def viewer(data: str) -> Iterator[str]:
    from viewer.server import ViewerServer

    server = ViewerServer(data, port=0)
    thread = threading.Thread(target=server.serve_until_ended)
    thread.start()
    try:
        yield server.url
    finally:
        server.end()
        thread.join()


def view_pages(address: str, snapshot: Path, folder: Path) -> None:
    """Take pictures of the viewer's pages, over the data folder of this snapshot; see above."""
    from tasks.viewer_links import arm_key
    from warehouse.queries import rows_of
    from warehouse.queries.item_changes import evaluated_sides

    best = "SELECT doc_id, tool, position FROM kept_calls ORDER BY gain DESC, doc_id LIMIT 1"
    most = "SELECT tool FROM kept_calls GROUP BY tool ORDER BY count(*) DESC, tool LIMIT 1"
    [call], [kept] = rows_of(snapshot, best), rows_of(snapshot, most)
    paths = {
        "viewer-document.png": f"/documents/{call['doc_id']}?call={call['tool']}:{call['position']}:0",
        "viewer-thresholds.png": f"/thresholds?tau.{kept['tool']}=2.5",
        "viewer-judge.png": f"/judge?tool={kept['tool']}",
    }
    versions = rows_of(snapshot, "SELECT DISTINCT ON (name, version) name, version FROM datasets ORDER BY created")
    labels = [f"{row['name']}@{row['version']}" for row in versions]
    arms = [arm_key(side.arm, side.k, side.digest) for side in evaluated_sides(snapshot)]
    if len(labels) > 1:
        paths["viewer-compare.png"] = f"/compare?a={labels[0]}&b={labels[-1]}"
    if len(arms) > 1:
        paths["viewer-models.png"] = f"/models?a={arms[1]}&b={arms[0]}&change=turned_right"
    with browser_page(_WIDTH_PX, _HEIGHT_PX) as page:
        cookie = {"name": "toolformer_user", "value": "reader", "url": address}  # not who has this account
        page.context.add_cookies([cookie])  # type: ignore[list-item]  # a dict of its keys
        for name, path in paths.items():
            page.goto(address + path, wait_until="networkidle")
            page.set_viewport_size({"width": _WIDTH_PX, "height": _HEIGHT_PX})
            down_to = page.locator(_DOWN_TO.get(name, "body"))
            last = down_to.first.bounding_box() if name in _DOWN_TO and down_to.count() else None
            if last is not None:
                page.set_viewport_size({"width": _WIDTH_PX, "height": math.ceil(last["y"] + last["height"] + 2)})
            page.screenshot(path=folder / name, animations="disabled")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--view", help="a data folder with a build: take the viewer's pictures")
    arguments = parser.parse_args()
    if chromium() is None:
        raise SystemExit("there is no chromium on PATH: install Debian's package `chromium`")
    prepare_environment()
    if arguments.view:
        with viewer(arguments.view) as address:
            view_pages(address, Path(arguments.view) / "warehouse.duckdb", IMAGES)
        return
    from mlflow import MlflowClient

    with tempfile.TemporaryDirectory() as scratch:
        uri = f"sqlite:///{scratch}/mlflow.db"
        run_ids = synthetic_runs(uri, Path(scratch))
        experiment_id = MlflowClient(uri).get_run(run_ids[0]).info.experiment_id
        with mlflow_server(uri, Path(scratch) / "server.log") as address:
            compare(address, experiment_id, run_ids, expected_texts(uri, run_ids), IMAGES / "mlflow-compare.png")


if __name__ == "__main__":
    main()
