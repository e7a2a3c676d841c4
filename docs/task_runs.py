"""Take the picture of a build's task runs, from a real Prefect server in a real browser.

    python docs/task_runs.py        a small build of the embedded corpus with two tools, in a folder that is thrown away

Writes images/prefect-task-runs.png beside this file: the page of the flow run, with one task run for each stage, tool
and group of shards. That they stand in the page's text is asserted before the picture is taken. Needs Debian's
`chromium` and the package `playwright`; no browser is downloaded, and the server is reachable from this machine alone.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from screenshots import IMAGES, browser_page, chromium, free_port

STAGES = ("prefilter", "sample", "execute", "score")
TOOLS = ("calculator", "calendar")
_START_S = 120.0  # for the server, on a busy machine
_SHOW_MS = 60_000  # for the page


@contextlib.contextmanager
def prefect_server(folder: Path) -> Iterator[str]:
    """Run Prefect's server, as this project starts it, on a free port of loopback; yield its address."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    variables = os.environ | {"PREFECT_HOME": str(folder), "PREFECT_API_URL": f"{address}/api"}
    command = [sys.executable, "-m", "flows.prefect_app", "--host", "127.0.0.1", "--port", str(port)]
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env=variables)
        try:
            deadline = time.monotonic() + _START_S
            while True:
                with (
                    contextlib.suppress(OSError, urllib.error.URLError),
                    urllib.request.urlopen(f"{address}/api/health", timeout=2),
                ):
                    break
                if server.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"Prefect's server did not come up: {(folder / 'server.log').read_text()[-2000:]}")
                time.sleep(0.2)
            yield address
        finally:
            server.terminate()
            server.wait()


def build(address: str, data: Path) -> str:
    """Run a build with two tools against a server; return the id of its flow run."""
    from toolformer_core.embedded import CORPUS

    options = {"--corpus": CORPUS, "--data": data, "--tools": ",".join(TOOLS), "--limit": 24, "--shard-documents": 12}
    options |= {"--top-k": 2, "--draws": 2}
    words = [str(word) for pair in options.items() for word in pair]
    variables = os.environ | {"PREFECT_API_URL": f"{address}/api"}
    subprocess.run([sys.executable, "-m", "cli.main", "build", *words, "--json"], env=variables, check=True)
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with temporary_settings({PREFECT_API_URL: f"{address}/api"}), get_client(sync_client=True) as client:
        (run,) = client.read_flow_runs()
    return str(run.id)


def take_picture(address: str, flow_run: str, picture: Path) -> None:
    """Open a flow run's page and take its picture once it shows the task runs.

    Raises:
        AssertionError: a stage of a tool is not there in time; the message names it.
    """
    from playwright.sync_api import TimeoutError as NotShown

    texts = [f"{stage} {tool}" for stage in STAGES for tool in TOOLS] + ["assemble"]
    with browser_page(1400, 2100) as page:
        page.goto(f"{address}/runs/flow-run/{flow_run}?tab=TaskRuns", wait_until="domcontentloaded")
        shown = "texts => texts.every(text => document.body.innerText.includes(text))"
        with contextlib.suppress(NotShown):
            page.get_by_text("Task Runs", exact=False).last.click(timeout=_SHOW_MS)
        with contextlib.suppress(NotShown):
            page.wait_for_function(shown, arg=texts, timeout=_SHOW_MS)
        page.screenshot(path=picture, animations="disabled")
        text = page.inner_text("body")
    missing = [wanted for wanted in texts if wanted not in text]
    if missing:
        raise AssertionError(f"the page of the flow run does not show {', '.join(missing)}")


def main() -> None:
    """Build, and take the picture."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None).parse_args()
    if chromium() is None:
        raise SystemExit("there is no chromium on PATH: install Debian's package `chromium`")
    from tasks.environment import prepare_environment

    prepare_environment()
    with tempfile.TemporaryDirectory() as scratch, prefect_server(Path(scratch)) as address:
        flow_run = build(address, Path(scratch) / "data")
        take_picture(address, flow_run, IMAGES / "prefect-task-runs.png")


if __name__ == "__main__":
    main()
