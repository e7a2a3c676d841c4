"""The requests that a client may send: OpenAI's two, with a `toolformer` field of our own.

A field that changes the text and is supported is declared and applied; one that does not (`user`, ...) is ignored. One
that would and is not supported is refused (400) unless its value changes nothing; so is one that neither OpenAI nor we
know. Types are strict, as OpenAI's are: "5" is not a number.
"""

import secrets
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from serving.errors import RequestError, check_text, unsupported
from toolformer_core.decode.records import GenerationSettings
from toolformer_core.records import day_of

MAX_CALLS = 32  # every call reserves memory
MAX_CHOICES = 128  # OpenAI's limit
MAX_STOPS = 128  # OpenAI takes 4, vLLM any number
CHAT_TOKENS = 256  # the default for chat; OpenAI's is the rest of the context
COMPLETION_TOKENS = 16  # the default for completions, as OpenAI's

STRICT = ConfigDict(extra="forbid", strict=True)


def _checked_day(value: str) -> str:
    day_of(value)
    return value


class Extension(BaseModel):
    """How tools are used; every field is optional."""

    model_config = STRICT

    k: int = Field(10, ge=0, description="A call starts where ' [' is among the k most likely tokens; 0: never")
    max_calls: int = Field(1, ge=0, le=MAX_CALLS, description="Calls per text (paper: 1)")
    tools: list[str] | None = Field(None, description="Keys of the tools that may be called; null: all")
    trigger: dict[str, Annotated[float, Field(ge=0, le=1)]] | None = Field(
        None, description="Call a tool only if p(' [') is at least this, by its key; null: the server's; {}: k decides"
    )
    date: Annotated[str, AfterValidator(_checked_day)] | None = Field(
        None, description="The calendar's date, YYYY-MM-DD; null: the server's today"
    )
    show_calls: bool = Field(False, description="Leave the calls in the text, as in training")


class StreamOptions(BaseModel):
    model_config = STRICT

    include_usage: bool | None = None
    include_obfuscation: bool | None = None  # accepted; our streams are never padded


class Message(BaseModel):
    """One turn. A client may send our own message back; its further fields are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True)

    role: str
    content: str | list[dict[str, Any]] | None = None
    tool_calls: Any = None
    function_call: Any = None


class _Common(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)  # `check_supported` checks the fields that are not declared

    model: str
    n: int | None = Field(None, ge=1, le=MAX_CHOICES)
    max_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    seed: int | None = Field(None, ge=-(1 << 63), lt=1 << 63)
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    toolformer: Extension = Field(default_factory=Extension)

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop or []


class CompletionRequest(_Common):
    prompt: Any
    echo: bool | None = None
    best_of: Any = None


class ChatRequest(_Common):
    messages: list[Message] = Field(min_length=1)
    max_completion_tokens: int | None = Field(None, ge=1)


_OWN_TOOLS = "the model calls the server's own tools; name them in 'toolformer': {'tools': [...]} instead"
_NO_LOGPROBS = "log-probabilities are not supported; leave it out"

# Fields of OpenAI's that are not declared: those that do not change the text, and those that would, each with the
# values besides null that change nothing, and the message for all others.
_IGNORED = frozenset(
    "user metadata parallel_tool_calls prompt_cache_key prompt_cache_options prompt_cache_retention safety_identifier "
    "service_tier".split()
)
_UNSUPPORTED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "frequency_penalty": ((0, 0.0), "penalties are not supported; leave it out or send 0"),
    "presence_penalty": ((0, 0.0), "penalties are not supported; leave it out or send 0"),
    "logit_bias": (({},), "logit_bias is not supported; leave it out"),
    "logprobs": ((False,), _NO_LOGPROBS),
    "top_logprobs": ((0,), _NO_LOGPROBS),
    "suffix": (("",), "the model can only continue a prompt; leave suffix out"),
    "tools": (([],), _OWN_TOOLS),
    "tool_choice": (("none", "auto"), _OWN_TOOLS),
    "functions": (([],), _OWN_TOOLS),
    "function_call": (("none", "auto"), _OWN_TOOLS),
    "response_format": (({"type": "text"},), "only {'type': 'text'} is supported"),
    "modalities": ((["text"],), "only text is supported"),
    "store": ((False,), "nothing is stored here; leave it out or send false"),
    **{
        name: ((), f"{name} is not supported; leave it out")
        for name in ("audio", "moderation", "prediction", "reasoning_effort", "verbosity", "web_search_options")
    },
}


def check_supported(request: _Common) -> None:
    """Refuse (400) a request with a field that this server does not support."""
    for name, value in (request.model_extra or {}).items():
        if name not in _IGNORED | _UNSUPPORTED.keys():
            message = f"unrecognized request argument supplied: {name}"
            raise RequestError(400, message, param=name, code="unknown_parameter")
        harmless, message = _UNSUPPORTED.get(name, ((value,), ""))
        if value is not None and not any(value == one and type(value) is type(one) for one in harmless):
            raise unsupported(name, message)
    if isinstance(request, CompletionRequest) and request.best_of not in (None, request.n or 1):
        raise unsupported("best_of", "best_of is not supported, because choices are not ranked; send n alone")
    if request.stream_options is not None and not request.stream:
        raise RequestError(400, "stream_options is only allowed with stream: true", param="stream_options")
    stops = request.stops
    if len(stops) > MAX_STOPS or "" in stops:
        raise RequestError(400, f"stop takes at most {MAX_STOPS} strings, none of them empty", param="stop")
    for stop in stops:
        check_text(stop, "stop")


def prompts_of(prompt: Any) -> list[str]:
    """Return the texts of a completion request; refuse (400) token ids, no text, and one with a lone surrogate."""
    texts = [prompt] if isinstance(prompt, str) else prompt
    if not isinstance(texts, list) or not texts or not all(isinstance(t, str) for t in texts):
        raise RequestError(400, "prompt must be a text or a list of texts; token ids are not supported", param="prompt")
    if len(texts) > MAX_CHOICES:
        raise RequestError(400, f"a request may have at most {MAX_CHOICES} prompts; send fewer", param="prompt")
    for text in texts:
        check_text(text, "prompt")
    return texts


def decode_settings(
    request: _Common, prompts: int, more_stops: Sequence[str] = (), trigger: Mapping[str, float] | None = None
) -> list[GenerationSettings]:
    """Return the settings of each choice: the first prompt's n choices, then the second's.

    Without a temperature decoding is greedy, as in the paper (OpenAI's default is 1). Choice i is sampled with seed +
    i; without a seed, every request uses a new one. `trigger` are the thresholds of a request that names none.
    """
    extension = request.toolformer
    seed = secrets.randbits(64) if request.seed is None else request.seed
    if isinstance(request, ChatRequest):
        limit = request.max_completion_tokens or request.max_tokens or CHAT_TOKENS
    else:
        limit = request.max_tokens or COMPLETION_TOKENS
    return [
        GenerationSettings(
            max_new_tokens=limit,
            top_k=extension.k,
            max_calls=extension.max_calls,
            temperature=request.temperature or 0.0,
            top_p=1.0 if request.top_p is None else request.top_p,
            seed=(seed + i) % (1 << 64),
            stop=(*request.stops, *more_stops),
            context=extension.date or date.today().isoformat(),
            tools=None if extension.tools is None else tuple(extension.tools),
            trigger=(trigger or {}) if extension.trigger is None else extension.trigger,
        )
        for i in range(prompts * (request.n or 1))
    ]
