"""Stand-ins that behave like the real thing, for tests: tools, a language identifier, short ways to make records."""

import threading
from collections.abc import Callable, Mapping, Sequence

from toolformer_core.annotate.call_filter import CallFilter, reasons_of
from toolformer_core.records import (
    Document,
    DrawnCall,
    PrefilterResult,
    Prompt,
    ScoredCall,
    ToolFailure,
    ToolResponse,
    ToolResult,
    digest_of,
)


class FakeTool:
    """A tool that answers from a table, or by a function, and remembers what it was asked."""

    key = "fake"
    name = "Fake"
    description = "Answers from a table."
    fingerprint = "fake"

    def __init__(self, answers: dict[str, object] | Callable[[str, str], object], name: str = "") -> None:
        if name:
            self.key, self.name = name.lower(), name
        self._answers = answers
        self.asked: list[tuple[str, str]] = []
        self.loads = 0

    def load(self) -> None:
        self.loads += 1

    def run(self, input: str, context: str = "") -> ToolResult:
        self.asked.append((input, context))
        if callable(self._answers):
            answer = self._answers(input, context)
        else:
            answer = self._answers.get(input, ToolFailure("no_result"))
        if isinstance(answer, BaseException):
            raise answer
        return ToolResponse(answer) if isinstance(answer, str) else answer  # type: ignore[return-value]


class StuckTool(FakeTool):
    """A tool that never answers the input "stuck" until it is let go."""

    def __init__(self) -> None:
        super().__init__(lambda input, context: input.upper())
        self.let_go = threading.Event()

    def run(self, input: str, context: str = "") -> ToolResult:
        if input == "stuck":
            self.let_go.wait()
        return super().run(input, context)


class GatedTool(FakeTool):
    """A tool that answers nothing before it is let go; `at_work` counts its calls."""

    def __init__(self, name: str = "T") -> None:
        super().__init__(lambda input, context: "49")
        self.key, self.name = f"gated{name}", name
        self.let_go = threading.Event()
        self.at_work = 0
        self._lock = threading.Lock()

    def run(self, input: str, context: str = "") -> ToolResult:
        with self._lock:
            self.at_work += 1
        self.let_go.wait()
        return super().run(input, context)


def marked_language(text: str) -> tuple[str, float]:
    """The language of a made-up text: words that begin with "x" are of the language xx; the confidence is a share."""
    words = text.split()
    foreign = sum(w.lower().startswith("x") for w in words) / len(words)
    return ("xx", foreign) if foreign > 0.5 else ("en", 1 - foreign)


def a_document(text: str = "one two three", url: str | None = None, line: int = 1) -> Document:
    return Document(digest_of("document", text, url or ""), text, url, None, "corpus.jsonl", line)


def a_verdict(document: Document, spans: tuple[tuple[int, int], ...] = ()) -> PrefilterResult:
    return PrefilterResult(document.doc_id, "calculator", True, "test", "", spans)


def a_prompt(tool: str = "calculator") -> Prompt:
    return Prompt(tool, "Add calls.\nInput: ", "\nOutput:")


def a_drawn(document: Document, position: int, input: str, tool: str = "calculator", count: int = 1) -> DrawnCall:
    return DrawnCall(document.doc_id, tool, position, -1.0, 0, f"Calculator({input})", "ok", input, count)


def a_scored(
    doc_id: str = "d",
    tool: str = "calculator",
    position: int = 0,
    input: str = "1 + 1",
    response: str = "2",
    gain: float = 1.0,
    seen_before: bool = False,
    seen_after: bool = False,
    window_end: int | None = None,
) -> ScoredCall:
    """A scored call with L+ = 1 and L- = 1 + gain, by the plain loss; the call's loss is larger."""
    losses = (1.0 + gain, 2.0 + abs(gain), 1.0)
    return ScoredCall(doc_id, tool, position, input, response, -1.0, 1, *losses, seen_before, seen_after, window_end)


def survivors(
    calls: Sequence[ScoredCall], tau_f: Mapping[str, float] | None = None, *, keep_repeats: bool = False
) -> tuple[list[ScoredCall], list[tuple[ScoredCall, str]]]:
    """The calls that a build keeps, and the others with their reasons; both in the order given."""
    config = {"tau_f": tau_f, "keep_repeats": {call.tool: keep_repeats for call in calls}}
    pairs = list(zip(calls, reasons_of(calls, CallFilter.of_build({c.tool for c in calls}, config)), strict=True))
    return [call for call, reason in pairs if not reason], [pair for pair in pairs if pair[1]]
