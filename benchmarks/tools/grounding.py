"""Grounding many queries at a time against one by one: seconds per query and calls per query, in one run.

    python benchmarks/tools/grounding.py --tools 100 --queries 1000 --json

The plain loop takes a seeded share of the same queries, and for each of them every tool by itself: it writes one call
with `generate` from the whole prompt, and asks the tool. Nothing is shared between two calls. Both use the embedded
model, the same tools (the program's own, then distractors) and the same lengths; the choices must be the same, but for
ties of rounding. Queries are those of Dateset, which is generated.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import sys
import time
from collections.abc import Sequence

from toolformer_core.decode.records import GenerationSettings
from toolformer_core.decode.toolformer import Toolformer
from toolformer_core.evaluate.items import Item
from toolformer_core.evaluate.queries import query_of
from toolformer_core.evaluate.tasks import read, task_named
from toolformer_core.grounding.encoders import HiddenStateEncoder, cosines
from toolformer_core.grounding.ground import Grounder, input_of
from toolformer_core.grounding.library import LibraryTool, library_of
from toolformer_core.grounding.patterns import STANDARD_PATTERNS
from toolformer_core.grounding.records import Grounding, Query, ToolScore
from toolformer_core.grounding.scores import Weights
from toolformer_core.grounding.small_lm import HFSmallLM, first_line
from toolformer_core.lm.base import Draw
from toolformer_core.lm.load import load_model
from toolformer_core.records import ToolResponse
from toolformer_core.syntax import OPEN, find_close
from toolformer_core.tools.build import build_tools
from toolformer_core.tools.library import LIBRARY
from toolformer_core.tools.library.distractors import distractors
from toolformer_core.tools.responses import response_line, run_guarded

SHOWN = ("calculator", "calendar", "qa", "wikisearch", "mt", *LIBRARY)


def the_library(count: int) -> tuple[LibraryTool, ...]:
    """Return so many tools: the program's own first, then distractors."""
    own = list(build_tools(SHOWN).values())
    return library_of([*own, *distractors(max(0, count - len(own)))][:count])


def one_by_one(grounder: Grounder, queries: Sequence[Query]) -> list[Grounding]:
    """Ground as a plain loop does: a query, then a tool, one call of the model after the other."""
    lm, settings = grounder.small_lm, grounder.settings
    assert isinstance(lm, HFSmallLM)
    plain = Toolformer(lm.lm, [], max_rows=1)
    out = []
    for query in queries:
        prompt = settings.answer_prompt.replace("{query}", query.text)
        (written,) = plain.generate([prompt], _greedy(settings.max_answer_tokens))
        answer = first_line(written.text)
        embedded = grounder.encoder.encode([query.text])
        scores = []
        for one in grounder.library:
            description = grounder.encoder.encode([one.tool.description])
            semantic = float(cosines(embedded, description)[0, 0])
            text = one.demonstrations.prompt.head + one.demonstrations.after_head(query.text) + OPEN
            (written,) = plain.generate([text], _greedy(settings.max_call_tokens, one.tool.name))
            close = find_close(written.text + "]")
            given = input_of(Draw(written.text[:close], written.finish == "stop"), one.tool.name)
            result = None if given is None else run_guarded(one.tool, given, query.context)
            response = response_line(result.text, 1_000) if isinstance(result, ToolResponse) else ""
            counts = STANDARD_PATTERNS.counts(response)
            scores.append(ToolScore(one.key, semantic, given or "", response, "", counts))
        counts = STANDARD_PATTERNS.counts(answer)
        out.append(Grounding(query, answer, counts, tuple(scores), STANDARD_PATTERNS.weights))
    plain.close()
    return out


def _show(done: int, total: int) -> None:
    sys.stderr.write(f"\r{done:,} of {total:,}")


def _greedy(tokens: int, tool: str = "") -> GenerationSettings:
    return GenerationSettings(max_new_tokens=tokens, top_k=0, max_calls=0, stop=("]",) if tool else ())


def main() -> None:
    """Print both times, their ratio, and how many choices are the same."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tools", type=int, default=100)
    parser.add_argument("--queries", type=int, default=1_000)
    parser.add_argument("--share", type=float, default=0.02, help="of the queries that the plain loop takes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()

    lm = HFSmallLM(load_model("embedded"))
    encoder = HiddenStateEncoder(lm.lm.hf_model, lm.digest)
    grounder = Grounder(the_library(asked.tools), lm, encoder)
    for one in grounder.library:
        one.tool.load()
    task, chosen = task_named("dateset"), random.Random(asked.seed)
    items = [item for item in itertools.islice(read(task), 9_400) if isinstance(item, Item)]
    queries = [query_of(task, item) for item in chosen.sample(items, asked.queries)]
    some = sorted(chosen.sample(range(len(queries)), max(1, round(asked.share * len(queries)))))

    load_before = os.getloadavg()[0]
    begin = time.perf_counter()
    together = grounder.ground(queries, _show)
    seconds = time.perf_counter() - begin
    begin = time.perf_counter()
    alone = one_by_one(grounder, [queries[i] for i in some])
    seconds_alone = (time.perf_counter() - begin) / len(some)
    same = sum(together[i].choice(Weights()) == a.choice(Weights()) for i, a in zip(some, alone, strict=True))
    per_query = seconds / len(queries)
    figures = {
        "tools": len(grounder.library),
        "queries": len(queries),
        "small_calls_per_query": grounder.cost.small_calls / len(queries),
        "tokens_per_query": grounder.cost.tokens / len(queries),
        "together_s_per_query": round(per_query, 4),
        "one_by_one_s_per_query": round(seconds_alone, 4),
        "one_by_one_queries": len(some),
        "ratio": round(seconds_alone / per_query, 2),
        "same_choice": same,
        "load_before": round(load_before, 2),
        "load_after": round(os.getloadavg()[0], 2),
    }
    lines = [f"{name:26} {value}" for name, value in figures.items()]
    print("\n".join(["", *lines, *([json.dumps(figures)] if asked.json else [])]))  # noqa: T201


if __name__ == "__main__":
    main()
