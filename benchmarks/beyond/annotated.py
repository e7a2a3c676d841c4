"""Texts of the small world, annotated by a model in this process, and every call compared with the known ones.

The texts and all choices are the same for every model, so that models differ and nothing else. Nothing here knows
thresholds; `calibration` and `sampling` ask for them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.small_world import gold_texts
from toolformer_core.annotate.execute import execute
from toolformer_core.annotate.in_memory import run_stages
from toolformer_core.annotate.tool_prompt import prompt_for
from toolformer_core.config import ExecuteConfig, PrefilterConfig, SampleConfig, ScoreConfig
from toolformer_core.diagnose.gold import ChosenDocuments, GoldTexts, choose
from toolformer_core.diagnose.judge import CallJudge
from toolformer_core.diagnose.observe import Observed
from toolformer_core.lm.base import tokens_passed
from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.records import ScoredCall
from toolformer_core.tools.base import Tool

__all__ = ["DRAWS", "MT_WORDS", "TOP_K", "Annotated", "FrameTexts", "annotate", "frame_texts", "say_nothing"]

TOP_K = DRAWS = 5  # for every tool, as in the demo; the paper takes 20 and 10 for Calculator and MT
MT_WORDS = 3  # of a foreign passage: the small world's are short

Say = Callable[[str], None]


def say_nothing(_: str) -> None:
    """Show no progress."""


@dataclass(frozen=True, slots=True)
class FrameTexts:
    """Texts whose frames the model was pretrained on, or none of whose it was; with tools that know their world."""

    name: str  # known | new
    texts: GoldTexts
    tools: dict[str, Tool]
    documents: int  # for each tool

    def chosen(self, tool: str) -> ChosenDocuments:
        """Return a tool's documents, three in four with a call that is right."""
        return choose(self.texts, tool, self.documents, PrefilterConfig(chunk_tokens=MT_WORDS))


@dataclass(frozen=True, slots=True)
class Annotated:
    """The calls of one tool, and which of them are right."""

    scored: tuple[ScoredCall, ...]
    judge: CallJudge
    gold: int  # calls that are right and could have been found
    tokens: int  # that passed through the model
    seconds: float

    def right(self, call: ScoredCall) -> bool:
        """Return whether the call, at its place or elsewhere in its document, is as good as a known one."""
        return self.judge.as_good_anywhere(call.doc_id, call.input)

    def partly_right(self, call: ScoredCall) -> bool:
        """Return whether a known call's value holds all words of the response, as a translated half of a phrase."""
        gold = self.judge.observed.gold
        words = set(call.response.lower().split())
        return any(words <= set(g.value.lower().split()) for g in gold if g.doc_id == call.doc_id)

    def found(self, calls: Sequence[ScoredCall]) -> int:
        """Return how many of the known calls are among some, at their place."""
        places = {(c.doc_id, c.position) for c in calls if self.judge.as_good(c.doc_id, c.position, c.input)}
        return len(places)


def frame_texts(folder: Path, documents: int) -> list[FrameTexts]:
    """Write texts of known and of new frames, so many documents a tool; return them."""
    found = []
    for name, held_out in (("known", False), ("new", True)):
        tools, texts = gold_texts(folder / name, held_out, documents)
        found.append(FrameTexts(name, texts, tools, documents))
    return found


def annotate(
    lm: TransformersLM, frames: FrameTexts, tool: str, *, decoys: int = 0, say: Say = say_nothing, **sampling: object
) -> Annotated:
    """Sample, execute and score one tool's calls, and those that are known to be right.

    Args:
        lm: the model.
        frames: the texts.
        tool: its key.
        decoys: of each call.
        say: called with a line of progress.
        sampling: what differs from five positions and five draws.
    """
    chosen, its = frames.chosen(tool), frames.tools[tool]
    config = SampleConfig.for_tool(tool, **{"top_k": TOP_K, "draws": DRAWS, **sampling})
    begin, tokens = time.perf_counter(), tokens_passed(lm)
    run = run_stages(
        lm, its, prompt_for(its), chosen.pairs, config, ExecuteConfig(), ScoreConfig(floor=None, decoys=decoys)
    )
    tokens = tokens_passed(lm) - tokens
    contexts = {document.doc_id: prefiltered.context for document, prefiltered in chosen.pairs}
    known = execute(its, [(call.input, contexts[call.doc_id]) for call in chosen.gold], ExecuteConfig())
    observed = Observed(
        tool=tool,
        documents=tuple(contexts),
        gold=chosen.gold,
        config=config,
        contexts=contexts,
        executions={**run.executions, **{(e.input, e.context): e for e in known}},
        scored=run.scored,
    )
    judge = CallJudge(observed)
    seconds = time.perf_counter() - begin
    say(f"{frames.name} {tool}: {len(run.scored)} calls scored, {tokens:,} tokens, {seconds:.0f} s")
    return Annotated(run.scored, judge, len(judge.gold), tokens, seconds)
