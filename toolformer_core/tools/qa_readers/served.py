"""A reader behind a server: any model that answers OpenAI's chat completions, given the retrieved passages.

Credentials are in no digest, message, `repr` or pickle, and go to no other host: redirects are never followed. What may
be better later (an overloaded server, a timeout) is a failure that may be tried again; what concerns every question (a
wrong key or address, an unknown model) ends the run.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import urlsplit

from toolformer_core.endpoints import (
    NO_CREDENTIALS,
    Credentials,
    Endpoint,
    holds_no_secret,
    is_loopback,
    parse_endpoint,
)
from toolformer_core.errors import ModelError
from toolformer_core.http_client import kept_client, read_at_most
from toolformer_core.records import ToolFailure, digest_of, storable
from toolformer_core.tools.base import REMOTE_TTL_S, ToolLimits
from toolformer_core.tools.qa import Reading
from toolformer_core.tools.qa_readers.answers import answer_of, passages_text
from toolformer_core.tools.search.passages import Hit

VERSION = "1"
_PROMPT = (
    "Answer the question with a short answer of a few words, taken from the passages: no sentence and no explanation. "
    'If the passages do not hold the answer, reply with exactly "no answer".\n\n'
    "Passages:\n{passages}\n\nQuestion: {question}"
)
_PASSAGE_CHARS = 12_000  # of all passages together
_QUESTION_CHARS = 1_000
_ANSWER_TOKENS = 64
_RESPONSE_BYTES = 1 << 20  # a longer response is not read
_DETAIL_CHARS = 200
_KEY_HINT = "its key is read from the environment variable TOOLFORMER_QA_KEY"
_FORM = "write https://host/v1#model, or http://127.0.0.1:8000/v1#model for a server on this machine"


def is_address(name: str) -> bool:
    """Return whether a reader's name is meant as the address of a server."""
    return "://" in name


def reader_endpoint(address: str) -> Endpoint:
    """Parse the address of a reader, with the credentials written in it; a `ModelError` holds nothing secret."""
    endpoint = parse_endpoint(address)
    if endpoint is None:
        shown = repr(address) if holds_no_secret(address) else "(not shown, as it may hold a secret)"
        raise ModelError(f"the QA reader {shown} does not name a server and a model; {_FORM}")
    if endpoint.url.startswith("http://") and not is_loopback(urlsplit(endpoint.url).hostname or ""):
        raise ModelError(f"the QA reader at {endpoint.url} is on another machine, and plain HTTP can be read; {_FORM}")
    return endpoint


@dataclass(frozen=True)
class ServedReader:
    """Finds answers with a model behind a server. Thread-safe; a pickled reader has no credentials.

    A `ModelError` if the address cannot be used or holds credentials, or they are not for a header.
    """

    ttl_s: ClassVar[float] = REMOTE_TTL_S

    address: str  # the server's address with `#model`, without credentials
    credentials: Credentials = field(default=NO_CREDENTIALS, repr=False)  # sent with every request, in its header
    timeout_s: float = 60.0  # seconds that connecting, and each wait for data, may take
    at_once: int = 8  # requests in progress at a time

    def __post_init__(self) -> None:
        endpoint = reader_endpoint(self.address)
        if endpoint.credentials:
            raise ModelError(f"leave the credentials out of the address of the reader at {endpoint.url}; {_KEY_HINT}")
        if self.credentials.query:
            raise ModelError(f"the key of the QA reader at {endpoint.url} cannot be sent in the address; give a key")

    def __reduce__(self) -> tuple[Any, ...]:
        return ServedReader, (self.address, NO_CREDENTIALS, self.timeout_s, self.at_once)

    @property
    def url(self) -> str:
        return reader_endpoint(self.address).url.rstrip("/")

    @property
    def model(self) -> str:
        return reader_endpoint(self.address).model

    @property
    def digest(self) -> str:
        """Digest of the address, the model's name and the prompt; the model itself may change behind them."""
        figures = map(str, (_PASSAGE_CHARS, _QUESTION_CHARS, _ANSWER_TOKENS))
        return digest_of(type(self).__name__, VERSION, self.url, self.model, _PROMPT, *figures)

    @property
    def limits(self) -> ToolLimits:
        return ToolLimits(at_once=self.at_once, timeout_s=2 * self.timeout_s, tries=3)

    def load(self) -> None:
        """Ask the server for its models, to see that it is there and takes the credentials; else a `ModelError`."""
        import httpx2

        try:
            with self._request("GET", "/models") as response:
                if response.is_redirect:
                    raise ModelError(f"{self.url} refers to another address; give the final one")
        except httpx2.TransportError as exc:
            raise ModelError(f"no server answers at {self.url} ({self._said(exc)}); start it first") from None
        if response.status_code in (401, 403):
            raise self._refusal(response.status_code)

    def read(self, questions: Sequence[tuple[str, Sequence[Hit]]]) -> list[Reading]:
        """Return the model's answer to each question from its passages; None if it says that there is none.

        Failures: `timeout`, `rate_limited`, `unavailable` and `bad_response`, which may be tried again; `refused` (this
        question). A `ModelError` if the server refuses the key, does not have the model, or refers to another address.
        """
        return [self._answer(question, hits) for question, hits in questions]

    def _answer(self, question: str, hits: Sequence[Hit]) -> Reading:
        import httpx2

        if not hits:
            return None
        passages, question = passages_text(hits)[:_PASSAGE_CHARS], question[:_QUESTION_CHARS]
        text = _PROMPT.format(passages=storable(passages), question=storable(question))
        messages = [{"role": "user", "content": text}]
        body = {"model": self.model, "messages": messages, "temperature": 0, "max_tokens": _ANSWER_TOKENS}
        try:
            with self._request("POST", "/chat/completions", body) as response:
                content = read_at_most(response, _RESPONSE_BYTES)
        except httpx2.TimeoutException:
            return ToolFailure("timeout", f"{self.url} did not answer within {self.timeout_s:g} s", retryable=True)
        except (httpx2.TransportError, httpx2.DecodingError) as exc:
            return ToolFailure("unavailable", f"{self.url}: {self._said(exc)}", retryable=True)
        return self._reading(response.status_code, content)

    def _reading(self, status: int, content: bytes | None) -> Reading:
        said: Any = None
        with suppress(ValueError, RecursionError):
            said = json.loads(content or b"")
        if 200 <= status < 300:
            try:
                text = said["choices"][0]["message"]["content"]
            except (KeyError, IndexError, TypeError):
                return ToolFailure("bad_response", f"{self.url} sent no chat completion", retryable=True)
            return answer_of(text) if isinstance(text, str) else None
        message = f"{self.url} answered {status}{self._message(said)}"
        if status == 401:
            raise self._refusal(status)
        if status == 404 or 300 <= status < 400:
            raise ModelError(f"{message}; is there a model {self.model!r}, and does the address end as in {_FORM}?")
        later = status >= 500 or status == 408
        reason = "rate_limited" if status == 429 else "unavailable" if later else "refused"
        return ToolFailure(reason, message, retryable=reason != "refused")

    def _request(self, method: str, path: str, body: Any = None) -> Any:
        header = self.credentials.authorization()
        here = is_loopback(urlsplit(self.url).hostname or "")
        client = kept_client(self.at_once, self.timeout_s, proxies=not here)  # none in front of this machine itself
        return client.stream(method, self.url + path, json=body, headers={"Authorization": header} if header else {})

    def _refusal(self, status: int) -> ModelError:
        return ModelError(f"{self.url} refuses access to {self.model!r} ({status}); {_KEY_HINT}")

    def _said(self, exc: Exception) -> str:
        return self.credentials.redact(f"{type(exc).__name__} {exc}".strip())[:_DETAIL_CHARS]

    def _message(self, said: Any) -> str:
        """Return what an error response says, with a colon before it."""
        error = said.get("error", said) if isinstance(said, Mapping) else None
        message = error.get("message") if isinstance(error, Mapping) else error
        lines = message.strip().splitlines() if isinstance(message, str) else []
        return f": {self.credentials.redact(lines[0])[:_DETAIL_CHARS]}" if lines else ""
