"""The vLLM backend: a vLLM server draws the calls, the model in this process scans and scores.

    vllm+http://127.0.0.1:8000/v1#path/or/name         the server, and the model it serves as `vllm serve` was told it

Sampling is what a server with prefix caching does well: a document's prefix is held once, however many calls are drawn
behind it. p(" [") at every position and the five tokens of a score are not asked of it: at `/v1/completions` it tells
the log-probabilities of a prompt's own tokens and of its likeliest ones, and " [" is seldom either; and in a server's
precision the losses of a call and of the plain text would differ by more than what is sought. So the same model is
loaded here as well, and before the first scan the server's numbers for a short text are held against it.

Every draw is a request of its own, with its own seed; vLLM gives the same draw for the same seed only as far as its
batches round alike. vLLM itself is not imported, and need not be installed here. It knows no tools or thresholds.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from toolformer_core.errors import ModelError
from toolformer_core.lm.base import Draw, DrawRequest, Scan, ScanAround, ScoreRequest
from toolformer_core.lm.hf import TransformersLM
from toolformer_core.lm.scanning import HFScan, scan_texts
from toolformer_core.lm.served import NOBODY, Credentials
from toolformer_core.records import Prompt
from toolformer_core.syntax import CLOSE, find_close

__all__ = ["Server", "VllmLM"]

_AT_ONCE = 64  # requests on their way; the server makes its own batches of them
_PROBE = "Of the 30 apples, 12 are red, and [Calculator(30 - 12) -> 18] 18 are green."
_KEY_HINT = " (a server's key is read from the environment: TOOLFORMER_MODEL_KEY)"
_APART = 0.1  # mean difference of log-probabilities a token, in nats: bfloat16 stays below, another model does not


@dataclass(frozen=True, slots=True)
class Server:
    """A vLLM server's OpenAI-compatible endpoints.

    Args:
        url: with its `/v1`, without credentials.
        model: what it serves.
        timeout_s: for one answer.
        credentials: what it wants to know of whoever asks; in no message and no `repr`.
    """

    url: str
    model: str
    timeout_s: float = 600.0
    credentials: Credentials = NOBODY

    def complete(self, prompt: Sequence[int], **asked: Any) -> dict[str, Any]:
        """Return the one choice of a completion of token ids, drawn from the model's own distribution.

        Raises:
            ModelError: the server cannot be reached, refuses, or answers something else.
        """
        # a model's generation_config.json may hold other values, and the server takes them where it is told none
        plain = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "skip_special_tokens": False}
        body = {"model": self.model, "prompt": list(prompt), "n": 1, **plain, **asked}
        told = self._post("/completions", body)
        try:
            return dict(told["choices"][0])
        except (KeyError, IndexError, TypeError, ValueError) as exc:
            raise ModelError(f"{self.url} answered without choices; is it a vLLM server?") from exc

    def log_probs(self, prompt: Sequence[int]) -> list[float]:
        """Return the log-probability of every token of a prompt but the first.

        Raises:
            ModelError: as `complete`; or the server does not tell them.
        """
        told = self.complete(prompt, max_tokens=1, temperature=0.0, prompt_logprobs=0).get("prompt_logprobs")
        try:
            return [float(told[i][str(token)]["logprob"]) for i, token in enumerate(prompt) if i]  # type: ignore[index]
        except (KeyError, IndexError, TypeError, ValueError) as exc:
            raise ModelError(f"{self.url} does not tell prompt_logprobs; is it a vLLM server?") from exc

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        credentials = self.credentials
        query = f"?{credentials.query}" if credentials.query else ""
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            request = urllib.request.Request(
                self.url.rstrip("/") + path + query, json.dumps(body).encode(), {"Content-Type": "application/json"}
            )
            if header := credentials.authorization():
                request.add_unredirected_header("Authorization", header)  # another host is not told it
            with direct.open(request, timeout=self.timeout_s) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as exc:  # a cause would be printed with the address, and be kept with it
            told = f"{self.url} refused to draw from {self.model!r}: {credentials.hidden_in(_reason(exc))}"
            raise ModelError(told + (_KEY_HINT if exc.code in (401, 403) else "")) from None
        except (OSError, ValueError, http.client.HTTPException) as exc:
            # others, e.g. InvalidURL, repeat what was sent, and escape it
            told = str(exc) if isinstance(exc, OSError | json.JSONDecodeError) else type(exc).__name__
            raise ModelError(
                f"no vLLM server answers at {self.url} ({credentials.hidden_in(told)}); start one with "
                f"`vllm serve {self.model}`"
            ) from None


def _reason(exc: urllib.error.HTTPError) -> str:
    """What an error's body says in one line, else its status."""
    try:
        told = json.loads(exc.read())
        message = told.get("error", told).get("message") or exc.reason
    except (OSError, ValueError, AttributeError):
        message = exc.reason
    return f"{exc.code} {str(message).strip().splitlines()[0] if str(message).strip() else ''}".strip()


class VllmLM(TransformersLM):
    """A model that scans and scores here, and is drawn from by a server.

    Args:
        local: the model.
        server: serves the same model.
        name: what the user called it.
        digest: of the model, and of its being drawn from elsewhere.
    """

    def __init__(self, local: TransformersLM, server: Server, *, name: str, digest: str) -> None:
        self.network = local.network
        self.server = server
        self._name = name
        self._digest = digest
        self._checked = False

    @property
    def name(self) -> str:
        return self._name

    def scan(self, prompt: Prompt, texts: Sequence[str]) -> Iterator[Scan]:
        """See `LanguageModel.scan`.

        Raises:
            ModelError: as `TransformersLM.scan`; or the server does not answer, or serves another model.
        """
        self.check()
        head = self.network.head_ids(prompt)
        for scan in scan_texts(self.network, prompt, texts):
            yield VllmScan(scan, self.server, head)

    def check(self) -> None:
        """Hold the server's log-probabilities of a short text against the model's, once.

        Raises:
            ModelError: it does not answer, or its numbers are other ones.
        """
        if self._checked:
            return
        network = self.network
        ids = [*([] if network.bos is None else [network.bos]), *network.encode(_PROBE)]
        theirs = np.asarray(self.server.log_probs(ids))
        (ours,) = self.log_probs([ScoreRequest("", _PROBE, 0, len(ids))])
        apart = float(np.abs(ours[-len(theirs) :] - theirs).mean())
        if not apart < _APART:
            raise ModelError(
                f"{self.server.url} serves {self.server.model!r} with other numbers than the model here "
                f"({apart:.2g} nats a token apart); start it with the same folder, and without quantization"
            )
        self._checked = True


class VllmScan(ScanAround[HFScan]):
    """A scan made here, whose draws a server makes; see `base.Scan`."""

    def __init__(self, scan: HFScan, server: Server, head: list[int]) -> None:
        super().__init__(scan)
        self._server = server
        self._head = head

    def draw(self, requests: Sequence[DrawRequest], *, max_tokens: int, temperature: float) -> list[Draw]:
        """See `Scan.draw`.

        Raises:
            ModelError: the server does not answer.
            ValueError: a request names a text or a position that is not in this scan.
        """
        prefixes = [[*self._head, *ids] for ids in self.inner.opened(requests)]
        context = self.inner.context_length
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(
                pool.map(
                    lambda asked: self._draw(
                        asked[0], asked[1].seed, min(max_tokens, context - len(asked[0])), temperature
                    ),
                    zip(prefixes, requests, strict=True),
                )
            )

    def _draw(self, prompt: list[int], seed: int, max_tokens: int, temperature: float) -> Draw:
        asked = {"max_tokens": max_tokens, "temperature": temperature, "seed": seed & (2**63 - 1)}
        told = self._server.complete(prompt, **asked, stop=[CLOSE], include_stop_str_in_output=True)
        text = str(told.get("text", ""))
        close = find_close(text)
        if close is None and told.get("stop_reason") == CLOSE:
            # it closed a bracket inside: the same draw again, by its seed, as far as it may go
            text = str(self._server.complete(prompt, **asked).get("text", ""))
            close = find_close(text)
        return Draw(text, False) if close is None else Draw(text[:close], True)
