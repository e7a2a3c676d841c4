"""One prompt put to a model's server, and what it writes as small events that a page can show.

| kind  | what it says                                                                             |
|-------|------------------------------------------------------------------------------------------|
| state | the model is being loaded                                                                |
| text  | more text                                                                                |
| call  | a call has begun; its text so far, and the key of its tool                               |
| more  | the call's response, with its closing bracket; `problem` if there is none                |
| done  | the end, in words                                                                        |
| error | why there is no text, or no more of it                                                   |
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from toolformer_core.errors import ToolformerError, UsageError
from viewer.model_servers import ModelServers

_CONNECT_S, _SILENCE_S = 10.0, 60.0  # a server sends something every 15 s at least
_MAX_ERROR = 500  # characters of a server's own words


@dataclass(frozen=True, slots=True)
class PromptSettings:
    """A prompt, and how it is gone on from; see `decode.records.GenerationSettings`."""

    prompt: str
    k: int = 10
    max_calls: int = 1
    max_tokens: int = 64


@dataclass(frozen=True, slots=True)
class Said:
    """An event; see the module."""

    kind: str
    text: str = ""
    tool: str = ""
    problem: str = ""


async def written(
    servers: ModelServers, model: str, settings: PromptSettings, key: str | None = None
) -> AsyncIterator[Said]:
    """Yield what a model writes, as it writes it; the last event is `done` or `error`.

    Args:
        servers: of the models.
        model: its name, see `ModelServers.serving`.
        settings: the prompt and how it is gone on from.
        key: what servers that somebody else started ask of their clients; None: nothing.
    """
    try:
        if not servers.runs(model):
            yield Said("state", "The model is being loaded")
        async with servers.serving(model) as url:
            async for said in _asked(url, settings, key if model in servers.given else None):
                yield said
    except ToolformerError as exc:
        yield Said("error", str(exc))


async def _asked(url: str, settings: PromptSettings, key: str | None) -> AsyncIterator[Said]:
    import httpx2

    headers = {"authorization": f"Bearer {key}"} if key else {}
    timeout = httpx2.Timeout(_SILENCE_S, connect=_CONNECT_S)
    try:
        async with httpx2.AsyncClient(trust_env=False, timeout=timeout, headers=headers) as client:
            name, keys = await _model_of(client, url)
            body = {
                "model": name,
                "prompt": settings.prompt,
                "max_tokens": settings.max_tokens,
                "stream": True,
                "toolformer": {"k": settings.k, "max_calls": settings.max_calls, "show_calls": True},
            }
            async with client.stream("POST", f"{url}/v1/completions", json=body) as answer:
                if answer.status_code != 200:
                    raise UsageError(_problem_in(await answer.aread(), answer.status_code))
                async for line in answer.aiter_lines():
                    if line.startswith("data: {"):
                        for said in _events(json.loads(line.removeprefix("data: ")), keys):
                            yield said
    except httpx2.HTTPError as exc:
        raise UsageError(f"the server at {url} does not answer ({type(exc).__name__})") from exc
    except (ValueError, LookupError, TypeError) as exc:
        raise UsageError(f"the server at {url} answers in another form than toolformer serve's") from exc


async def _model_of(client: Any, url: str) -> tuple[str, dict[str, str]]:
    """Return the name of a server's model, and its tools' keys by their names in calls."""
    answer = await client.get(f"{url}/v1/models")
    if answer.status_code != 200:
        raise UsageError(_problem_in(answer.content, answer.status_code))
    [card] = answer.json()["data"]
    return str(card["id"]), {tool["name"]: tool["key"] for tool in card["toolformer"]["tools"]}


def _problem_in(body: bytes, status: int) -> str:
    """Return the words of a server's error."""
    try:
        return str(json.loads(body)["error"]["message"])[:_MAX_ERROR]
    except (ValueError, LookupError, TypeError):
        return f"the server answers with status {status}"


def _events(chunk: Mapping[str, Any], keys: Mapping[str, str]) -> list[Said]:
    """Return what one chunk of a stream says."""
    if "error" in chunk:
        return [Said("error", str(chunk["error"]["message"])[:_MAX_ERROR])]
    out = []
    for choice in chunk["choices"]:
        text, about = choice.get("text", ""), choice.get("toolformer") or {}
        if about.get("event") == "call_started":
            out.append(Said("call", text, keys.get(about["tool"], about["tool"])))
        elif about.get("event") == "call_finished":
            out.append(Said("more", text, problem=about["call"]["failure"] or ""))
        elif text:
            out.append(Said("text", text))
        if choice.get("finish_reason"):
            calls, tokens = len(about.get("calls", ())), about.get("text_tokens", 0)
            out.append(Said("done", f"{tokens} tokens, {calls} {'call' if calls == 1 else 'calls'}"))
    return out
