"""Grounding (GEAR, algorithm 1): a score for every tool of a library, for many queries at a time.

1. the small LM answers the query without a tool: the preliminary answer a
2. for every tool that has no mock response, it writes a call from the demonstrations and the query: a_i answers it
3. f_i = gamma S(Q, d_i) + (1 - gamma) P(a, a_i)
"""

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from toolformer_core.annotate.execute import execute
from toolformer_core.config import ExecuteConfig
from toolformer_core.decode.records import ToolCall
from toolformer_core.errors import CallSyntaxError, UsageError
from toolformer_core.grounding.encoders import Embeddings, Encoder, cosines
from toolformer_core.grounding.library import LibraryTool
from toolformer_core.grounding.patterns import STANDARD_PATTERNS, PatternSet
from toolformer_core.grounding.records import Cost, Grounding, Query, ToolScore
from toolformer_core.grounding.small_lm import HFSmallLM, first_line
from toolformer_core.lm.base import Draw
from toolformer_core.records import Execution, digest_of
from toolformer_core.syntax import parse

NO_CALL = "no_call"
_QUERY = "{query}"


@dataclass(frozen=True, slots=True)
class GroundingSettings:
    """How the small LM and the tools are called; a `UsageError` if a value is out of range."""

    # asks for the preliminary answer, whose first line that is not blank counts; by the authors' rule all up to its
    # first full stop
    answer_prompt: str = "Q: {query}\nA:"
    max_answer_tokens: int = 24
    max_call_tokens: int = 48  # the "]" included
    call_top_p: float | None = None  # sample calls at this top_p (the authors' code: 0.9); None: take the most likely
    execution: ExecuteConfig = field(default_factory=ExecuteConfig)

    def __post_init__(self) -> None:
        if self.answer_prompt.count(_QUERY) != 1:
            raise UsageError(f"the prompt of the preliminary answer needs one {_QUERY}: {self.answer_prompt!r}")
        if self.max_answer_tokens < 1 or self.max_call_tokens < 1:
            raise UsageError("max_answer_tokens and max_call_tokens must be at least 1")
        if self.call_top_p is not None and not 0 < self.call_top_p <= 1:
            raise UsageError(f"call_top_p must lie in (0, 1], got {self.call_top_p}")

    def prompt_for(self, query: str) -> str:
        return self.answer_prompt.replace(_QUERY, query)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a query with the chosen tool: the large LM's call, and the tool's response."""

    tool: str | None  # key; None: no tool fits, so the text is the large LM's own
    call: str  # the input; "" if none was written
    text: str  # the answer; "" after a failure
    failure: str


class Grounder:
    """A small LM, an encoder and a library; grounders may share `embeddings` of descriptions, by digest."""

    def __init__(
        self,
        library: Sequence[LibraryTool],
        small_lm: HFSmallLM,
        encoder: Encoder,
        *,
        patterns: PatternSet = STANDARD_PATTERNS,
        settings: GroundingSettings | None = None,
        embeddings: dict[str, NDArray[np.float32]] | None = None,
    ) -> None:
        self.library = tuple(library)
        self.small_lm = small_lm
        self.encoder = encoder
        self.patterns = patterns
        self.settings = settings or GroundingSettings()
        self._embeddings = {} if embeddings is None else embeddings
        self.cost = Cost()  # of all calls so far

    def ground(self, queries: Sequence[Query]) -> list[Grounding]:
        """Score every tool for every query; a `ToolformerError` if a tool cannot answer at all."""
        if not queries:
            return []
        begin, tokens = time.perf_counter(), self.small_lm.tokens
        total = len(queries) * (1 + sum(not one.mocked for one in self.library))
        prompts = [self.settings.prompt_for(query.text) for query in queries]
        cut = _first_sentence if self.patterns.authors_rule else first_line
        answers = [cut(a) for a in self.small_lm.answers(prompts, max_tokens=self.settings.max_answer_tokens)]
        semantic = cosines(self.encoder.encode([query.text for query in queries]), self._descriptions())
        columns: list[list[ToolScore]] = []
        for column, one in enumerate(self.library):
            runs: list[Execution | None] = [None] * len(queries)
            if not one.mocked:
                runs = self._ask(one, queries, self.small_lm, self.settings.call_top_p)
            scored = zip(semantic[:, column], runs, strict=True)
            columns.append([tool_score(one, float(s), run, self.patterns) for s, run in scored])
        self.cost += Cost(total, 0, self.small_lm.tokens - tokens, 0, time.perf_counter() - begin)
        return [
            Grounding(query, a, self.patterns.answer_counts(a), scores, self.patterns.weights)
            for query, a, scores in zip(queries, answers, zip(*columns, strict=True), strict=True)
        ]

    def answer_all(self, queries: Sequence[Query], choices: Sequence[str | None], large_lm: HFSmallLM) -> list[Answer]:
        """Answer queries with the tools chosen for them, or without one: one call of the large LM for each."""
        begin, tokens = time.perf_counter(), large_lm.tokens
        tools = {one.key: one for one in self.library}
        out: list[Answer] = [Answer(None, "", "", NO_CALL)] * len(queries)
        for key in dict.fromkeys(choices):
            rows = [i for i, choice in enumerate(choices) if choice == key]
            if key is None:
                prompts = [self.settings.prompt_for(queries[i].text) for i in rows]
                texts = large_lm.answers(prompts, max_tokens=self.settings.max_answer_tokens)
                for i, text in zip(rows, map(first_line, texts), strict=True):
                    out[i] = Answer(None, "", text, "" if text else "empty")
                continue
            executions = self._ask(tools[key], [queries[i] for i in rows], large_lm)
            for i, one in zip(rows, executions, strict=True):
                out[i] = Answer(key, one.input, one.response, one.failure) if one else Answer(key, "", "", NO_CALL)
        self.cost += Cost(0, len(queries), large_lm.tokens - tokens, 0, time.perf_counter() - begin)
        return out

    def _descriptions(self) -> Embeddings:
        digests = [digest_of("embedding", self.encoder.digest, one.tool.description) for one in self.library]
        texts = {digest: one.tool.description for digest, one in zip(digests, self.library, strict=True)}
        if missing := {digest: text for digest, text in texts.items() if digest not in self._embeddings}:
            self._embeddings |= dict(zip(missing, self.encoder.encode(list(missing.values())), strict=True))
        return np.stack([self._embeddings[digest] for digest in digests])

    def _ask(
        self, one: LibraryTool, queries: Sequence[Query], lm: HFSmallLM, top_p: float | None = None
    ) -> list[Execution | None]:
        """Have a call written for each query, and ask the tool; None where no call of the tool was written."""
        from toolformer_core.tools.execution.pool import AnnotationPool

        shown = one.demonstrations
        texts = [shown.after_head(query.text) for query in queries]
        length, name = self.settings.max_call_tokens, one.tool.name
        samples = lm.calls(shown.prompt, texts, max_tokens=length, name=name, top_p=top_p)
        questions = [(input_of(draw, name), query.context) for draw, query in zip(samples, queries, strict=True)]
        usable = [(given, context) for given, context in questions if given is not None]
        config = self.settings.execution
        with closing(AnnotationPool(one.tool, timeout_s=config.timeout_s)) as pool:
            executions = execute(one.tool, usable, config, pool=pool)
        by_question: dict[tuple[str | None, str], Execution] = {(e.input, e.context): e for e in executions}
        self.cost += Cost(tool_calls=len(by_question))
        return [by_question.get(question) for question in questions]


def tool_score(one: LibraryTool, semantic: float, run: Execution | ToolCall | None, patterns: PatternSet) -> ToolScore:
    """Return a tool's part of a grounding; `run` is None where no call was written, or the tool is mocked."""
    if one.mocked:
        counts = patterns.response_counts(one.mock_response, one.key)
        return ToolScore(one.key, semantic, "", one.mock_response, "", counts, mock=True)
    if run is None:
        return ToolScore(one.key, semantic, "", "", NO_CALL, patterns.counts(""))
    counts = patterns.response_counts(run.response, one.key)
    return ToolScore(one.key, semantic, run.input, run.response, run.failure or "", counts)


def _first_sentence(text: str) -> str:
    """Return a text up to its first full stop, where the authors' small LM stops, in one line."""
    sentence, stop, _ = text.strip().partition(".")
    return (sentence + stop).replace("\n", " ")


def input_of(draw: Draw | None, name: str) -> str | None:
    """Return the input of a call; None if it is not a closed call of this tool."""
    if draw is None or not draw.ended:
        return None
    try:
        call, _ = parse(draw.text)
    except CallSyntaxError:
        return None
    return call.input if call.tool == name else None
