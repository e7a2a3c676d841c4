"""The vLLM backend against a server of our own on loopback that answers as vLLM does, from a model of this process."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tiny import PROMPT, TEXTS, saved_in, tiny_lm

from tests.support.fake_vllm import SERVED, FakeVllm, fake_vllm
from tests.support.plain_lm import PlainLM
from tests.support.plainly import drawn, scanned
from toolformer_core.errors import ModelError
from toolformer_core.lm.base import Draw, DrawRequest, ScoreRequest
from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.lm.load import load_model, model_digest, model_digests, model_folder
from toolformer_core.lm.vllm import VllmLM
from toolformer_core.lm.vllm_server import VllmServer

MUST_BE_SAID = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}  # else generation_config.json's


@pytest.fixture
def server() -> Iterator[FakeVllm]:
    with fake_vllm() as server:
        yield server


def lm_of(server: FakeVllm, local: TransformersLM | None = None) -> VllmLM:
    client = VllmServer(server.url, SERVED, timeout_s=60)
    return VllmLM(local or tiny_lm("gpt2"), client, name="served", digest="served")


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_server_draws_what_the_model_would(server: FakeVllm, temperature: float) -> None:
    lm = lm_of(server)
    ours, plain = (drawn(one, TEXTS[:2], temperature, seed=2**63 - 999) for one in (lm, PlainLM(lm.hf_model)))
    assert ours == plain
    samples = [body for body in server.asked if "prompt_logprobs" not in body]
    assert len(samples) >= 6
    assert all(body.items() >= MUST_BE_SAID.items() for body in server.asked)
    assert all(0 <= body["seed"] < 2**63 for body in samples)
    assert {body["n"] for body in samples} == {1}  # n samples of one request would share a seed


def test_scan_and_scores_are_the_models_own(server: FakeVllm) -> None:
    lm, local = lm_of(server), tiny_lm("gpt2")
    assert scanned(lm, TEXTS) == scanned(local, TEXTS)
    request = ScoreRequest(" [QA(x) -> y]", TEXTS[0], 0, 5)
    assert lm.log_probs([request])[0].tolist() == local.log_probs([request])[0].tolist()
    assert [body["prompt_logprobs"] for body in server.asked] == [0]  # one probe, and nothing else


def _choice(text: str, finish: str, why: str | None) -> tuple[int, bytes]:
    choice = {"index": 0, "text": text, "finish_reason": finish, "stop_reason": why, "prompt_logprobs": None}
    return 200, json.dumps({"choices": [choice]}).encode()


_INSIDE = _choice("QA(list [a]", "stop", "]")


@pytest.mark.parametrize(
    ("answers", "wanted"),
    [
        ([_choice("QA(who?) -> he]", "stop", "]")], Draw("QA(who?) -> he", True)),
        ([_choice("QA(who", "length", None)], Draw("QA(who", False)),
        ([_choice("QA", "stop", None)], Draw("QA", False)),  # the end of the text
        # a bracket inside is no end: it is drawn once more without the stop
        ([_INSIDE, _choice("QA(list [a])] and on", "length", None)], Draw("QA(list [a])", True)),
        ([_INSIDE, _choice("QA(list [a] and on", "length", None)], Draw("QA(list [a] and on", False)),
    ],
)
def test_how_a_draw_ends(server: FakeVllm, answers: list[tuple[int, bytes]], wanted: Draw) -> None:
    (scan,) = lm_of(server).scan(PROMPT, [TEXTS[0]])
    server.asked.clear()
    server.answers = list(answers)
    (draw,) = scan.draw([DrawRequest(0, 0, 3)], max_tokens=9, temperature=1.0)
    assert draw == wanted
    assert [body.get("stop") for body in server.asked] == [["]"], None][: len(answers)]
    assert len({(body["seed"], body["max_tokens"]) for body in server.asked}) == 1


def test_another_model_is_found_out_before_anything_is_drawn(server: FakeVllm) -> None:
    other = tiny_lm("gpt2")
    with torch.no_grad():
        other.hf_model.model.transformer.wte.weight.mul_(1.5)
    with pytest.raises(ModelError, match=r"differ from those of the model here \(by \d"):
        next(iter(lm_of(server, other).scan(PROMPT, TEXTS)))


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ((500, b"<html>"), "refused a request to 'folder/served': 500"),
        ((400, b'{"error": {"message": "This model\'s maximum context length is 8"}}'), "maximum context length is 8"),
        ((400, b'{"message": "prompt_logprobs\\nand more"}'), "400 prompt_logprobs"),
        ((200, b"not json"), "no vLLM server answers at"),
        ((200, b'{"choices": []}'), "without choices; is it a vLLM server"),
        (_choice("x", "length", None), "answered without prompt_logprobs; is it a vLLM server"),
    ],
)
def test_what_a_server_cannot_do_is_said_in_one_line(server: FakeVllm, answer: tuple[int, bytes], says: str) -> None:
    server.answers = [answer]
    with pytest.raises(ModelError, match=says) as caught:
        lm_of(server).check()
    assert "\n" not in str(caught.value)


def test_a_user_names_the_server_in_front_of_the_model(server: FakeVllm, tmp_path: Path) -> None:
    saved_in(tmp_path, tiny_lm("gpt2"))
    name, elsewhere = f"vllm+{server.url}#{tmp_path}", f"vllm+http://127.0.0.1:1/v1#{tmp_path}"
    lm = load_model(name, device="cpu")
    assert isinstance(lm, VllmLM)
    assert (lm.name, lm.server.url, lm.server.model) == (name, server.url, str(tmp_path))
    assert model_folder(name) == tmp_path
    assert lm.digest == model_digest(name) == model_digest(elsewhere) != model_digest(str(tmp_path))
    (whole, weights, coded), (_, local_weights, local_coded) = model_digests(name), model_digests(str(tmp_path))
    assert (whole, coded) == (lm.digest, local_coded)
    assert weights != local_weights
