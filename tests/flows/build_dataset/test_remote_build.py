"""A build whose model lives behind a server: the same C* as with the model here; no result of two models."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from flows.build_dataset.flow import run_build
from flows.build_dataset.parameters import BuildParameters
from flows.build_dataset.plan import plan_build
from flows.build_dataset.record import BuildRecord
from flows.build_dataset.versions import card_of
from tests.support.fake_vllm import SERVED, FakeVllm, fake_vllm
from tests.support.small_builds import write_jsonl
from tests.tiny import tiny_lm
from toolformer_core.embedded import MODEL
from toolformer_core.errors import ModelError
from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.lm.load import load_model
from warehouse.commits import Commit, Dataset
from warehouse.store import Store

pytestmark = [
    pytest.mark.usefixtures("prefect_server"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::ResourceWarning"),
]

TEXTS = [
    "Ida bought 14 boxes of 23 pens, that is 322 pens in all, and gave 22 away, so that 300 are left.",
    "The hall has 12 rows of 30 seats, 360 seats together. Of these 90 are taken, so 270 are free.",
]


@pytest.fixture(scope="module")
def embedded() -> TransformersLM:
    return load_model("embedded", device="cpu")


@pytest.fixture(scope="module")
def other() -> TransformersLM:
    """Another model, with the same tokenizer."""
    lm = load_model("embedded", device="cpu")
    with torch.no_grad():
        lm.hf_model.model.lm_head.weight.mul_(1.3)
    return lm


@pytest.fixture
def server(embedded: TransformersLM) -> Iterator[FakeVllm]:
    with fake_vllm(lm=embedded) as server:
        yield server


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "corpus.jsonl", TEXTS)


def parameters(corpus: Path, data: Path, **changes: object) -> BuildParameters:
    """A build of little work; 0.05 is the least tau_s for which 20 tokens a position tell all: 1 / (20 + 1) = 0.048."""
    few = {"tools": ["calculator"], "tau_s": 0.05, "top_k": 2, "samples": 2, "workers": 1}
    little = {**few, "tau_f": {"calculator": -5.0}}
    return BuildParameters.model_validate({"corpus": str(corpus), "data": str(data), **little, **changes})


def behind(server: FakeVllm) -> dict[str, str]:
    return {"model": f"remote+{server.url}#{SERVED}?tokenizer={MODEL}"}


def made(data: Path) -> tuple[Dataset, list[dict[str, object]]]:
    """A folder's last version and its examples."""
    store = Store(data)
    dataset = store.datasets()[-1]
    return dataset, [row for file in dataset.files for row in store.read(file).to_pylist()]


def commits(data: Path, stage: str) -> list[Commit]:
    return [commit for commit in Store(data).commits() if commit.stage == stage]


def test_the_same_c_star_as_with_it_here(server: FakeVllm, other: TransformersLM, corpus: Path, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    run_build(parameters(corpus, here))
    built = run_build(parameters(corpus, there, **behind(server)))
    assert built.examples > 0
    (_, local), (dataset, remote) = made(here), made(there)
    assert [row["text"] for row in local] == [row["text"] for row in remote]
    assert any("[Calculator(" in str(row["text"]) for row in remote)
    assert dataset.model == behind(server)["model"]

    (sampled,) = commits(there, "sample")
    assert sampled.counters["unseen_positions"] == 0  # what is not told has at most 1 / 21 of the probability
    assert sampled.counters["positions"] > 0
    assert "positions" not in commits(here, "sample")[0].counters
    assert sampled.parts["logprobs"] == "20"

    assert plan_build(parameters(corpus, there, **behind(server))).nothing_to_do
    (known,) = {BuildRecord(run.parameters).remote for run in Store(there).runs()}
    assert (known and known.name) == SERVED

    server.lm = other  # a name that stays, with another model behind it: nothing that was made counts for it
    plan = plan_build(parameters(corpus, there, **behind(server)))
    assert {reason for shard in plan.shards if shard.stage == "sample" for reason in shard.because} == {"model"}


def test_another_model_ends_the_build(server: FakeVllm, other: TransformersLM, corpus: Path, tmp_path: Path) -> None:
    first, complete = server.lm, server.complete

    def restarted(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        server.lm = other if "seed" in body else server.lm  # when the first call is drawn
        return complete(body)

    server.complete = restarted  # type: ignore[method-assign]
    data = tmp_path / "data"
    with pytest.raises(ModelError, match="serves another model under the name 'folder/served'"):
        run_build(parameters(corpus, data, **behind(server)))
    assert [len(commits(data, stage)) for stage in ("prefilter", "sample", "score")] == [1, 0, 0]
    server.lm = first  # so the same command goes on: the first model is recognised
    states = {shard.stage: shard.state for shard in plan_build(parameters(corpus, data, **behind(server))).shards}
    assert (states["prefilter"], states["sample"]) == ("cached", "to do")


def test_a_lower_tau_s_is_told_and_unseen_positions_are_counted(server: FakeVllm, corpus: Path, tmp_path: Path) -> None:
    asked = parameters(corpus, tmp_path / "data", tau_s=0.0, top_k=1, samples=1, **behind(server))
    assert any("for a tau_s of at least 0.048 (calculator 0)" in note for note in plan_build(asked).notes)
    assert not (tmp_path / "data").exists()
    run_build(asked)
    (sampled,) = commits(tmp_path / "data", "sample")
    unseen, positions = sampled.counters["unseen_positions"], sampled.counters["positions"]
    assert 0 < unseen <= positions
    dataset, _ = made(tmp_path / "data")
    told = f"at {unseen:,.0f} of {positions:,.0f} positions the server did not tell p(' [')"
    assert told in card_of(Store(tmp_path / "data"), dataset)


def test_a_tokenizer_that_is_not_there_or_of_another_model(server: FakeVllm, corpus: Path, tmp_path: Path) -> None:
    named = f"remote+{server.url}#{SERVED}"
    with pytest.raises(ModelError, match=r"name the tokenizer of 'folder/served': .*#folder/served\?tokenizer=FOLDER"):
        plan_build(parameters(corpus, tmp_path / "data", model=named))
    tiny_lm("gpt2").hf_model.tokenizer.save_pretrained(tmp_path / "other")
    with pytest.raises(ModelError, match=r"is not that of 'folder/served': token \d+ is .* here and .* on the server"):
        plan_build(parameters(corpus, tmp_path / "data", model=f"{named}?tokenizer={tmp_path}/other"))
