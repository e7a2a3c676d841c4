"""The vLLM backend: a vLLM server draws the calls; the model in this process scans and scores.

    vllm+http://127.0.0.1:8000/v1#path/or/name         the server, and the model name given to `vllm serve`

A server with prefix caching is good at sampling: it holds a document's prefix once, however many calls are drawn from
it. It is not used for scanning or scoring. `/v1/completions` returns log-probabilities only for the prompt's own tokens
and the most likely ones, and " [" is rarely among them; and at a server's precision the losses of a call and of the
plain text differ by more than the gain that is measured. So the same model is loaded here as well, and before the
first scan the server's numbers for a short text are compared with its own.

Every draw is a separate request with its own seed. vLLM returns the same draw for the same seed only as far as its
batches round alike. vLLM is not imported and need not be installed here. This module knows no tools or thresholds.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from toolformer_core.errors import ModelError
from toolformer_core.lm.base import Draw, DrawRequest, Scan, ScanWrapper, ScoreRequest
from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.lm.hf.scanning import HFScan, scan_texts
from toolformer_core.lm.served import NO_CREDENTIALS, Credentials
from toolformer_core.records import Prompt
from toolformer_core.syntax import CLOSE, find_close

__all__ = ["VllmLM", "VllmServer"]

_AT_ONCE = 64  # concurrent requests; the server batches them itself
_PROBE = "Of the 30 apples, 12 are red, and [Calculator(30 - 12) -> 18] 18 are green."
_KEY_HINT = " (the key of a server is read from the environment variable TOOLFORMER_MODEL_KEY)"
_MAX_DIFFERENCE = 0.1  # nats per token, mean: bfloat16 stays below it, a different model does not


@dataclass(frozen=True, slots=True)
class VllmServer:
    """A vLLM server's OpenAI-compatible endpoints.

    Args:
        url: its address with `/v1`, without credentials.
        model: the name of the model it serves.
        timeout_s: seconds allowed for one response.
        credentials: sent with every request; never part of a message or a `repr`.
    """

    url: str
    model: str
    timeout_s: float = 600.0
    credentials: Credentials = NO_CREDENTIALS

    def complete(self, prompt: Sequence[int], **options: Any) -> dict[str, Any]:
        """Return the single choice of a completion of token ids, drawn from the model's unchanged distribution.

        Raises:
            ModelError: the server cannot be reached, refuses, or gives another kind of response.
        """
        # without these the server would apply the values in the model's generation_config.json
        unchanged = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "skip_special_tokens": False}
        body = {"model": self.model, "prompt": list(prompt), "n": 1, **unchanged, **options}
        response = self._post("/completions", body)
        try:
            return dict(response["choices"][0])
        except (KeyError, IndexError, TypeError, ValueError) as exc:
            raise ModelError(f"{self.url} answered without choices; is it a vLLM server?") from exc

    def log_probs(self, prompt: Sequence[int]) -> list[float]:
        """Return the log-probability of every token of a prompt except the first.

        Raises:
            ModelError: as `complete`; or the response holds no log-probabilities.
        """
        by_token = self.complete(prompt, max_tokens=1, temperature=0.0, prompt_logprobs=0).get("prompt_logprobs")
        try:
            return [float(by_token[i][str(t)]["logprob"]) for i, t in enumerate(prompt) if i]  # type: ignore[index]
        except (KeyError, IndexError, TypeError, ValueError) as exc:
            raise ModelError(f"{self.url} answered without prompt_logprobs; is it a vLLM server?") from exc

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        credentials = self.credentials
        query = f"?{credentials.query}" if credentials.query else ""
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            request = urllib.request.Request(
                self.url.rstrip("/") + path + query, json.dumps(body).encode(), {"Content-Type": "application/json"}
            )
            if header := credentials.authorization():
                request.add_unredirected_header("Authorization", header)  # a redirect must not pass it to another host
            with direct.open(request, timeout=self.timeout_s) as response:
                return json.load(response)
        except urllib.error.HTTPError as exc:  # `from None`: the cause holds the URL with its credentials
            message = f"{self.url} refused to draw from {self.model!r}: {credentials.redact(_reason(exc))}"
            raise ModelError(message + (_KEY_HINT if exc.code in (401, 403) else "")) from None
        except (OSError, ValueError, http.client.HTTPException) as exc:
            # other errors, e.g. InvalidURL, repeat the request in an escaped form that is not recognised as secret
            reason = str(exc) if isinstance(exc, OSError | json.JSONDecodeError) else type(exc).__name__
            raise ModelError(
                f"no vLLM server answers at {self.url} ({credentials.redact(reason)}); start one with "
                f"`vllm serve {self.model}`"
            ) from None


def _reason(exc: urllib.error.HTTPError) -> str:
    """Return the status and the first line of an error's message."""
    try:
        body = json.loads(exc.read())
        message = body.get("error", body).get("message") or exc.reason
    except (OSError, ValueError, AttributeError):
        message = exc.reason
    return f"{exc.code} {str(message).strip().splitlines()[0] if str(message).strip() else ''}".strip()


class VllmLM(TransformersLM):
    """A model that scans and scores in this process, and whose draws a server makes.

    Args:
        local: the model.
        server: a server of the same model.
        name: the user's name for it.
        digest: digest of the model and of the fact that a server makes its draws.
    """

    def __init__(self, local: TransformersLM, server: VllmServer, *, name: str, digest: str) -> None:
        self.hf_model = local.hf_model
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
            ModelError: as `TransformersLM.scan`; or the server does not answer, or serves a different model.
        """
        self.check()
        head = self.hf_model.head_ids(prompt)
        # those that end a text end a draw of the server by themselves
        ends = {i: self.hf_model.text([i]) for i in sorted(self.hf_model.ends(prompt) - self.hf_model.end_ids)}
        for scan in scan_texts(self.hf_model, prompt, texts):
            yield VllmScan(scan, self.server, head, ends)

    def check(self) -> None:
        """Compare the server's log-probabilities of a short text with the model's, once.

        Raises:
            ModelError: the server does not answer, or its numbers differ.
        """
        if self._checked:
            return
        hf_model = self.hf_model
        ids = [*([] if hf_model.bos is None else [hf_model.bos]), *hf_model.encode(_PROBE)]
        remote = np.asarray(self.server.log_probs(ids))
        (local,) = self.log_probs([ScoreRequest("", _PROBE, 0, len(ids))])
        difference = float(np.abs(local[-len(remote) :] - remote).mean())
        if not difference < _MAX_DIFFERENCE:
            raise ModelError(
                f"the numbers of {self.server.model!r} at {self.server.url} differ from those of the model here (by "
                f"{difference:.2g} nats per token); start the server with the same folder and without quantization"
            )
        self._checked = True


class VllmScan(ScanWrapper[HFScan]):
    """A scan made in this process, whose draws a server makes; see `base.Scan`."""

    def __init__(self, scan: HFScan, server: VllmServer, head: list[int], ends: Mapping[int, str]) -> None:
        super().__init__(scan)
        self._server = server
        self._head = head
        self._ends = ends  # further tokens that end a draw, with their text

    def draw(
        self, requests: Sequence[DrawRequest], *, max_tokens: int, temperature: float, name: str = "", begin: str = ""
    ) -> list[Draw]:
        """See `Scan.draw`. What draws begin with is drawn here, its first free token included; the server goes on.

        The server's `allowed_token_ids` would hold for every token, not for the first alone. So the model here draws
        that one, in the pass that computes the log-probability, and the server continues behind it with the seed's
        numbers of its own.

        Raises:
            ModelError: the server does not answer.
            TokenizerError: see `HFModel.beginning`.
            ContextError: see `HFModel.beginning`.
            ValueError: a request names a text or a position that is not in this scan.
        """
        begun = [(Draw("", False), list[int]())] * len(requests)
        if begin:
            room = min(max_tokens, len(self.inner.beginning(begin).given) + 1)
            begun = self.inner.draw_tokens(requests, max_tokens=room, temperature=temperature, begin=begin)
        prompts = [[*self._head, *ids] for ids in self.inner.ids_before_draw(requests)]
        context = self.inner.context_length

        def draw_one(prompt: list[int], request: DrawRequest, start: tuple[Draw, list[int]]) -> Draw:
            draw, ids = start
            room = min(max_tokens, context - len(prompt)) - len(ids)
            if draw.ended or room <= 0:
                return draw
            return self._draw([*prompt, *ids], request.seed, room, temperature, draw)

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(draw_one, prompts, requests, begun))

    def _draw(self, prompt: list[int], seed: int, max_tokens: int, temperature: float, begun: Draw) -> Draw:
        options: dict[str, Any] = {"max_tokens": max_tokens, "temperature": temperature, "seed": seed & (2**63 - 1)}
        if self._ends:
            options["stop_token_ids"] = list(self._ends)
        choice = self._server.complete(prompt, **options, stop=[CLOSE], include_stop_str_in_output=True)
        # what is asked for the bracket's sake holds for a token that ends the turn, too
        text = begun.text + str(choice.get("text", "")).removesuffix(self._ends.get(choice.get("stop_reason", -1), ""))
        close = find_close(text)
        if close is None and choice.get("stop_reason") == CLOSE:
            # that "]" closed an inner bracket: repeat the draw with its seed, without the stop string
            text = begun.text + str(self._server.complete(prompt, **options).get("text", ""))
            close = find_close(text)
        return begun._replace(text=text if close is None else text[:close], ended=close is not None)
