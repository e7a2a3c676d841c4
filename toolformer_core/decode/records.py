"""Input and output of decoding: settings, events and generations, as plain values without tensors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from toolformer_core.errors import UsageError
from toolformer_core.records import unencodable

__all__ = [
    "CallFinished",
    "CallStarted",
    "DecodeEvent",
    "Finished",
    "Generation",
    "GenerationSettings",
    "TextDelta",
    "ToolCall",
]

_MIN_RESPONSE = 8  # tokens: room for the arrow and the closing bracket of an empty response


@dataclass(frozen=True, slots=True)
class GenerationSettings:
    """How one sequence is decoded.

    Args:
        max_new_tokens: tokens of text; tokens of calls and responses are not counted here, so that a call does not
            shorten the text.
        top_k: a call starts where " [" is among this many most likely next tokens. The paper uses 10; 1 is plain
            greedy decoding; 0 means p(" [") = 0: no calls at all.
        max_calls: calls per sequence (the paper: 1). When they are used up, decoding continues as with `top_k` 0.
        temperature: 0 is greedy; otherwise text is sampled at this temperature, while calls are always greedy.
        top_p: sample from the smallest set of most likely tokens whose probabilities sum to at least this.
        seed: of this sequence's samples, 64 bits; they depend on nothing else.
        stop: strings that end the text; they are not part of it. A stop string that a call interrupts is not seen.
        context: passed to the tools with each input; the calendar reads it as an ISO date.
        tools: keys of the tools that may be called; None: all.
        max_call_tokens: tokens that a call may take up to its arrow.
        max_response_tokens: tokens that a response may take; a longer one is cut at a word.
        trigger: per tool (its key), the smallest p(" [") at which it is called, see `sequence`; 0 for a tool that is
            not in it, and empty in the paper: then `top_k` alone decides. `decode.trigger` fits it.

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
    trigger: Mapping[str, float] = field(default_factory=dict, hash=False)  # a mapping has no hash

    def __post_init__(self) -> None:
        above_0 = {"max_new_tokens": 1, "max_call_tokens": 1, "max_response_tokens": _MIN_RESPONSE}
        for name in ("top_k", "max_calls", "temperature", "seed", *above_0):
            if not getattr(self, name) >= (least := above_0.get(name, 0)):
                raise UsageError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if not 0 < self.top_p <= 1:
            raise UsageError(f"top_p must lie in (0, 1], got {self.top_p}")
        if self.seed >= 1 << 64:
            raise UsageError("seed must be less than 2 to the power of 64")
        for tool, threshold in self.trigger.items():
            if not 0 <= threshold <= 1:
                raise UsageError(f"trigger is a probability per tool, in [0, 1], got {threshold} for {tool}")
        if isinstance(self.stop, str) or not all(self.stop):
            raise UsageError("stop must be a sequence of non-empty strings")
        for text in self.stop:
            if flaw := unencodable(text):
                raise UsageError(f"a stop string is not UTF-8 text ({flaw}); remove that character")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that reached its arrow, and its result.

    Failures: `bad_syntax`, `not_enabled` (also if one of the paper's tools is called but was not given), `timeout`,
    `crashed`, `unavailable` (the tool cannot answer anything), `empty`, or the tool's own reason. After a failure the
    response is empty and decoding continues.
    """

    tool: str  # the name as the model wrote it; "" if the call does not parse
    input: str  # if the call does not parse: everything that was written
    response: str
    failure: str | None
    detail: str
    start: int  # span in `Generation.text`, the leading space included
    end: int
    seconds: float  # from the arrow to the response; 0 if no tool was called
    repeated: bool = False  # an earlier call of this sequence had the same input: the tool was not run again


@dataclass(frozen=True, slots=True)
class Generation:
    """One finished sequence."""

    text: str  # with calls
    clean: str  # without calls
    calls: tuple[ToolCall, ...]
    finish: str  # stop (end of text or a stop string) | length | cancelled | stopped (the engine was stopped)
    prompt_tokens: int
    new_tokens: int  # of text
    call_tokens: int  # of the calls and responses in the text
    taken_back: int  # calls that were started but taken back; the text does not hold them
    ids: tuple[int, ...]  # all tokens after the prompt, including those of calls


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More text, outside calls. It never ends inside a character and is never taken back."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A call has reached its arrow."""

    index: int
    tool: str
    input: str
    text: str  # the call as written so far: " [Calculator(1 + 1) ->"


@dataclass(frozen=True, slots=True)
class CallFinished:
    """The response has been inserted. `text` is what follows `CallStarted.text`, e.g. " 2]"."""

    index: int
    call: ToolCall
    text: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of a sequence."""

    index: int
    generation: Generation


DecodeEvent = TextDelta | CallStarted | CallFinished | Finished
Emit = Callable[[DecodeEvent], None]
