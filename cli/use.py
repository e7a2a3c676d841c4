"""The commands `generate`, `chat` and `serve`. `cli.main` registers them.

They import what they need when they run, and report mistakes before a model is loaded.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from cli.options import ALL_TOOLS, AsJson, option_of
from cli.terminal import print_json, say
from flows.build_dataset.parameters import BuildParameters
from tasks.settings import api_key as api_key_from
from tasks.settings import model_credentials, prepare_environment

if TYPE_CHECKING:
    from cli.render.console import Console
    from toolformer_core.decode.records import DecodeEvent, Generation, GenerationSettings
    from toolformer_core.decode.toolformer import Toolformer
    from toolformer_core.tools.base import Tool

__all__ = ["chat", "generate", "serve"]

_CALL, _FAILED, _GIVEN = "bold yellow", "bold red", "dim"

Model = Annotated[str, option_of(BuildParameters, "model")]
Tools = Annotated[str, typer.Option("--tools", help="Tools that may be called; separated by commas")]
TopK = Annotated[
    int, typer.Option("--k", min=0, help="A call starts where ' [' is among the k most likely tokens (paper: 10)")
]
MaxCalls = Annotated[int, typer.Option(min=0, help="Calls per text (paper: 1); later ones may use earlier responses")]
NoTools = Annotated[bool, typer.Option("--no-tools", help="No calls at all: the same as --k 0")]
Temperature = Annotated[float, typer.Option(min=0, help="Of the text; 0 is greedy. Calls are always greedy")]
TopP = Annotated[float, typer.Option(help="Draw from the most likely tokens whose probabilities sum to this")]
Seed = Annotated[int, typer.Option(min=0, help="Of the draws")]
Date = Annotated[str, typer.Option("--date", help="The calendar's date, YYYY-MM-DD (default: today)")]
Passages = Annotated[Path | None, option_of(BuildParameters, "passages")]
Phrases = Annotated[Path | None, option_of(BuildParameters, "phrases")]
Timeout = Annotated[float, typer.Option(help="Seconds a call may take; then its response is empty")]


def generate(
    text: Annotated[str, typer.Argument(help="What the model goes on from; - reads it from standard input")],
    model: Model = "embedded",
    tools: Tools = ALL_TOOLS,
    k: TopK = 10,
    max_calls: MaxCalls = 1,
    no_tools: NoTools = False,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Tokens of text; calls and responses come on top")] = 64,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    seed: Seed = 0,
    stop: Annotated[list[str] | None, typer.Option(help="A string that ends the text; may be repeated")] = None,
    date_: Date = "",
    passages: Passages = None,
    phrases: Phrases = None,
    tool_timeout: Timeout = 10.0,
    as_json: AsJson = False,
) -> None:
    """Go on from a text, calling tools on the way; calls are highlighted.

    The embedded model is a base model and has not learnt to call; the one that `toolformer demo` finetunes has.

    Example: toolformer generate "The sum of 27 and 8 is" --model toolformer-data/finetunes/demo-toolformer-*/model
    """
    prepare_environment()
    from toolformer_core.decode.records import GenerationSettings

    settings = GenerationSettings(
        max_new_tokens=max_new_tokens,
        top_k=0 if no_tools else k,
        max_calls=max_calls,
        temperature=temperature,
        top_p=top_p,
        seed=seed,
        stop=tuple(stop or ()),
        context=_day(date_),
    )
    prompt = _utf8(_stdin().read().rstrip("\n"), "standard input") if text == "-" else _utf8(text, "TEXT")
    with _toolformer(model, _built(tools, settings.top_k > 0, passages, phrases), tool_timeout) as toolformer:
        events = toolformer.stream(prompt, settings)
        if as_json:
            print_json({"model": model, "prompt": prompt, **_plain(_silently(events))})
            return
        console = _console()
        _write(console, prompt, _GIVEN)
        _show(console, events)


def chat(
    model: Model = "embedded",
    system: Annotated[str, typer.Option(help="A text that stands before all turns")] = "",
    tools: Tools = ALL_TOOLS,
    k: TopK = 10,
    max_calls: MaxCalls = 1,
    no_tools: NoTools = False,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Tokens of an answer; calls come on top")] = 128,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    seed: Seed = 0,
    date_: Date = "",
    passages: Passages = None,
    phrases: Phrases = None,
    tool_timeout: Timeout = 10.0,
) -> None:
    """Talk with the model, turn by turn. /reset forgets, /exit or Ctrl-D leaves, Ctrl-C ends an answer.

    The turns stand before the model as "User: ..." and "Assistant: ...", or in the form of its own chat template; of
    its answers the calls are left out. Each line of a pipe is a turn.

    Example: toolformer chat --model runs/model     or: printf 'What is 27 + 8?\\n' | toolformer chat --model runs/model
    """
    prepare_environment()
    from toolformer_core.decode.records import GenerationSettings

    settings = GenerationSettings(
        max_new_tokens=max_new_tokens,
        top_k=0 if no_tools else k,
        max_calls=max_calls,
        temperature=temperature,
        top_p=top_p,
        seed=seed,
        context=_day(date_),
    )
    _utf8(system, "--system")
    with _toolformer(model, _built(tools, settings.top_k > 0, passages, phrases), tool_timeout) as toolformer:
        talk = _Talk(toolformer, settings, system, _console())
        if sys.stdin.isatty():
            print("/reset forgets, /exit or Ctrl-D leaves, Ctrl-C ends an answer", file=sys.stderr)
        for line in _lines():
            if line == "/exit":
                break
            if line == "/reset":
                talk.reset()
            elif line.startswith("/"):
                say(f"unknown command {line.split()[0]}; there are /reset and /exit", error=True)
            elif line:
                talk.answer(line)


def serve(
    model: Model = "embedded",
    host: Annotated[
        str, typer.Option(help="Address to bind; others than loopback should have an API key")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one")] = 8000,
    api_key: Annotated[
        str | None, typer.Option(help="What clients must send (better: $TOOLFORMER_API_KEY, which ps does not show)")
    ] = None,
    name: Annotated[
        str,
        typer.Option(
            help="The model's name for clients (default: --model; of a folder its name, of a training its job's)"
        ),
    ] = "",
    queue: Annotated[int, typer.Option(min=0, help="Texts that may wait for a row; others get 429")] = 256,
    max_rows: Annotated[int, typer.Option(min=1, help="Texts decoded together")] = 32,
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds open answers have when the server is told to end")
    ] = 10.0,
    tools: Tools = ALL_TOOLS,
    passages: Passages = None,
    phrases: Phrases = None,
    tool_timeout: Timeout = 10.0,
) -> None:
    """Serve the model to OpenAI's clients, with /metrics, /health, and a page to try it in. Ctrl-C ends it well.

    Example: toolformer serve --model runs/model --port 8000     then open http://127.0.0.1:8000
    """
    prepare_environment()
    from serving.server import ModelServer, ServerSettings, is_loopback
    from tasks.training.registry import model_label
    from toolformer_core.lm.check import check_model

    check_model(model)
    built = _built(tools, True, passages, phrases)
    settings = ServerSettings(
        name=name or model_label(model),
        host=host,
        port=port,
        api_key=api_key_from(api_key),
        max_rows=max_rows,
        queue=queue,
        grace_s=grace,
    )
    server = ModelServer(settings, lambda: _loaded(model, built, tool_timeout, max_rows))
    if settings.api_key is None and not is_loopback(host):
        warning = (
            f"warning: {host} can be reached from other machines, and no API key is set; anybody may use this server"
        )
        print(warning, file=sys.stderr)
    print(f"{settings.name}: a page at {server.url}, OpenAI's API at {server.url}/v1; Ctrl-C ends it", flush=True)
    server.serve_until_ended()


def _day(given: str) -> str:
    """Return the calendar's date.

    Raises:
        UsageError: it is none.
    """
    from toolformer_core.errors import UsageError
    from toolformer_core.records import day_of

    try:
        return (day_of(given) if given else date.today()).isoformat()
    except ValueError as exc:
        raise UsageError(f"--date: {exc}; write it as YYYY-MM-DD") from exc


def _utf8(text: str, what: str) -> str:
    """Return a text of the user's as it is.

    Raises:
        UsageError: it holds bytes that are no UTF-8, or a lone surrogate.
    """
    from toolformer_core.errors import UsageError
    from toolformer_core.records import unencodable

    if wrong := unencodable(text):
        raise UsageError(f"{what} is not UTF-8 text ({wrong}); convert it, e.g. with iconv -t UTF-8")
    return text


def _stdin() -> TextIO:
    """Return standard input; bytes that are no UTF-8 become lone surrogates there, whatever the locale."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")
    return sys.stdin


def _built(tools: str, wanted: bool, passages: Path | None, phrases: Path | None) -> list[Tool]:
    from toolformer_core.tools.build import ToolSettings, build_tools

    if not wanted:
        return []
    return list(build_tools([t for t in tools.split(",") if t.strip()], ToolSettings(passages, phrases)).values())


def _loaded(model: str, tools: list[Tool], timeout_s: float, max_rows: int = 1) -> Toolformer:
    from toolformer_core.decode.toolformer import Toolformer
    from toolformer_core.lm.load import load_model

    lm = load_model(model, credentials=model_credentials(model))
    return Toolformer(lm, tools, tool_timeout_s=timeout_s, max_rows=max_rows)


@contextlib.contextmanager
def _toolformer(model: str, tools: list[Tool], timeout_s: float) -> Iterator[Toolformer]:
    toolformer = _loaded(model, tools, timeout_s)
    try:
        yield toolformer
    finally:
        toolformer.close()


def _console() -> Console:
    from cli.render.console import Console

    return Console(highlight=False, markup=False, soft_wrap=True, emoji=False)


def _write(console: Console, text: str, style: str | None = None) -> None:
    """At once, as it is; the console makes visible what would steer a terminal."""
    console.print(text, style=style, end="")


def _silently(events: Iterable[DecodeEvent]) -> Generation:
    from toolformer_core.decode.records import Finished

    return next(event.generation for event in events if isinstance(event, Finished))


def _plain(generation: Generation) -> dict[str, Any]:
    return {name: value for name, value in asdict(generation).items() if name != "ids"}


def _show(console: Console, events: Iterable[DecodeEvent]) -> None:
    """Write the text as it comes, and a line's end; what is told of failed calls goes to standard error."""
    from toolformer_core.decode.records import CallFinished, CallStarted, TextDelta

    failed = []
    try:
        for event in events:
            if isinstance(event, TextDelta):
                _write(console, event.text)
            elif isinstance(event, CallStarted):
                _write(console, event.text, _CALL)
            elif isinstance(event, CallFinished):
                _write(console, event.text, _CALL if event.call.failure is None else _FAILED)
                if event.call.failure is not None:
                    failed.append(event.call)
    finally:
        console.print()
    for call in failed:
        told = f"{call.tool or '?'}({call.input}) gave nothing: {call.failure} {call.detail}".rstrip()
        say(told, error=True)


def _lines() -> Iterator[str]:
    """Yield what the user types, or the lines of a pipe.

    Raises:
        UsageError: a pipe's line is no UTF-8; a user may type it again.
    """
    from toolformer_core.errors import UsageError

    if not sys.stdin.isatty():
        for number, line in enumerate(_stdin(), start=1):
            yield _utf8(line.strip(), f"line {number} of standard input")
        return
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  # input() then knows earlier lines
    _stdin()
    while True:
        try:
            yield _utf8(input("> ").strip(), "the line")
        except UsageError as exc:
            print(f"error: {exc}", file=sys.stderr)
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print("\n/exit or Ctrl-D leaves", file=sys.stderr)


class _Talk:
    """The turns so far, and the next answer."""

    def __init__(self, toolformer: Toolformer, settings: GenerationSettings, system: str, console: Console) -> None:
        self._toolformer = toolformer
        self._settings = settings
        self._system = [{"role": "system", "content": system}] if system else []
        self._console = console
        self._turns: list[dict[str, str]] = []

    def reset(self) -> None:
        self._turns = []

    def answer(self, said: str) -> None:
        """Write the model's answer to a turn; an interrupted one is kept as far as it came."""
        from toolformer_core.errors import UsageError

        self._turns.append({"role": "user", "content": said})
        heard: list[str] = []
        try:
            _show(self._console, self._events(heard))
        except KeyboardInterrupt:
            print("(interrupted)", file=sys.stderr)
        except UsageError as exc:  # a turn that is too long by itself
            say(f"error: {exc}", error=True)
            self._turns.pop()
            return
        self._turns.append({"role": "assistant", "content": "".join(heard)})

    def _events(self, heard: list[str]) -> Iterator[DecodeEvent]:
        """Yield the answer's events, less the space that follows "Assistant:", and note its text."""
        from dataclasses import replace

        from toolformer_core.decode.records import CallStarted, TextDelta

        prompt = self._prompt()
        settings = replace(self._settings, stop=prompt.stops)
        begun = not prompt.leading_space
        for event in self._toolformer.stream(prompt.text, settings):
            if isinstance(event, TextDelta | CallStarted) and not begun:
                begun, event = True, replace(event, text=event.text.removeprefix(" "))
            if isinstance(event, TextDelta):
                heard.append(event.text)
            yield event

    def _prompt(self) -> Any:
        """Return the turns as text; the oldest are forgotten where all are too long for the model."""
        from serving.chat import chat_prompt
        from serving.errors import RequestError
        from toolformer_core.errors import UsageError

        network = self._toolformer.lm.hf_model
        while True:
            try:
                prompt = chat_prompt(network.tokenizer, self._system + self._turns)
            except RequestError as exc:
                raise UsageError(exc.message) from exc
            tokens = len(network.encode(prompt.text)) + self._settings.max_new_tokens
            if tokens < network.context_length or len(self._turns) < 3:
                return prompt
            self._turns = self._turns[2:]
            print("(the oldest turns are forgotten: the model's context is full)", file=sys.stderr)
