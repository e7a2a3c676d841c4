"""A vLLM server of our own on loopback, which answers as vLLM does, from a model of this process."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import torch

from tests.support.served_app import served_by
from tests.tiny import tiny_lm
from toolformer_core.lm.base import uniform
from toolformer_core.lm.hf.engine import TransformersLM

SERVED = "folder/served"


class FakeVllm(ThreadingHTTPServer):
    """Answers as vLLM does: token ids in, seeded draws, stop strings, prompt_logprobs up to a limit; and its models.

    Another model may take the place of `lm` at any time; `max_logprobs` is the option of `vllm serve`.
    """

    request_queue_size = 128  # clients ask 64 at a time

    def __init__(self, lm: TransformersLM, served: str, max_logprobs: int = 20) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lm = lm
        self.served = served
        self.max_logprobs = max_logprobs
        self.wanted: tuple[str, str] | None = None  # the query and the header Authorization of every request
        self.asked: list[dict[str, Any]] = []
        self.lock = threading.Lock()  # one model, many threads
        self.answers: list[tuple[int, bytes]] = []  # given instead, first come first served

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def models(self) -> dict[str, Any]:
        context = self.lm.hf_model.context_length
        told = {"id": self.served, "object": "model", "owned_by": "vllm", "root": self.served, "parent": None}
        return {"object": "list", "data": [{**told, "max_model_len": context}]}

    def complete(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if body["model"] != self.served:
            return 404, {"error": {"message": f"The model `{body['model']}` does not exist.", "code": 404}}
        hf_model, ids = self.lm.hf_model, body["prompt"]
        wanted, vocabulary = body.get("prompt_logprobs"), self.lm.hf_model.lm_head.size
        wanted = vocabulary if wanted == -1 else wanted
        limit = vocabulary if self.max_logprobs == -1 else self.max_logprobs
        if wanted is not None and wanted > limit:
            return 400, {"error": {"message": f"Requested {wanted} logprobs, more than max allowed: {limit}"}}
        if len(ids) + body["max_tokens"] > hf_model.context_length:
            return 400, {"error": {"message": f"This model's maximum context length is {hf_model.context_length}"}}
        with torch.inference_mode():
            out = hf_model.model(input_ids=torch.tensor([ids]), use_cache=True)
        told = (
            None if wanted is None else [None, *self._told(torch.log_softmax(out.logits[0].float(), -1), ids, wanted)]
        )
        written: list[int] = []
        text, finish, why = "", "length", None
        for step in range(body["max_tokens"]):
            p = torch.log_softmax(out.logits[0, -1].float(), dim=-1).double()
            if body["temperature"] == 0:
                token = int(p.argmax())
            else:
                edges = torch.softmax(p / body["temperature"], 0).cumsum(0)
                seed = body["seed"] % 2**64  # a client may send it with a sign
                u = float(uniform(np.asarray([seed], dtype=np.uint64), step)[0])
                token = int(
                    torch.searchsorted(edges, torch.tensor(u * float(edges[-1]), dtype=torch.float64), right=True)
                )
            if token in hf_model.end_ids:
                finish = "stop"
                break
            written.append(token)
            text = hf_model.text(written)
            found = [text.index(s) + len(s) for s in body.get("stop", []) if s in text]
            if found:
                text, finish, why = text[: min(found)], "stop", body["stop"][0]
                if not body.get("include_stop_str_in_output"):
                    text = text[: -len(why)]
                break
            if step + 1 < body["max_tokens"]:
                with torch.inference_mode():
                    row = torch.tensor([[token]])
                    out = hf_model.model(input_ids=row, past_key_values=out.past_key_values, use_cache=True)
        choice = {
            "index": 0,
            "text": text,
            "logprobs": None,
            "finish_reason": finish,
            "stop_reason": why,
            "prompt_logprobs": told,
        }
        return 200, {"object": "text_completion", "model": self.served, "choices": [choice]}

    def _told(self, table: torch.Tensor, ids: list[int], wanted: int) -> list[dict[str, Any]]:
        """What vLLM tells of each token but the first: the most likely ones at its place, and itself."""
        hf_model, out = self.lm.hf_model, []
        values, tokens = table.topk(wanted, dim=-1) if wanted else (table[:, :0], table[:, :0].long())
        for row, token in zip(range(len(ids) - 1), ids[1:], strict=True):
            likely = dict(zip(tokens[row].tolist(), values[row].tolist(), strict=True))
            likely.setdefault(token, float(table[row, token]))
            out.append(
                {
                    str(one): {"logprob": value, "rank": rank, "decoded_token": self._texts(hf_model, one)}
                    for rank, (one, value) in enumerate(likely.items(), 1)
                }
            )
        return out

    @staticmethod
    @cache
    def _texts(hf_model: Any, token: int) -> str:
        return str(hf_model.text([token]))


class _Handler(BaseHTTPRequestHandler):
    server: FakeVllm

    def do_GET(self) -> None:
        self._answer({}, 200, self.server.models())

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _answer(self, body: dict[str, Any], status: int = 0, answer: Any = None) -> None:
        with self.server.lock:
            if body:
                self.server.asked.append(body)
            wanted = self.server.wanted
            if wanted is not None and (self.path.partition("?")[2], self.headers["Authorization"]) != wanted:
                status, told = 401, json.dumps({"error": {"message": f"who are you, {self.path}?"}}).encode()
            elif self.server.answers:
                status, told = self.server.answers.pop(0)
            else:
                if body:
                    status, answer = self.server.complete(body)
                told = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def fake_vllm(served: str = SERVED, lm: TransformersLM | None = None, max_logprobs: int = 20) -> Iterator[FakeVllm]:
    """A server while the block runs."""
    server = FakeVllm(lm or tiny_lm("gpt2"), served, max_logprobs)
    with served_by(server):
        yield server
