"""A client of a vLLM server: completions of token ids, the log-probabilities of a prompt's tokens, samples.

`prompt_logprobs: n` adds, for every token of the prompt but the first, the n most likely ones at its place and the
token itself: {id: {logprob, rank, ...}}. vLLM wants `max_tokens` of at least 1, so every request writes a token.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from toolformer_core.endpoints import NO_CREDENTIALS, Credentials
from toolformer_core.errors import ModelError, ServerRefusalError
from toolformer_core.http_client import direct_client
from toolformer_core.lm.base import Draw
from toolformer_core.syntax import CLOSE, find_close

if TYPE_CHECKING:
    import httpx2

AT_ONCE = 64  # concurrent requests; the server batches them itself
_KEY_HINT = " (the key of a server is read from the environment variable TOOLFORMER_MODEL_KEY)"
_TRANSIENT = frozenset({408, 429, 502, 503, 504})  # statuses of a server that is busy or restarting
_LONGEST_WAIT_S = 30.0


@dataclass(frozen=True, slots=True)
class VllmServer:
    """A vLLM server's OpenAI-compatible endpoints; asked again after 1, 2, 4, ... 30 seconds if it is busy or away."""

    url: str  # its address with `/v1`, without credentials
    model: str
    timeout_s: float = 600.0  # seconds allowed for one response; one that takes longer is not requested again
    credentials: Credentials = NO_CREDENTIALS  # sent with every request; never part of a message or a `repr`
    tries: int = 1  # of a request in all
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False, compare=False)

    def complete(self, prompt: Sequence[int], **options: Any) -> dict[str, Any]:
        """Return the single choice of a completion of token ids, from the unchanged distribution; or a ModelError."""
        # without these the server would apply the values in the model's generation_config.json
        unchanged = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "skip_special_tokens": False}
        body = {"model": self.model, "prompt": list(prompt), "n": 1, **unchanged, **options}
        response = self._request("/completions", body)
        try:
            return dict(response["choices"][0])
        except (KeyError, IndexError, TypeError, ValueError) as exc:
            raise ModelError(f"{self.url} answered without choices; is it a vLLM server?") from exc

    def likely_tokens(self, prompt: Sequence[int], n: int) -> list[dict[int, float]]:
        """Return log p of the prompt's own and the n most likely tokens, by id, at every place but the first.

        A ServerRefusalError if the server allows fewer.
        """
        places = self._prompt_logprobs(prompt, n)
        return [{token: log_p for token, (log_p, _) in place.items()} for place in places]

    def log_probs(self, prompt: Sequence[int]) -> list[float]:
        """Return the log-probability of every token of a prompt except the first."""
        return [place[token] for place, token in zip(self.likely_tokens(prompt, 0), prompt[1:], strict=True)]

    def spelling(self, prompt: Sequence[int]) -> list[str]:
        """Return the texts of a prompt's tokens but the first, as the server's tokenizer writes each of them alone."""
        places = self._prompt_logprobs(prompt, 0)
        return [place[token][1] for place, token in zip(places, prompt[1:], strict=True)]

    def _prompt_logprobs(self, prompt: Sequence[int], n: int) -> list[dict[int, tuple[float, str]]]:
        choice = self.complete(prompt, max_tokens=1, temperature=0.0, prompt_logprobs=n)
        try:
            places = [
                {int(token): (float(it["logprob"]), str(it.get("decoded_token"))) for token, it in place.items()}
                for place in choice["prompt_logprobs"][1:]
            ]
            if all(token in place for place, token in zip(places, prompt[1:], strict=True)):
                return places
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            raise ModelError(self._no_logprobs()) from exc
        raise ModelError(self._no_logprobs())

    def _no_logprobs(self) -> str:
        return f"{self.url} answered without prompt_logprobs; is it a vLLM server?"

    def description(self) -> dict[str, Any]:
        """Return what the server says of the model: `id`, mostly `root` and `max_model_len`; or a ModelError."""
        response = self._request("/models")
        listed = response.get("data") if isinstance(response, dict) else None
        models = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
        if found := next((one for one in models if one.get("id") == self.model), None):
            return found
        served = ", ".join(repr(str(one.get("id"))) for one in models) or "no model"
        raise ModelError(f"{self.url} serves {served}, not {self.model!r}; write one of its names after the #")

    def draw(self, prompt: Sequence[int], seed: int, max_tokens: int, temperature: float, begun: Draw) -> Draw:
        """Return a draw that goes on from `begun`, whose tokens end the prompt, until a "]" closes it."""
        options: dict[str, Any] = {"max_tokens": max_tokens, "temperature": temperature, "seed": seed}
        choice = self.complete(prompt, **options, stop=[CLOSE], include_stop_str_in_output=True)
        text = begun.text + str(choice.get("text", ""))
        close = find_close(text)
        if close is None and choice.get("stop_reason") == CLOSE:
            # that "]" closed an inner bracket: repeat the draw with its seed, without the stop string
            text = begun.text + str(self.complete(prompt, **options).get("text", ""))
            close = find_close(text)
        return begun._replace(text=text if close is None else text[:close], ended=close is not None)

    def _request(self, path: str, body: dict[str, Any] | None = None) -> Any:
        import httpx2

        tried = 0
        while True:
            try:
                return self._send(path, body)
            except httpx2.HTTPStatusError as exc:
                status = exc.response.status_code
                reason = self.credentials.redact(_reason(exc.response))
                message = f"{self.url} refused a request to {self.model!r}: {reason}"
                error: ModelError = ServerRefusalError(message + (_KEY_HINT if status in (401, 403) else ""))
                transient = status in _TRANSIENT
            except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as exc:
                # other errors, e.g. InvalidURL, repeat the request in an escaped form that is not recognised as secret
                known = isinstance(exc, httpx2.TransportError | OSError | json.JSONDecodeError)
                reason = self.credentials.redact(str(exc) if known else type(exc).__name__)
                error = ModelError(
                    f"no vLLM server answers at {self.url} ({reason}); start one with `vllm serve {self.model}`"
                )
                # nobody listens, or the connection broke; a slow answer is not requested again
                transient = isinstance(exc, httpx2.NetworkError | httpx2.ProtocolError)
            tried += 1
            if not transient or tried >= self.tries:
                raise error  # not from its cause, which holds the URL with its credentials
            self.sleep(min(2.0 ** (tried - 1), _LONGEST_WAIT_S))

    def _send(self, path: str, body: dict[str, Any] | None) -> Any:
        query = f"?{self.credentials.query}" if self.credentials.query else ""
        header = self.credentials.authorization()
        method, url = "GET" if body is None else "POST", self.url.rstrip("/") + path + query
        headers = {"Authorization": header} if header else {}
        response = direct_client().request(method, url, json=body, headers=headers, timeout=self.timeout_s)
        return response.raise_for_status().json()


def draw_on(
    server: VllmServer,
    prompts: Sequence[list[int]],
    seeds: Sequence[int],
    begun: Sequence[tuple[Draw, list[int]]],
    max_tokens: int,
    temperature: float,
    context_length: int,
) -> list[Draw]:
    """Return a server's samples, `AT_ONCE` at a time; what `begun` holds is drawn, and its tokens count already."""

    def draw_one(prompt: list[int], seed: int, start: tuple[Draw, list[int]]) -> Draw:
        draw, ids = start
        room = min(max_tokens, context_length - len(prompt)) - len(ids)
        if draw.ended or room <= 0:
            return draw
        return server.draw([*prompt, *ids], seed, room, temperature, draw)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(draw_one, prompts, seeds, begun))


def _reason(response: httpx2.Response) -> str:
    message = response.reason_phrase
    with contextlib.suppress(ValueError, AttributeError):
        body = response.json()
        message = body.get("error", body).get("message") or message
    lines = str(message).strip().splitlines() or [""]
    return f"{response.status_code} {lines[0]}".strip()
