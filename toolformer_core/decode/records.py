"""What goes into decoding and what comes out of it: settings, events, generations. Plain values, no tokens, no torch.

A *call* stands in the text as e(c, r), its leading space included; its span is [start, end) in `Generation.text`.
Taking the spans out gives `Generation.clean`.
"""

from __future__ import annotations

from dataclasses import dataclass

from toolformer_core.errors import UsageError
from toolformer_core.records import unencodable

__all__ = ["CallFinished", "CallStarted", "Event", "Finished", "Generation", "Settings", "TextDelta", "ToolCall"]

_SMALLEST_RESPONSE = 8  # tokens: room for the arrow and the bracket that closes an empty response


@dataclass(frozen=True, slots=True)
class Settings:
    """How one sequence is decoded.

    Args:
        max_new_tokens: tokens of text; those of calls and responses have an allowance of their own, so that a call
            never eats the answer.
        top_k: a call starts where " [" is among this many most likely next tokens. 10 is the paper's; 1 is plain
            greedy decoding; 0 means p(" [") = 0: no calls at all.
        max_calls: calls per sequence (the paper: 1). When they are used up, decoding goes on as with `top_k` 0.
        temperature: 0 is greedy; text is drawn at this temperature otherwise, while calls are always greedy.
        top_p: draw from the smallest set of tokens whose probabilities sum to this much.
        seed: of this sequence's draws, 64 bits; they depend on nothing else.
        stop: strings that end the text; they are not part of it. One that a call interrupts is not seen.
        context: what tools are told of the sequence; the calendar reads an ISO date.
        tools: keys of the tools that may be called; None: all.
        max_call_tokens: tokens a call may take up to its arrow.
        max_response_tokens: tokens a response may take; a longer one is cut at a word.

    Raises:
        UsageError: a value out of range.
    """

    max_new_tokens: int = 64
    top_k: int = 10
    max_calls: int = 1
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    stop: tuple[str, ...] = ()
    context: str = ""
    tools: tuple[str, ...] | None = None
    max_call_tokens: int = 64
    max_response_tokens: int = 256

    def __post_init__(self) -> None:
        for name, least in (
            ("max_new_tokens", 1),
            ("top_k", 0),
            ("max_calls", 0),
            ("temperature", 0),
            ("seed", 0),
            ("max_call_tokens", 1),
            ("max_response_tokens", _SMALLEST_RESPONSE),
        ):
            if not getattr(self, name) >= least:
                raise UsageError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if not 0 < self.top_p <= 1:
            raise UsageError(f"top_p must lie in (0, 1], got {self.top_p}")
        if self.seed >= 1 << 64:
            raise UsageError("seed must be less than 2 to the 64")
        if isinstance(self.stop, str) or not all(self.stop):
            raise UsageError("stop must be a sequence of strings that are not empty")
        for text in self.stop:
            if wrong := unencodable(text):
                raise UsageError(f"a stop string is not UTF-8 text ({wrong}); remove that character")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that came to its arrow, and what came of it.

    Failures: `bad_syntax`, `not_enabled` (also of the paper's tools, where they are not given), `timeout`, `crashed`,
    `unavailable` (the tool can answer nothing at all), `empty`, or the tool's own reason. The response is empty then,
    and decoding went on. A bracket that names no tool is none of these: it is text, or taken back.
    """

    tool: str  # the name as the model wrote it; "" if the call does not parse
    input: str  # all that was written if the call does not parse
    response: str
    failure: str | None
    detail: str
    start: int  # span in `Generation.text`
    end: int
    seconds: float  # from the arrow to the response; 0 where no tool was asked
    repeated: bool = False  # asked before in this sequence: the tool was not run again


@dataclass(frozen=True, slots=True)
class Generation:
    """One finished sequence."""

    text: str  # calls shown
    clean: str  # calls removed
    calls: tuple[ToolCall, ...]
    finish: str  # stop (end of text or a stop string) | length | cancelled | stopped (the engine was)
    prompt_tokens: int
    new_tokens: int  # of text
    call_tokens: int  # of calls and responses in the text
    taken_back: int  # calls that were begun and came to nothing; nothing of them is in the text
    ids: tuple[int, ...]  # all tokens behind the prompt, those of calls included


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More text, outside calls. Characters are whole, and nothing of it is ever taken back."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A call has come to its arrow."""

    index: int
    tool: str
    input: str
    text: str  # as it stands in the text so far: " [Calculator(1 + 1) ->"


@dataclass(frozen=True, slots=True)
class CallFinished:
    """The response is in the text. `text` is what follows `CallStarted.text`: " 2]"."""

    index: int
    call: ToolCall
    text: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of a sequence."""

    index: int
    generation: Generation


Event = TextDelta | CallStarted | CallFinished | Finished
