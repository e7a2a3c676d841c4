"""A vLLM server of our own on loopback, which answers as vLLM does, from a model of this process."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from functools import cache
from typing import Any

import numpy as np
import torch

from tests.support.served_app import Answer, answered
from tests.tiny import tiny_lm
from toolformer_core.lm.base import uniform
from toolformer_core.lm.hf.engine import TransformersLM

SERVED = "folder/served"


class FakeVllm:
    """Answers as vLLM does: token ids in, seeded samples, stop strings, prompt_logprobs up to a limit; and its models.

    Another model may take the place of `lm` at any time; `max_logprobs` is the option of `vllm serve`.
    """

    def __init__(self, lm: TransformersLM, served: str, max_logprobs: int = 20) -> None:
        self.at = ""  # its address
        self.lm = lm
        self.served = served
        self.max_logprobs = max_logprobs
        self.wanted: tuple[str, str] | None = None  # the query and the header Authorization of every request
        self.asked: list[dict[str, Any]] = []
        self.lock = threading.Lock()  # one model, many threads
        self.answers: list[tuple[int, bytes]] = []  # given instead, first come first served

    @property
    def url(self) -> str:
        return f"{self.at}/v1"

    def answer(self, method: str, path: str, headers: Message, body: bytes) -> Answer:
        json_type = {"Content-Type": "application/json"}
        with self.lock:
            if method == "POST":
                self.asked.append(json.loads(body))
            if self.wanted is not None and (path.partition("?")[2], headers["Authorization"]) != self.wanted:
                return 401, json_type, json.dumps({"error": {"message": f"who are you, {path}?"}}).encode()
            if self.answers:
                status, data = self.answers.pop(0)
                return status, json_type, data
            status, answer = self.complete(self.asked[-1]) if method == "POST" else (200, self.models())
            return status, json_type, json.dumps(answer).encode()

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


@contextmanager
def fake_vllm(served: str = SERVED, lm: TransformersLM | None = None, max_logprobs: int = 20) -> Iterator[FakeVllm]:
    server = FakeVllm(lm or tiny_lm("gpt2"), served, max_logprobs)
    with answered(server.answer) as server.at:
        yield server
