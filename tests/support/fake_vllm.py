"""A vLLM server of our own on loopback, which answers as vLLM does, from a model of this process."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import torch
from tiny import plain_log_probs, tiny_lm

from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.lm.hf.sampling import uniform

SERVED = "folder/served"


class FakeVllm(ThreadingHTTPServer):
    """`/v1/completions` as vLLM answers it: token ids in, seeded draws, stop strings, prompt_logprobs of own tokens."""

    daemon_threads = True

    def __init__(self, lm: TransformersLM, served: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lm = lm
        self.served = served
        self.wanted: tuple[str, str] | None = None  # the query and the header Authorization of every request
        self.asked: list[dict[str, Any]] = []
        self.lock = threading.Lock()  # one model, many threads
        self.answers: list[tuple[int, bytes]] = []  # given instead, first come first served

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def complete(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if body["model"] != self.served:
            return 404, {"error": {"message": f"The model `{body['model']}` does not exist.", "code": 404}}
        hf_model, ids = self.lm.hf_model, body["prompt"]
        told = None
        if body.get("prompt_logprobs") is not None:
            table = plain_log_probs(self.lm, ids)
            told = [None] + [
                {str(token): {"logprob": float(table[i, token]), "rank": 1, "decoded_token": hf_model.text([token])}}
                for i, token in enumerate(ids[1:])
            ]
        written: list[int] = []
        text, finish, why = "", "length", None
        for step in range(body["max_tokens"]):
            p = plain_log_probs(self.lm, [*ids, *written])[-1].double()
            if body["temperature"] == 0:
                token = int(p.argmax())
            else:
                edges = torch.softmax(p / body["temperature"], 0).cumsum(0)
                u = float(uniform(np.asarray([body["seed"]], dtype=np.uint64), step)[0]) * float(edges[-1])
                token = int(torch.searchsorted(edges, torch.tensor(u, dtype=torch.float64), right=True))
            if token in hf_model.end_ids:
                finish = "stop"
                break
            written.append(token)
            text = hf_model.text(written)
            if token in body.get("stop_token_ids", []):
                text = text if body.get("include_stop_str_in_output") else hf_model.text(written[:-1])
                finish, why = "stop", token
                break
            found = [text.index(s) + len(s) for s in body.get("stop", []) if s in text]
            if found:
                text, finish, why = text[: min(found)], "stop", body["stop"][0]
                if not body.get("include_stop_str_in_output"):
                    text = text[: -len(why)]
                break
        choice = {
            "index": 0,
            "text": text,
            "logprobs": None,
            "finish_reason": finish,
            "stop_reason": why,
            "prompt_logprobs": told,
        }
        return 200, {"object": "text_completion", "model": self.served, "choices": [choice]}


class _Handler(BaseHTTPRequestHandler):
    server: FakeVllm

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.asked.append(body)
            wanted = self.server.wanted
            if wanted is not None and (self.path.partition("?")[2], self.headers["Authorization"]) != wanted:
                status, told = 401, json.dumps({"error": {"message": f"who are you, {self.path}?"}}).encode()
            elif self.server.answers:
                status, told = self.server.answers.pop(0)
            else:
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
def fake_vllm(served: str = SERVED, lm: TransformersLM | None = None) -> Iterator[FakeVllm]:
    """A server while the block runs."""
    with FakeVllm(lm or tiny_lm("gpt2"), served) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield server
        server.shutdown()
