"""What a server bears: many streaming requests at once on loopback, as clients see them.

    python benchmarks/serve.py [--requests 200] [--concurrency 200] [--rows 32] [--tokens 32] [--json]

The server is `toolformer serve` in a process of its own, on the embedded model; the clients are in this one. Half of
the prompts ask for a sum, and are continued with a call of the calculator. Every stream must end
with its finish reason and [DONE], or the program fails. Peak memory is the server process's, above what it held with
the model loaded. On the machine at hand: clients and server share its cores.
"""

import asyncio
import json
import statistics
import subprocess
import sys
import time
from argparse import Namespace
from typing import Any

import httpx
import psutil

from benchmarks.report import parser_of, print_json, say_figures, sum_prompt

_START_S = 120.0


def _prompt(i: int) -> str:
    return f"Text {i}: the shop" if i % 2 else sum_prompt(i)


async def _one(client: httpx.AsyncClient, i: int, tokens: int) -> tuple[float, float, int, int]:
    """Return the seconds to the first text and to the end, the completion tokens, and the calls."""
    body: dict[str, Any] = {
        "model": "embedded",
        "prompt": _prompt(i),
        "max_tokens": tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        "toolformer": {"k": 200},
    }
    begun, first, usage, calls, finish, done = time.perf_counter(), 0.0, None, 0, None, False
    async with client.stream("POST", "/v1/completions", json=body) as response:
        if response.status_code != 200:
            sys.exit(f"request {i}: {response.status_code} {(await response.aread()).decode()}")
        async for line in response.aiter_lines():
            if line == "data: [DONE]":
                done = True
            elif line.startswith("data: "):
                first = first or time.perf_counter() - begun
                chunk = json.loads(line[6:])
                usage = chunk.get("usage") or usage
                for choice in chunk.get("choices", ()):
                    finish = choice["finish_reason"] or finish
                    calls += choice.get("toolformer", {}).get("event") == "call_finished"
    if not (done and finish and usage):
        sys.exit(f"request {i} was lost")
    return first, time.perf_counter() - begun, usage["completion_tokens"], calls


async def _load(url: str, requests: int, concurrency: int, tokens: int) -> list[tuple[float, float, int, int]]:
    limits = httpx.Limits(max_connections=concurrency)
    places = asyncio.Semaphore(concurrency)
    async with httpx.AsyncClient(base_url=url, timeout=600, limits=limits) as client:

        async def one(i: int) -> tuple[float, float, int, int]:
            async with places:
                return await _one(client, i, tokens)

        return await asyncio.gather(*(one(i) for i in range(requests)))


async def _watched(server: psutil.Process, url: str, args: Namespace) -> tuple[list[Any], int]:
    """Return what the requests gave, and the server's peak of resident bytes meanwhile."""
    peak = 0

    async def watch() -> None:
        nonlocal peak
        while True:
            peak = max(peak, server.memory_info().rss)
            await asyncio.sleep(0.02)

    watcher = asyncio.create_task(watch())
    found = await _load(url, args.requests, args.concurrency, args.tokens)
    watcher.cancel()
    return found, peak


def _percentile(values: list[float], q: int) -> float:
    return round(statistics.quantiles(values, n=100, method="inclusive")[q - 1], 3)


def measure(server: psutil.Process, url: str, args: Namespace) -> dict[str, float]:
    """Warm up, load the server once, and say how it was borne."""
    asyncio.run(_load(url, 2, 2, args.tokens))
    loaded = server.memory_info().rss
    begun = time.perf_counter()
    found, peak = asyncio.run(_watched(server, url, args))
    seconds = time.perf_counter() - begun
    first, whole = [f[0] for f in found], [f[1] for f in found]
    return {
        "requests": args.requests,
        "concurrency": args.concurrency,
        "rows": args.rows,
        "seconds": round(seconds, 2),
        "requests_per_s": round(args.requests / seconds, 1),
        "tokens_per_s": round(sum(f[2] for f in found) / seconds, 1),  # of completions, those of calls included
        "first_text_p50_s": _percentile(first, 50),
        "first_text_p95_s": _percentile(first, 95),
        "whole_p50_s": _percentile(whole, 50),
        "whole_p95_s": _percentile(whole, 95),
        "calls": sum(f[3] for f in found),
        "loaded_mib": round(loaded / 2**20, 1),  # with the model, before the load
        "peak_growth_mib": round((peak - loaded) / 2**20, 1),  # above that
    }


def _wait_for(url: str, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + _START_S
    while time.monotonic() < end and process.poll() is None:
        try:
            if httpx.get(f"{url}/health/ready").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    sys.exit("the server did not come up")


def main() -> None:
    """Start a server, load it, and end it."""
    args = parser_of(__doc__, requests=200, concurrency=200, rows=32, tokens=32).parse_args()
    command = [sys.executable, "-m", "cli.main", "serve", "--port", "0", "--tools", "calculator"]
    command += ["--max-rows", str(args.rows), "--queue", str(args.concurrency)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            url = line.partition("page at ")[2].partition(",")[0]
            _wait_for(url, process)
            found = measure(psutil.Process(process.pid), url, args)
        finally:
            process.terminate()
    say_figures(found)
    if args.json:
        print_json(found)


if __name__ == "__main__":
    main()
