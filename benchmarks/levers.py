"""Which options of `build` find the calls that a corpus is known to need? One line for each lever and threshold.

    python recipes/fetch_smollm2.py smollm2
    python recipes/gsm8k.py gsm8k.train.jsonl --out texts --without gsm8k.test.jsonl --without SVAMP.json
    python -m benchmarks.levers --gold texts --model smollm2 --documents 100 --data levers

Every lever is a build of its own under --data, so a run that was ended goes on where it was. The texts are the same for
all: --documents of them from --skip on, in the order of the digest of their address. Options of `build` after `--`
hold for every lever (`-- --prompts folder`). Printed for each threshold:

    kept       calls of the calculator in C*
    number     share of them that give the number they stand before
    gold       share of them that give a gold call's value at its place
    recall     share of the gold calls that a kept call stands for: its place, its value
    CPU s      of the build's processes, a text
    CPU/right  CPU seconds for a kept call with a gold call's value at its place
    LM tokens  that passed the model, a text
"""

import argparse
import json
import resource
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from benchmarks.report import say
from toolformer_core.annotate.boundaries import number_at
from toolformer_core.records import digest_of
from warehouse.queries import rows_of
from warehouse.snapshot.publish import SNAPSHOT

_SHARDS = ("--shard-documents", "25")  # what is lost at most when a run is ended
_K20 = ("--draw-form", "forced", "--numbers", "new", "--temperature", "0.7", "--top-k", "20")
LEVERS: dict[str, tuple[str, ...]] = {  # alone: beside the paper's k and m of a calculator, 20 and 10, and nothing else
    "paper": (),
    "alone: forced": ("--draw-form", "forced"),
    "alone: new numbers": ("--numbers", "new"),
    "alone: T 0.7": ("--temperature", "0.7"),
    "alone: k 10": ("--top-k", "10"),
    "alone: m 20": ("--samples", "20"),
    "all": _K20,
    "all, k 10": (*_K20[:-1], "10"),
    "all, m 20": (*_K20, "--samples", "20"),
    "all, m 40": (*_K20, "--samples", "40"),
}
THRESHOLDS = (0.0, 0.1, 0.2, 0.3, 0.5)


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a build or of the gold file."""

    url: str
    position: int
    value: Decimal | None
    gain: float = 0.0  # nats


def gold_texts(
    folder: Path, skip: int, documents: int, only: Collection[str] | None = None
) -> tuple[dict[str, str], list[Call]]:
    """Return some texts by their address, of those in `only` if it is given, and their gold calls."""
    rows = _lines(folder / "corpus.jsonl")
    texts = {row["url"]: row["text"] for row in rows if only is None or row["url"] in only}
    chosen = sorted(texts, key=lambda url: digest_of("lever", url))[skip : skip + documents]
    texts = {url: texts[url] for url in chosen}
    gold = [
        Call(row["url"], one["position"], number_at(one["value"]))
        for row in _lines(folder / "gold.jsonl")
        if row["url"] in texts
        for one in row["calls"]
    ]
    return texts, gold


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    return map(json.loads, file.read_text("utf-8").splitlines())


def build(data: Path, corpus: Path, model: str, options: Sequence[str]) -> float:
    """Run a build to its end; return the CPU seconds of its processes."""
    before = _cpu()
    command = ("build", "--corpus", corpus, "--data", data, "--model", model, "--tools", "calculator")
    subprocess.run(
        [sys.executable, "-m", "cli.main", *map(str, command), *_SHARDS, *options],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return _cpu() - before


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def query(data: Path, sql: str) -> list[dict[str, Any]]:
    """Return the rows of a query over a data folder."""
    return rows_of(data / SNAPSHOT, sql)


def scored_calls(data: Path) -> list[Call]:
    """Return the calls that a build scored, the best at each position."""
    sql = (
        "SELECT d.url, s.position, s.response, s.gain FROM best_calls s JOIN documents d USING (doc_id) "
        "WHERE s.gain IS NOT NULL ORDER BY d.url, s.position"
    )
    return [Call(row["url"], row["position"], number_at(row["response"]), row["gain"]) for row in query(data, sql)]


def figures(calls: Sequence[Call], gold: Sequence[Call], texts: dict[str, str], tau_f: float) -> dict[str, float]:
    """Return the counts at a threshold: kept, those that give their number, those that are right, gold calls."""
    kept = [one for one in calls if one.gain >= tau_f]
    wanted = {(one.url, one.position): one.value for one in gold}
    same = [one for one in kept if one.value is not None and one.value == number_at(texts[one.url], one.position)]
    right = [one for one in same if wanted.get((one.url, one.position)) == one.value]
    return {"kept": len(kept), "number": len(same), "right": len(right), "gold": len(wanted)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gold", type=Path, required=True, help="folder with corpus.jsonl and gold.jsonl")
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", type=Path, required=True, help="folder for the builds")
    parser.add_argument("--documents", type=int, default=100)
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--lever", action="append", choices=list(LEVERS), help="default: each, one after the other")
    parser.add_argument("options", nargs="*", help="options of build for every lever, after --")
    given = parser.parse_args()
    texts, gold = gold_texts(given.gold, given.skip, given.documents)
    given.data.mkdir(parents=True, exist_ok=True)
    corpus = given.data / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"url": url, "text": text}) + "\n" for url, text in texts.items()))
    say("| lever | tau_f | kept | number | gold | recall | CPU s | CPU/right | LM tokens |")
    say("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for lever in given.lever or LEVERS:
        options = (*LEVERS[lever], *given.options)
        data = given.data / digest_of("lever", *options)[:8]
        cpu_file = data.with_suffix(".cpu")
        cpu = build(data, corpus, given.model, options)
        cpu += json.loads(cpu_file.read_text()) if cpu_file.exists() else 0.0  # of earlier, ended runs
        cpu_file.write_text(json.dumps(cpu))
        (spent,) = query(data, "SELECT coalesce(sum(lm_tokens), 0) AS tokens FROM costs")
        calls = scored_calls(data)
        for tau_f in THRESHOLDS:
            n = figures(calls, gold, texts, tau_f)
            kept, right = max(1, n["kept"]), n["right"]
            say(
                f"| {lever} | {tau_f:g} | {n['kept']} | {n['number'] / kept:.2f} | {right / kept:.2f} "
                f"| {right / n['gold']:.2f} | {cpu / len(texts):.1f} | {cpu / max(1, right):.1f} "
                f"| {spent['tokens'] / len(texts):,.0f} |"
            )


if __name__ == "__main__":
    main()
