"""How fast the viewer's pages answer, and how much memory its process takes, over the warehouse of `ask.py`.

    python benchmarks/ask.py --data FOLDER                     # writes the warehouse: ten million scored calls
    python benchmarks/view.py --data FOLDER [--repeats 5] [--json]

The viewer is the real one, in a process of its own, asked over HTTP as a browser asks. The first answer of a page is
told apart: it works out what is kept until the next snapshot. `index` is the time until the viewer has read what
sliders are answered from; until then queries answer them, as in `slider, no index`. `CPU` is what the process took of
all cores for an answer. What else runs on the machine counts.
"""

from __future__ import annotations

import contextlib
import html
import os
import re
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil

from benchmarks.report import parser_of, print_json, say
from ops.ports import free_port

__all__ = ["measure", "served"]

_PAGES = {
    "versions": "/",
    "documents": "/documents",
    "documents by word": "/documents?text=apples",
    "documents by gain": "/documents?low=2.5",
    "calls": "/calls",
    "kept calls": "/calls?outcome=kept",
    "thresholds": "/thresholds",
    "slider, no index": "/thresholds?tau.qa=1.1",
    "slider": "/thresholds?tau.calculator=0.7&tau.qa=1.2",
    "slider of k": "/thresholds?tau.qa=1.2&k.qa=3&k.mt=3",
}
_START_S = 120.0
_IDLE_PERCENT = 4.0  # of a core


@contextlib.contextmanager
def served(data: Path) -> Iterator[tuple[str, psutil.Process]]:
    """Run the viewer; yield its address and its process."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    command = [sys.executable, "-m", "viewer.server", "--data", str(data), "--port", str(port)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[1]) as process:
        try:
            deadline = time.monotonic() + _START_S
            while time.monotonic() < deadline:
                with contextlib.suppress(OSError):
                    get(url + "/health")
                    break
                time.sleep(0.1)
            yield url, psutil.Process(process.pid)
        finally:
            process.terminate()


def get(url: str) -> str:
    """Return a page."""
    with urllib.request.urlopen(url, timeout=120) as answer:
        return str(answer.read().decode())


def measure(url: str, process: psutil.Process, repeats: int) -> dict[str, dict[str, float]]:
    """Ask for every page; return its seconds."""
    out = {}
    pages = dict(_PAGES)
    link = re.search(r'href="(/documents/[^"]+call=[^"#]+)', get(url + _PAGES["calls"]))
    if link is not None:
        pages["document with call"] = html.unescape(link[1])
    for name, path in pages.items():
        if name == "slider":  # someone has read the page of thresholds before they move anything
            out["index"] = {"first_s": round(until_idle(process), 3)}
        walls, cpus = [], []
        for _ in range(1 if name == "slider, no index" else repeats + 1):
            begin, cpu = time.perf_counter(), sum(process.cpu_times()[:2])
            get(url + path)
            walls.append(time.perf_counter() - begin)
            cpus.append(sum(process.cpu_times()[:2]) - cpu)
        own, cpus = walls[1:] or walls, cpus[1:] or cpus
        out[name] = {
            "first_s": round(walls[0], 3),
            "best_s": round(min(own), 3),
            "median_s": round(statistics.median(own), 3),
            "worst_s": round(max(own), 3),
            "cpu_s": round(min(cpus), 3),
        }
    return out


def until_idle(process: psutil.Process) -> float:
    """Wait until a process does nothing; return the seconds."""
    begin = time.perf_counter()
    process.cpu_percent()
    while process.cpu_percent(0.5) > _IDLE_PERCENT and time.perf_counter() - begin < _START_S:
        pass
    return time.perf_counter() - begin


def peak_mib(process: psutil.Process) -> float:
    """Return the peak of a process's resident memory."""
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    return round(next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024, 1)


def main() -> None:
    """Serve the warehouse and ask for its pages."""
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder of ask.py")
    parser.add_argument("--repeats", type=int, default=5, help="answers of each page")
    args = parser.parse_args()
    with served(args.data) as (url, process):
        found = measure(url, process, args.repeats)
        peak = peak_mib(process)
    say(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; the process took {peak:.0f} MiB at most\n")
    say(f"{'':20} {'first':>9} {'best':>9} {'median':>9} {'worst':>9} {'CPU':>9}")
    for name, own in found.items():
        say(f"{name:20} " + " ".join(f"{value:>7.3f} s" for value in own.values()))
    if args.json:
        print_json({"load": os.getloadavg()[0], "peak_mib": peak, **found})


if __name__ == "__main__":
    main()
