"""The commands `generate` and `chat`."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any, TextIO

from pydantic import Field
from typer import Argument, Option

from cli.options import AsJson, option_of, with_options
from cli.terminal import print_json, say
from cli.tool_options import CallOptions, build_chosen
from flows.build_dataset.parameters import BuildParameters
from tasks.environment import prepare_environment
from tasks.settings import model_credentials
from toolformer_core.errors import UsageError

if TYPE_CHECKING:
    from cli.render.console import Console
    from toolformer_core.decode.records import DecodeEvent, GenerationSettings
    from toolformer_core.decode.toolformer import Toolformer
    from toolformer_core.tools.base import Tool

_CALL_STYLE, _FAILED_CALL_STYLE, _PROMPT_STYLE = "bold yellow", "bold red", "dim"

Model = Annotated[str, option_of(BuildParameters, "model")]


class WritingOptions(CallOptions):
    """The tools, and how a model writes."""

    k: int = Field(10, ge=0, description="A call starts where ' [' is among the k most likely tokens (paper: 10)")
    max_calls: int = Field(1, ge=0, description="Calls per text (paper: 1); later ones may use earlier responses")
    no_tools: bool = Field(False, description="No calls at all: the same as `k` 0")
    temperature: float = Field(0.0, ge=0, description="Of the text; 0 is greedy. Calls are always greedy")
    top_p: float = Field(1.0, description="Draw from the most likely tokens whose probabilities sum to this")
    seed: int = Field(0, ge=0, description="Of the samples")
    date: str = Field("", description="The calendar's date, YYYY-MM-DD (default: today)")
    tool_timeout: float = Field(10.0, description="Seconds a call may take; then its response is empty")

    def settings(self, max_new_tokens: int, stop: Iterable[str] = ()) -> GenerationSettings:
        """Return the settings of the engine, without the thresholds of calls."""
        from toolformer_core.decode.records import GenerationSettings

        same = self.model_dump(include={"max_calls", "temperature", "top_p", "seed"})
        k, context = 0 if self.no_tools else self.k, iso_date(self.date)
        return GenerationSettings(max_new_tokens=max_new_tokens, top_k=k, stop=tuple(stop), context=context, **same)


@with_options(WritingOptions)
def generate(
    options: WritingOptions,
    text: Annotated[str, Argument(help="What the model goes on from; - reads it from standard input")],
    model: Model = "embedded",
    max_new_tokens: Annotated[int, Option(min=1, help="Tokens of text; calls and responses come on top")] = 64,
    stop: Annotated[list[str] | None, Option(help="A string that ends the text; may be repeated")] = None,
    as_json: AsJson = False,
) -> None:
    """Complete a text, calling tools on the way; calls are highlighted.

    The embedded model is a base model and has not learnt to call; the one that `toolformer demo` finetunes has.

    Example: toolformer generate "The sum of 27 and 8 is" --model toolformer-data/finetunes/demo-toolformer-*/model
    """
    prepare_environment()
    given = ("standard input", _configure_stdin().read().rstrip("\n")) if text == "-" else ("TEXT", text)
    prompt = _check_utf8(*given)
    loaded_tools, settings = _build_tools(options, model, options.settings(max_new_tokens, stop or ()))
    with contextlib.closing(load_toolformer(model, loaded_tools, options.tool_timeout)) as toolformer:
        if as_json:
            (generation,) = toolformer.generate([prompt], settings)
            shown = {name: value for name, value in asdict(generation).items() if name != "ids"}
            print_json({"model": model, "prompt": prompt, **shown})
            return
        console = _new_console()
        console.print(prompt, style=_PROMPT_STYLE, end="")
        _print_events(console, toolformer.stream(prompt, settings))


@with_options(WritingOptions)
def chat(
    options: WritingOptions,
    model: Model = "embedded",
    system: Annotated[str, Option(help="A text that stands before all turns")] = "",
    max_new_tokens: Annotated[int, Option(min=1, help="Tokens of an answer; calls come on top")] = 128,
) -> None:
    """Chat with the model. /reset starts anew, /exit or Ctrl-D leaves, Ctrl-C ends an answer.

    The model reads turns as "User: ..." and "Assistant: ...", or as its own chat template has them; calls in its
    earlier answers are left out. Each line of a pipe is a turn.

    Example: toolformer chat --model runs/model     or: printf 'What is 27 + 8?\\n' | toolformer chat --model runs/model
    """
    prepare_environment()
    _check_utf8("--system", system)
    loaded_tools, settings = _build_tools(options, model, options.settings(max_new_tokens))
    with contextlib.closing(load_toolformer(model, loaded_tools, options.tool_timeout)) as toolformer:
        session = _Chat(toolformer, settings, system, _new_console())
        if sys.stdin.isatty():
            print("/reset forgets, /exit or Ctrl-D leaves, Ctrl-C ends an answer", file=sys.stderr)
        for line in _read_lines():
            if line == "/exit":
                break
            if line == "/reset":
                session.reset()
            elif line.startswith("/"):
                say(f"unknown command {line.split()[0]}; there are /reset and /exit", error=True)
            elif line:
                session.answer(line)


def iso_date(text: str) -> str:
    """Return the calendar's date as YYYY-MM-DD; an empty text means today, and what is no date is a UsageError."""
    from toolformer_core.records import day_of

    try:
        return (day_of(text) if text else date.today()).isoformat()
    except ValueError as exc:
        raise UsageError(f"--date: {exc}; write it as YYYY-MM-DD") from exc


def _check_utf8(name: str, text: str) -> str:
    """Return the user's text after checking that it is valid UTF-8; `name` is what error messages call it."""
    from toolformer_core.records import unencodable

    if problem := unencodable(text):
        raise UsageError(f"{name} is not UTF-8 text ({problem}); convert it, e.g. with iconv -t UTF-8")
    return text


def _configure_stdin() -> TextIO:
    """Make bytes on standard input that are not UTF-8 lone surrogates, whatever the locale; return it."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")
    return sys.stdin


def load_toolformer(model: str, tools: list[Tool], timeout_s: float, max_rows: int = 1) -> Toolformer:
    """Return a model by its name, with tools and the seconds that a call may take."""
    from toolformer_core.decode.toolformer import Toolformer
    from toolformer_core.lm.load import load_model

    lm = load_model(model, credentials=model_credentials(model))
    return Toolformer(lm, tools, tool_timeout_s=timeout_s, max_rows=max_rows)


def _build_tools(
    options: CallOptions, model: str, settings: GenerationSettings
) -> tuple[list[Tool], GenerationSettings]:
    from flows.forms.chosen_trigger import chosen_trigger

    if settings.top_k == 0:
        return [], settings
    tools = build_chosen(options)
    return list(tools.values()), replace(settings, trigger=chosen_trigger(options.trigger, model, tools))


def _new_console() -> Console:
    from cli.render.console import Console

    return Console(highlight=False, markup=False, soft_wrap=True, emoji=False)


def _print_events(console: Console, events: Iterable[DecodeEvent]) -> None:
    from toolformer_core.decode.records import CallFinished, CallStarted, TextDelta

    failed_calls = []
    try:
        for event in events:
            if isinstance(event, TextDelta):
                console.print(event.text, end="")
            elif isinstance(event, CallStarted | CallFinished):
                failed = isinstance(event, CallFinished) and event.call.failure is not None
                console.print(event.text, style=_FAILED_CALL_STYLE if failed else _CALL_STYLE, end="")
            if isinstance(event, CallFinished) and event.call.failure is not None:
                failed_calls.append(event.call)
    finally:
        console.print()
    for call in failed_calls:
        message = f"{call.tool or '?'}({call.input}) gave nothing: {call.failure} {call.detail}".rstrip()
        say(message, error=True)


def _read_lines() -> Iterator[str]:
    """Yield the lines that the user types, or those of a pipe. A typed line that is not UTF-8 can be typed again."""
    if not sys.stdin.isatty():
        for number, line in enumerate(_configure_stdin(), start=1):
            yield _check_utf8(f"line {number} of standard input", line.strip())
        return
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  # lets input() recall earlier lines
    _configure_stdin()
    while True:
        try:
            yield _check_utf8("the line", input("> ").strip())
        except UsageError as exc:
            print(f"error: {exc}", file=sys.stderr)
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print("\n/exit or Ctrl-D leaves", file=sys.stderr)


class _Chat:
    def __init__(self, toolformer: Toolformer, settings: GenerationSettings, system: str, console: Console) -> None:
        self._toolformer = toolformer
        self._settings = settings
        self._system = [{"role": "system", "content": system}] if system else []
        self._console = console
        self._turns: list[dict[str, str]] = []

    def reset(self) -> None:
        self._turns = []

    def answer(self, message: str) -> None:
        """Print the answer to a message; if it is interrupted, what was printed so far stays in the chat."""
        self._turns.append({"role": "user", "content": message})
        answer: list[str] = []
        try:
            _print_events(self._console, self._generate(answer))
        except KeyboardInterrupt:
            print("(interrupted)", file=sys.stderr)
        except UsageError as exc:  # a turn that is too long by itself
            say(f"error: {exc}", error=True)
            self._turns.pop()
            return
        self._turns.append({"role": "assistant", "content": "".join(answer)})

    def _generate(self, answer: list[str]) -> Iterator[DecodeEvent]:
        from toolformer_core.decode.records import CallStarted, TextDelta

        prompt = self._prompt()
        settings = replace(self._settings, stop=prompt.stops)
        space_expected = prompt.leading_space
        for event in self._toolformer.stream(prompt.text, settings):
            if isinstance(event, TextDelta | CallStarted) and space_expected:
                space_expected, event = False, replace(event, text=event.text.removeprefix(" "))
            if isinstance(event, TextDelta):
                answer.append(event.text)
            yield event

    def _prompt(self) -> Any:
        """Return the turns as text; while they exceed the model's context, the two oldest turns are forgotten."""
        from serving.chat import chat_prompt
        from serving.errors import RequestError

        hf_model = self._toolformer.lm.hf_model
        while True:
            try:
                prompt = chat_prompt(hf_model.tokenizer, self._system + self._turns)
            except RequestError as exc:
                raise UsageError(str(exc)) from exc
            tokens = len(hf_model.encode(prompt.text)) + self._settings.max_new_tokens
            if tokens < hf_model.context_length or len(self._turns) < 3:
                return prompt
            self._turns = self._turns[2:]
            print("(the oldest turns are forgotten: the model's context is full)", file=sys.stderr)
