"""What annotation saves by not finishing what is decided: hopeless draws, and losses that no threshold can need.

    python benchmarks/scale/annotation.py --corpus corpus.jsonl [--documents 24] [--threads 1] [--json]

Per tool, sampling with every draw finished against sampling in which a draw ends as soon as it cannot become a call of
the tool, and scoring of all three losses against scoring that leaves L(e(c, eps)) out below a gain of 0. Both ways run
in this process, in turns, on the same documents; CPU seconds, tokens drawn behind the scan and tokens of scoring are
told. The draws that are calls must be the same ones, and C* the same text at every tau_f tried; else the command fails.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

from toolformer_core.annotate.assemble import assemble, survivors
from toolformer_core.annotate.execute import execute
from toolformer_core.annotate.in_memory import answered_calls, questions
from toolformer_core.annotate.ingest import read_corpus
from toolformer_core.annotate.prefilter import prefilter
from toolformer_core.annotate.sample import sample
from toolformer_core.annotate.score import score
from toolformer_core.config import (
    TOOL_NAMES,
    ExecuteConfig,
    IngestConfig,
    PrefilterConfig,
    SampleConfig,
    ScoreConfig,
    tau_f_for,
)
from toolformer_core.embedded import CORPUS
from toolformer_core.lm.base import Draw, DrawRequest, LanguageModel, Scan, ScanWrapper, tokens_passed
from toolformer_core.lm.load import load_model
from toolformer_core.prompts.load import load_prompt
from toolformer_core.records import Document, DrawnCall, Prompt, ScoredCall
from toolformer_core.tools.build import ToolSettings, build_tools
from toolformer_core.tools.execution.pool import AnnotationPool

TAUS = (0.0, 0.5, 1.0, 2.0)  # nats

Result = TypeVar("Result")


class _FinishedDraws(ScanWrapper[Scan]):
    """A scan that finishes every draw."""

    def draw(
        self, requests: Sequence[DrawRequest], *, max_tokens: int, temperature: float, name: str = "", begin: str = ""
    ) -> list[Draw]:
        return self.inner.draw(requests, max_tokens=max_tokens, temperature=temperature, begin=begin)


class FinishesDraws:
    """A model whose draws are all finished, as they were before hopeless ones ended."""

    def __init__(self, lm: LanguageModel) -> None:
        self._lm = lm
        self.name, self.digest = lm.name, lm.digest
        self.log_probs, self.token_log_probs = lm.log_probs, lm.token_log_probs

    def scan(self, prompt: Prompt, texts: Sequence[str]) -> Iterator[Scan]:
        """See `LanguageModel`."""
        return (_FinishedDraws(scan) for scan in self._lm.scan(prompt, texts))


def timed(lm: LanguageModel, work: Callable[[], Result]) -> tuple[Result, float, int]:
    """Return a result, its CPU seconds and its LM tokens."""
    tokens, begin = tokens_passed(lm), time.process_time()
    result = work()
    return result, time.process_time() - begin, tokens_passed(lm) - tokens


def cstar(documents: Sequence[Document], scored: Sequence[ScoredCall], tool: str, tau: float) -> list[str]:
    """Return the texts of C* with one tool at a threshold."""
    kept, _ = survivors(scored, {tool: tau})
    return [
        example.text
        for document in documents
        if (example := assemble(document, [call for call in kept if call.doc_id == document.doc_id], TOOL_NAMES))
    ]


def measure(lm: LanguageModel, tool: Any, documents: Sequence[Document]) -> dict[str, float] | None:
    """Return one tool's figures; None if the prefilter keeps no document.

    Raises:
        SystemExit: the two ways differ in a call or in C*.
    """
    pairs = [
        (d, r) for d, r in zip(documents, prefilter(tool.key, documents, PrefilterConfig()), strict=True) if r.kept
    ]
    if not pairs:
        return None
    config, prompt = SampleConfig.for_tool(tool.key), load_prompt(tool.key)
    sample(lm, [prompt], tool.name, pairs[:1], config)  # the prompt's keys and values are there for both

    def drawn(model: LanguageModel) -> list[DrawnCall]:
        return [call for one in sample(model, [prompt], tool.name, pairs, config) for call in one.calls]

    texts = {d.doc_id: d.text for d, _ in pairs}
    _, _, tokens_scan = timed(lm, lambda: [scan.texts for scan in lm.scan(prompt, list(texts.values()))])
    whole, cpu_whole, tokens_whole = timed(lm, lambda: drawn(FinishesDraws(lm)))
    cut, cpu_cut, tokens_cut = timed(lm, lambda: drawn(lm))
    calls = [call for call in cut if call.outcome == "ok"]
    if calls != [call for call in whole if call.outcome == "ok"]:
        raise SystemExit(f"{tool.key}: the calls are not the same ones")
    contexts = {d.doc_id: r.context for d, r in pairs}
    with closing(AnnotationPool(tool, timeout_s=30.0)) as pool:
        answers = execute(tool, questions(calls, contexts), ExecuteConfig(), pool=pool)
    answered = list(answered_calls(calls, contexts, {(a.input, a.context): a for a in answers}))

    def scored(floor: float | None) -> list[ScoredCall]:
        return score(lm, tool.name, texts, answered, ScoreConfig(floor=floor))

    every, cpu_every, tokens_every = timed(lm, lambda: scored(None))
    some, cpu_some, tokens_some = timed(lm, lambda: scored(0.0))
    for tau in (*TAUS, tau_f_for(tool.key)):
        if cstar(documents, every, tool.key, tau) != cstar(documents, some, tool.key, tau):
            raise SystemExit(f"{tool.key}: C* is not the same at tau_f = {tau:g}")
    return {
        "documents": len(pairs),
        "calls": len(calls),
        "scored": len(some),
        "skipped": sum(call.bound is not None for call in some),
        "sample_cpu_s_before": cpu_whole,
        "sample_cpu_s": cpu_cut,
        "drawn_tokens_before": tokens_whole - tokens_scan,
        "drawn_tokens": tokens_cut - tokens_scan,
        "score_cpu_s_before": cpu_every,
        "score_cpu_s": cpu_some,
        "score_tokens_before": tokens_every,
        "score_tokens": tokens_some,
    }


def ratio(figures: Mapping[str, float], name: str) -> float:
    """Return a figure before, divided by the figure now."""
    return figures[f"{name}_before"] / figures[name] if figures[name] else math.nan


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, default=CORPUS)
    parser.add_argument("--documents", type=int, default=24)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--tools", nargs="+", default=list(TOOL_NAMES))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    import torch

    torch.set_num_threads(asked.threads)
    lm = load_model(asked.model)
    rows = read_corpus(str(asked.corpus), IngestConfig(limit=asked.documents))
    documents = [row for row in rows if isinstance(row, Document)][: asked.documents]
    figures: dict[str, dict[str, float]] = {}
    for key, tool in build_tools(asked.tools, ToolSettings()).items():
        if (found := measure(lm, tool, documents)) is not None:
            figures[key] = {name: round(value, 3) for name, value in found.items()}
            sys.stderr.write(f"{key}: done\n")
    figures["all"] = {name: round(sum(f[name] for f in figures.values()), 3) for name in next(iter(figures.values()))}
    head = "tool          docs  calls  skipped of scored   sampling: CPU   drawn   scoring: CPU  tokens"
    lines = [
        f"{tool:12} {f['documents']:5.0f} {f['calls']:6.0f} {f['skipped']:8.0f} of {f['scored']:5.0f} "
        f"{ratio(f, 'sample_cpu_s'):15.2f}x {ratio(f, 'drawn_tokens'):6.2f}x "
        f"{ratio(f, 'score_cpu_s'):13.2f}x {ratio(f, 'score_tokens'):6.2f}x"
        for tool, f in figures.items()
    ]
    print("\n".join([head, *lines, *([json.dumps(figures)] if asked.json else [])]))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
