"""Training runs against a loop that a reader can check, with every engine and option, and how they fail."""

import errno
import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import TEXTS, saved_in, tiny_lm
from transformers import AutoTokenizer

from tests.core.finetune import training_runs
from tests.core.finetune.training_runs import RECIPE, STEPS, TRAIN, events, job_in, losses, run_here, run_program
from toolformer_core.errors import ModelError
from toolformer_core.finetune.engines import PlainEngine
from toolformer_core.finetune.events import EVENTS_FILE, FAILURE_FILE, event_writer, read_events
from toolformer_core.finetune.loop import LossError
from toolformer_core.finetune.program import mixes_packed_texts, reason_of, train
from toolformer_core.finetune.recipe import LoraRecipe, Recipe
from toolformer_core.finetune.texts import step_pieces
from toolformer_core.lm.hf.model import HFModel
from toolformer_core.lm.load import load_model


def plain_losses(model: str) -> tuple[list[float], float]:
    """The plain way: one text at a time, gradients summed over a step, mean over its targets. And the dev loss."""
    lm = load_model(model, device="cpu").hf_model
    lm.model.requires_grad_(True)
    optimizer = torch.optim.AdamW(lm.model.parameters(), weight_decay=0.0)
    found = []

    def nll(ids: torch.Tensor) -> torch.Tensor:
        logits = lm.model(input_ids=ids[None]).logits[0, :-1]
        return torch.nn.functional.cross_entropy(logits, ids[1:], reduction="sum")

    texts = [torch.tensor([0, *lm.encode(text), 0]) for text in TRAIN]  # between start and end
    for step in range(1, STEPS + 1):
        chosen = [texts[i] for i in step_pieces(len(texts), RECIPE.batch, step, RECIPE.seed)]
        loss = sum(map(nll, chosen)) / sum(len(ids) - 1 for ids in chosen)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(lm.model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min(1.0, step / 0.4)  # warmup: 10 % of 4 steps
        optimizer.step()
        optimizer.zero_grad()
        found.append(float(loss.detach()))
    return found, disabled_loss(lm, TEXTS[0])


def disabled_loss(lm: HFModel, text: str) -> float:
    """Mean loss of a text, when " [" cannot come."""
    ids = torch.tensor([[0, *lm.encode(text)]])
    with torch.no_grad():
        logits = lm.model(input_ids=ids).logits[0, :-1]
    (trigger,) = lm.trigger
    assert trigger not in ids
    logits[:, trigger] = -torch.inf
    return float(torch.nn.functional.cross_entropy(logits, ids[0, 1:]))


@pytest.mark.parametrize("changes", [{}, {"packing": False}, {"micro_batch": 1}, {"gradient_checkpointing": True}])
def test_losses_are_those_of_the_plain_loop(tmp_path: Path, model: str, changes: dict[str, Any]) -> None:
    train(job_in(tmp_path, model, **changes), tmp_path)
    wanted, dev = plain_losses(model)
    assert losses(tmp_path) == pytest.approx(wanted, abs=1e-4)
    assert events(tmp_path, "evaluated")[-1]["loss"] == pytest.approx(dev, abs=1e-4)


def test_the_finished_model_is_the_best_one_and_loads_again(tmp_path: Path, model: str) -> None:
    train(job_in(tmp_path, model), tmp_path)
    measured = {e["step"]: e["perplexity"] for e in events(tmp_path, "evaluated")}
    finished = events(tmp_path, "finished")[0]
    assert set(measured) == {0, 2, 4}  # before the first step, every second one
    assert finished["best_step"] == min((2, 4), key=lambda s: measured[s])
    loaded = load_model(str(tmp_path / "model"), device="cpu").hf_model
    assert math.exp(disabled_loss(loaded, TEXTS[0])) == pytest.approx(finished["best_perplexity"], rel=1e-4)


def test_checkpoints_kept(tmp_path: Path, model: str) -> None:
    train(job_in(tmp_path, model, evaluate_every=1, keep=2), tmp_path)
    best = events(tmp_path, "finished")[0]["best_step"]
    held = {p.name: sorted(q.name for q in p.iterdir()) for p in (tmp_path / "checkpoints").iterdir()}
    whole = ["meta.json", "model", "state"]
    wanted = {"step-000003": whole, "step-000004": whole}
    assert held == {f"step-{best:06d}": ["meta.json", "model"], **wanted}


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")  # peft asks for it
def test_adapters_are_merged_into_the_model(tmp_path: Path, model: str) -> None:
    train(job_in(tmp_path, model, lora=LoraRecipe(rank=2)), tmp_path)
    started, finished = events(tmp_path, "started")[0], events(tmp_path, "finished")[0]
    assert started["trainable"] < started["parameters"] / 2
    loaded = load_model(str(tmp_path / "model"), device="cpu").hf_model
    assert math.exp(disabled_loss(loaded, TEXTS[0])) == pytest.approx(finished["best_perplexity"], rel=1e-4)
    assert finished["best_perplexity"] < events(tmp_path, "evaluated")[0]["perplexity"]


def test_a_loss_that_is_no_number_ends_the_run_without_a_checkpoint(tmp_path: Path, model: str) -> None:
    with pytest.raises(LossError, match="smaller learning_rate"):
        train(job_in(tmp_path, model, learning_rate=1e30, clip=0), tmp_path)
    assert not list(tmp_path.glob("checkpoints/step-*"))


def test_tokens_the_model_has_no_embedding_for(tmp_path: Path, model: str) -> None:
    """Added to the tokenizer alone, they are read as the characters they are of; but no text can end with one."""
    given = str(shutil.copytree(model, tmp_path / "model"))
    tokens, rows = AutoTokenizer.from_pretrained(given), len(AutoTokenizer.from_pretrained(given))
    tokens.add_tokens(["<tool>"])
    tokens.save_pretrained(given)
    found = []
    for name in (model, given):
        folder = tmp_path / f"job-{len(found)}"
        job = job_in(folder, name)
        for file in ("train", "dev"):
            (folder / f"{file}.jsonl").write_text(json.dumps({"text": "It said <tool> twice."}) + "\n")
        train(job, folder)
        found.append([losses(folder), events(folder, "evaluated")[-1]["loss"]])
    assert found[0] == found[1]
    tokens.add_special_tokens({"eos_token": "<stop>"})
    tokens.save_pretrained(given)
    with pytest.raises(ModelError, match=rf"no embedding for token {rows + 1} \('<stop>'\).*resize_token_embeddings"):
        train(job_in(tmp_path / "end", given), tmp_path / "end")


def test_an_event_begins_a_line_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / EVENTS_FILE
    path.write_text('{"event": "started"}\n{"event": "st')  # the disk was full
    emit = event_writer(path)
    emit("started")
    emit("finished", step=3)
    assert [e["event"] for e in read_events(tmp_path)[0]] == ["started", "started", "finished"]


def test_a_model_that_takes_no_notice_of_positions_is_trained_a_text_a_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    falcon = str(saved_in(tmp_path / "falcon", tiny_lm("falcon")))
    for packing in (True, False):
        folder = tmp_path / f"packing {packing}"
        train(job_in(folder, falcon, packing=packing), folder)
    assert losses(tmp_path / "packing True") == losses(tmp_path / "packing False")
    assert not events(tmp_path / "packing True", "started")[0]["packing"]
    assert "each row holds one text" in capsys.readouterr().out


@pytest.mark.parametrize("family", ["llama", "gptj", "mistral"])
def test_models_that_keep_texts_apart_are_packed(family: str) -> None:
    engine = PlainEngine(tiny_lm(family).hf_model.model.requires_grad_(True), RECIPE, torch.device("cpu"))
    assert not mixes_packed_texts(engine)


def test_whatever_ends_a_process_is_told(
    tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job_in(tmp_path, model)

    def fails(*_: object, **__: object) -> None:
        raise AssertionError("ranks differ")

    monkeypatch.setattr("toolformer_core.finetune.program.train", fails)
    assert run_here(tmp_path, monkeypatch) == 1
    told = json.loads((tmp_path / FAILURE_FILE).read_text())
    assert (told["reason"], told["message"]) == ("error", "ranks differ")
    assert "Traceback" in capsys.readouterr().err


ON_THE_CPU = {"zero_optimization": {"offload_optimizer": {"device": "cpu"}}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("zero_stage", "more"), [(0, {}), (1, {}), (3, {"precision": "bf16"}), (3, {"deepspeed": ON_THE_CPU})]
)
def test_deepspeed_takes_the_plain_engine_s_steps(
    tmp_path: Path, model: str, zero_stage: int, more: dict[str, Any]
) -> None:
    steps: dict[str, list[tuple[float, float]]] = {}
    for engine, changes in (("plain", {}), ("deepspeed", {"zero_stage": zero_stage, **more})):
        folder = tmp_path / engine
        job_in(folder, model, engine=engine, micro_batch=1, packing=False, **changes)  # three passes a step
        done = run_program(folder, "import os; os.environ['DS_ACCELERATOR'] = 'cpu'")
        assert done.returncode == 0, done.stderr
        steps[engine] = [(e["loss"], e["grad_norm"]) for e in events(folder, "step")]
    tolerance = 0.1 if more.get("precision") == "bf16" else 1e-3
    for one, other in zip(steps["plain"], steps["deepspeed"], strict=True):
        assert other == pytest.approx(one, rel=tolerance)


@pytest.mark.slow
def test_two_processes_average_over_the_targets_of_both(tmp_path: Path, model: str) -> None:
    job_in(tmp_path, model, engine="deepspeed", micro_batch=1, packing=False)
    training_runs.run_two_processes(tmp_path)
    assert losses(tmp_path) == pytest.approx(plain_losses(model)[0], abs=1e-3)


def test_a_wrong_job_is_said_in_one_line(tmp_path: Path, model: str) -> None:
    job_in(tmp_path, model)
    file = tmp_path / "job.json"
    file.write_text(file.read_text().replace('"warmup"', '"warmpu"'))
    done = run_program(tmp_path)
    assert done.returncode == 2
    assert "unexpected keyword argument 'warmpu'" in done.stderr
    assert "Traceback" not in done.stderr


def test_reasons() -> None:
    full = [OSError(errno.ENOSPC, ""), RuntimeError("PytorchStreamWriter failed writing file data/1")]
    full += [RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 7 vs 5")]
    memory = [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
    assert [reason_of(error) for error in full] == ["disk_full"] * 3
    assert [reason_of(error) for error in memory] == ["out_of_memory"] * 2
    assert [reason_of(error) for error in (LossError("x"), RuntimeError("shapes"))] == ["nan_loss", "error"]


def test_the_rate_rises_over_the_warmup_and_stays() -> None:
    # 10 % of 20 steps: 2 of them rise
    recipe = Recipe(steps=20, learning_rate=1.0)
    assert [recipe.learning_rate_at(s) for s in (1, 2, 3, 20)] == [0.5, 1.0, 1.0, 1.0]
    assert Recipe(steps=20, learning_rate=1.0, warmup=0).learning_rate_at(1) == 1.0
