"""Which model a server serves, how many tokens it tells, and what is done when it does not answer."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import tiny
import torch
from tiny import sentencepiece, tiny_lm

from tests.support.fake_vllm import SERVED, FakeVllm, fake_vllm
from toolformer_core.errors import ModelError, ServerRefusalError
from toolformer_core.lm.load import load_model, model_digest, model_folder
from toolformer_core.lm.reference import ModelRef
from toolformer_core.lm.remote.engine import describe_remote, load_remote_model
from toolformer_core.lm.remote.identity import TOLERANCE, RemoteModel, difference, probe_ids
from toolformer_core.lm.vllm_server import VllmServer


@pytest.fixture
def tokenizer(tmp_path: Path) -> str:
    """A folder with the tiny model's tokenizer and nothing else."""
    tiny.tokenizer().save_pretrained(tmp_path / "tokenizer")
    return str(tmp_path / "tokenizer")


@pytest.fixture
def server() -> Iterator[FakeVllm]:
    with fake_vllm() as server:
        yield server


def name_of(server: FakeVllm, tokenizer: str, model: str = SERVED) -> str:
    return f"remote+{server.url}#{model}?tokenizer={tokenizer}"


def test_a_name_says_that_the_server_does_it_all() -> None:
    served = ModelRef.of("remote+https://me:pw@gpu.example:8000/v1#org/model")
    assert (served.kind, served.url, served.model) == ("remote", "https://gpu.example:8000/v1", "org/model")
    assert served.name == "remote+https://gpu.example:8000/v1#org/model"
    for name, says in (
        ("remote+gpu.example#m", "write remote"),
        ("http://h:8000/v1#m", r"write vllm\+http.*, or remote"),
    ):
        with pytest.raises(ModelError, match=rf"{says}\+http://host:port/v1#model"):
            ModelRef.of(name)


@pytest.mark.parametrize("use", [load_model, model_digest, model_folder])
def test_what_needs_the_weights_is_refused_with_the_reason(use: object) -> None:
    with pytest.raises(ModelError, match=r"lives behind its server alone, which can annotate \(build, plan\)"):
        use("remote+http://127.0.0.1:1/v1#m")  # type: ignore[operator]


@pytest.mark.parametrize(("limit", "told"), [(-1, 400), (1_000, 400), (21, 21), (20, 20), (7, 7), (1, 1)])
def test_as_many_tokens_are_asked_for_as_the_server_allows(tokenizer: str, limit: int, told: int) -> None:
    """The tokenizer has 400 tokens, and no server is asked for more."""
    with fake_vllm(max_logprobs=limit) as server:
        model = describe_remote(name_of(server, tokenizer))
        assert model.logprobs == told
        assert len(server.asked) < 20  # the probe twice, then steps that halve what is left
    assert (model.name, model.root, model.context) == (SERVED, SERVED, 512)


def test_a_server_that_tells_nothing_but_a_prompts_own_tokens(tokenizer: str) -> None:
    with fake_vllm(max_logprobs=0) as server, pytest.raises(ModelError, match="with --max-logprobs 20 or more"):
        describe_remote(name_of(server, tokenizer))


def test_the_digest_is_that_of_the_names_and_the_probe(server: FakeVllm, tokenizer: str) -> None:
    first = describe_remote(name_of(server, tokenizer))
    assert describe_remote(name_of(server, tokenizer)) == first
    other = tiny_lm("gpt2")
    with torch.no_grad():
        other.hf_model.model.transformer.wte.weight.mul_(1.5)
    server.lm = other
    second = describe_remote(name_of(server, tokenizer))
    assert second.digest != first.digest
    assert not second.is_model(first)
    changes = [{"name": "x"}, {"root": "x"}, {"context": 9}]
    assert len({first.digest, *(replace(first, **change).digest for change in changes)}) == 4
    assert {replace(first, **change).digest for change in ({"logprobs": 9}, {"tokenizer": "x"})} == {first.digest}
    assert RemoteModel.from_json(json.loads(json.dumps(first.as_json()))) == first


def test_a_probe_that_differs_as_batches_do_is_recognised() -> None:
    first = RemoteModel("m", "m", 512, 20, "t", "d", (-1.0, -2.0, -4.0, -0.004))
    later = replace(first, probe=(-1.01, -2.0, -4.05, -0.004), logprobs=50)
    assert difference(first.probe, later.probe) == pytest.approx(0.015)  # (0.01 + 0 + 0.05 + 0) / 4
    assert later.digest != first.digest  # -4.05 is not -4.00
    known = later.recognised([replace(first, name="other"), first])
    assert (known.digest, known.logprobs) == (first.digest, 50)
    far = replace(first, probe=(-1.0 - 5 * TOLERANCE, -2.0, -4.0, -0.004))  # 5 / 4 of what is allowed
    assert far.recognised([first]) == far
    assert difference(first.probe, first.probe[1:]) == float("inf")


def test_a_tokenizer_of_another_model_is_found_out(server: FakeVllm, tmp_path: Path) -> None:
    sentencepiece().save_pretrained(tmp_path / "other")
    with pytest.raises(ModelError, match=r"token \d+ is .* here and .* on the server; name the model's own"):
        describe_remote(name_of(server, str(tmp_path / "other")))


def test_a_model_that_is_not_served_names_those_that_are(server: FakeVllm, tokenizer: str) -> None:
    with pytest.raises(ModelError, match=r"serves 'folder/served', not 'folder/other'; write one of its names"):
        describe_remote(name_of(server, tokenizer, "folder/other"))


def test_a_server_without_prompt_logprobs(server: FakeVllm, tokenizer: str) -> None:
    choices = {"choices": [{"prompt_logprobs": [None, {"5": 3}]}]}
    server.answers = [(200, json.dumps(answer).encode()) for answer in (server.models(), choices)]
    with pytest.raises(ModelError, match="answered without prompt_logprobs; is it a vLLM server"):
        describe_remote(name_of(server, tokenizer))


def test_numbers_that_are_no_log_probabilities(server: FakeVllm, tokenizer: str) -> None:
    lm = load_remote_model(name_of(server, tokenizer))
    ids = probe_ids(lm.tokenizer)
    logits = [None, *({str(token): {"logprob": 3.5}} for token in ids[1:])]  # with --logprobs-mode raw_logits
    server.answers = [(200, json.dumps({"choices": [{"prompt_logprobs": logits}]}).encode())]
    with pytest.raises(ModelError, match="no log-probabilities; start it without --logprobs-mode"):
        lm.verify()


def test_a_busy_server_is_asked_again_and_a_refusal_is_not(server: FakeVllm) -> None:
    waits: list[float] = []
    client = VllmServer(server.url, SERVED, tries=4, sleep=waits.append)
    server.answers = [(503, b""), (429, b"{}"), (502, b"<html>")]
    assert len(client.log_probs([1, 2, 3])) == 2
    assert waits == [1.0, 2.0, 4.0]
    server.answers = [(503, b"")] * 4
    with pytest.raises(ServerRefusalError, match="503"):
        client.log_probs([1, 2, 3])
    assert waits == [1.0, 2.0, 4.0] * 2  # four tries have three waits between them
    server.answers = [(400, b'{"error": {"message": "no"}}')]
    with pytest.raises(ServerRefusalError, match="400 no"):
        client.log_probs([1, 2, 3])
    assert len(waits) == 6


def test_a_server_that_is_away_is_waited_for_and_then_given_up(tokenizer: str) -> None:
    with fake_vllm() as server:
        name = name_of(server, tokenizer)
    waits: list[float] = []
    with pytest.raises(ModelError, match=r"no vLLM server answers at .*; start one with `vllm serve folder/served`"):
        VllmServer(server.url, SERVED, tries=8, sleep=waits.append).log_probs([1, 2])
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    with pytest.raises(ModelError, match="no vLLM server answers at"):  # whoever starts a build is not kept waiting
        describe_remote(name)
