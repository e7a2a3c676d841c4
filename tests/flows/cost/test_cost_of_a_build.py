"""A plan by numbers: worked out by hand, its laws, overrides, and what is wrong with it."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from flows.build_dataset.parameters import BuildParameters
from flows.cost.assumptions import Assumption, Assumptions, parse
from flows.cost.of_build import CostPlan, StageCost, cost_of_build
from flows.cost.parameters import CostOptions
from flows.cost.shapes import KNOWN_SHAPES, ModelShape, config_of, shape_of
from toolformer_core.errors import ModelError, UnknownNameError, UsageError

# A thousand documents for one tool: 500 kept, 2,000 samples, 1,000 of them calls, 500 questions, 250 scored.
RATES = """calculator.kept_share=0.5,calculator.samples=4,ok_share=0.5,calls_per_ok_draw=0.5,scored_per_ok_draw=0.25,
    calculator.scan_tokens=100,draw_tokens=10,calculator.score_tokens=50,call_seconds=3.6,text_tokens=100,prompt_tokens=0"""
# 12 x 10^6 weights in matrices (4 x 1,000^2 of attention, 8 x 1,000^2 of the MLP), and 10^6 in the output layer.
CONFIG = {"model_type": "gpt2", "n_embd": 1000, "n_layer": 1, "n_head": 10, "vocab_size": 1000}
CARD = {"tflops": 1.0, "bandwidth": 1.0, "mfu": 0.5, "bandwidth_share": 0.5, "gpu_busy_share": 1.0}


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    return str(tmp_path)


def by_hand(
    model: str, *, assume: dict[str, float] | None = None, gpu: dict[str, Any] | None = None, **p: Any
) -> CostPlan:
    settings = {"corpus": "", "data": f"{model}/none", "model": model, "tools": ["calculator"], "workers": 2, **p}
    documents = settings.pop("documents", 1000.0)
    given = [RATES, *(f"{name}={value}" for name, value in (assume or {}).items())]
    return cost_of_build(BuildParameters(**settings), documents, CostOptions(assume=given, **(gpu or {})))


def stages(plan: CostPlan) -> dict[str, StageCost]:
    return {stage.stage: stage for stage in plan.stages}


def test_work_by_hand(model: str) -> None:
    found = stages(by_hand(model))
    assert list(found) == ["ingest", "prefilter", "sample", "execute", "score", "assemble"]
    assert [cost.units for cost in found.values()] == [1000, 1000, 500, 500, 250, 1000]
    assert found["sample"].lm_tokens == 500 * 100 + 2000 * 10
    assert found["score"].lm_tokens == 250 * 50
    assert found["execute"].tool_calls == 500
    assert found["execute"].tool_hours == pytest.approx(500 * 3.6 / 3600)


def test_chains_by_hand(model: str) -> None:
    found = stages(by_hand(model, chain_depth=3))
    # 0.5 x 4 x 0.5 x 0.25 = 0.25 calls are scored a document, fewer than five: 1,000 x 0.25 starts, ten samples each
    for depth in (2, 3):
        units = [found[f"{stage}_{depth}"].units for stage in ("sample", "execute", "score")]
        assert units == [250, 2500 * 0.5 * 0.5, 2500 * 0.5 * 0.25]
        # one text and a half and a call of 25 tokens, x 1.05 of padding; ten tokens a draw
        assert found[f"sample_{depth}"].lm_tokens == pytest.approx(250 * (1.5 * 100 + 25) * 1.05 + 2500 * 10)
    bounded = stages(by_hand(model, chain_depth=2, assume={"scored_per_ok_draw": 100}))
    assert bounded["sample_2"].units == 1000 * 5
    assert "sample_2" not in stages(by_hand(model))


def test_cpu_hours_by_hand(model: str) -> None:
    found = stages(by_hand(model, assume={"sample_ms": 4, "calculator.sample_model_us": 1000}))["sample"]
    assert found.cpu_hours == pytest.approx((500 * 0.004 + 70_000 * 0.001) / 3600)  # 2 + 70 s
    assert found.gpu_hours == 0


def test_gpu_hours_by_hand(model: str) -> None:
    plan = by_hand(model, gpu={"gpu": "mine", "gpu_count": 4, "gpu_price": 2.0}, assume={**CARD, "decode_rows": 2})
    found = stages(plan)
    # A scanned token: 24 x 10^6 + 4 x 1,000 x 100 FLOPs, and for half of them 2 x 1,000 x 1,000 more, at 5 x 10^11 a
    # second: 25.4 x 10^6 / 5 x 10^11 = 50.8 us.
    # A drawn token is held up by memory: 2 x 13 x 10^6 bytes for two samples, and of 200 tokens looked back at 2 x 2 x
    # 1,000 bytes each, shared by two samples: 13 x 10^6 + 0.4 x 10^6 bytes at 5 x 10^8 a second = 26.8 ms.
    assert found["sample"].gpu_hours == pytest.approx((50_000 * 50.8e-6 + 20_000 * 0.0268) / 3600)
    # A scored token looks back at half of a call of 25 tokens and half a text: 24 x 10^6 + 4 x 1,000 x 37.5 FLOPs.
    assert found["score"].gpu_hours == pytest.approx(12_500 * 48.3e-6 / 3600)
    assert plan.hours["cards"] == pytest.approx(plan.sum("gpu_hours") / 4)
    # a fast memory: the drawn token takes its FLOPs, 24 x 10^6 + 4 x 1,000 x 200 + 2 x 10^6 = 53.6 us
    fast = by_hand(model, gpu={"gpu": "mine", "gpu_price": 0.0}, assume={**CARD, "bandwidth": 1e9})
    assert stages(fast)["sample"].gpu_hours == pytest.approx((50_000 * 50.8e-6 + 20_000 * 53.6e-6) / 3600)


def test_wall_time_and_money_by_hand(model: str) -> None:
    given = {**CARD, "cores": 10, "ingest_ms": 36, "cpu_price": 0.5}
    plan = by_hand(model, gpu={"gpu": "mine", "gpu_count": 4, "gpu_price": 2.0}, assume=given)
    assert plan.ingest_hours == pytest.approx(0.01)  # 1,000 x 36 ms, in one process
    assert plan.bottleneck == "ingest, in one process"
    assert plan.wall_hours == pytest.approx(0.01 + max(plan.hours.values()))
    assert plan.build_money == pytest.approx(plan.wall_hours * (4 * 2.0 + 10 * 0.5))
    slow = by_hand(model, assume={"call_seconds": 3600.0, "calls_at_once": 1})
    assert (slow.bottleneck, slow.hours["tool calculator"]) == ("tool calculator", 500 / 2)  # two cores ask


def test_finetuning_by_hand(model: str) -> None:
    given = {"steps": 10, "batch": 8, "call_tokens": 20, "evaluate_every": 5, "dev_documents": 3, "training_mfu": 0.1}
    given |= {"calculator.examples": 0.25, "training_passes": 3}
    plan = by_hand(model, gpu={"gpu": "mine", "gpu_count": 2, "gpu_price": 2.0}, assume={**CARD, **given})
    found = plan.training
    assert (found.units, found.lm_tokens) == (250, 10 * 8 * 120)  # a text and a call
    # a token: 24 x 10^6 + 4 x 1,000 x 60 + 2 x 10^6 FLOPs; three passes of 9,600 tokens, one of 3 x 3 x 100
    assert found.gpu_hours == pytest.approx(26_240_000 * (3 * 9600 + 900) / 1e11 / 3600)
    assert plan.training_hours == pytest.approx(found.gpu_hours / 2)
    assert plan.training_money == pytest.approx(2.0 * found.gpu_hours)


def test_a_tool_that_has_enough_examples_stops(model: str) -> None:
    found = stages(by_hand(model, stop_when_full=True, max_examples=25, assume={"calculator.examples": 0.25}))
    assert (found["prefilter"].units, found["ingest"].units) == (100, 1000)  # 25 examples of 0.25 a document


@pytest.mark.parametrize(
    ("gpu", "assume", "message"),
    [
        ({"gpu": "h100"}, {}, "--gpu needs the price"),
        ({"gpu_price": 1.0}, {}, "need a card"),
        ({"gpu": "h100", "gpu_price": 1.0}, {"mfu": 0.0}, "mfu must be positive"),
        ({}, {"calculator.kept_share": 2.0}, r"calculator.kept_share is a share"),
    ],
)
def test_wrong_values_end_in_one_line(model: str, gpu: dict[str, Any], assume: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message) as told:
        by_hand(model, gpu=gpu, assume=assume)
    assert "\n" not in str(told.value)


def test_unknown_names_are_answered_with_the_ones_that_were_meant(model: str) -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'h100'"):
        by_hand(model, gpu={"gpu": "h10", "gpu_price": 1.0})
    with pytest.raises(UnknownNameError, match="Did you mean 'bandwidth_share'"):
        by_hand(model, assume={"bandwith_share": 0.5})


def test_several_are_parsed_from_one_text_or_many() -> None:
    assert parse(["a=1,b=2e3", "qa.kept_share = 0.5"]) == {"a": 1.0, "b": 2000.0, "qa.kept_share": 0.5}
    assert parse([]) == {}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        *((text, "write name=number") for text in ("a", "a=", "a=x", "=1", "a=nan", "a=inf", "")),
        ("a=-1", "a=-1: no assumption is negative"),
    ],
)
def test_what_is_no_assumption_is_told_how_to_write_one(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse([text])


def test_what_is_given_replaces_the_value_and_says_what_it_replaced() -> None:
    lines = Assumptions({"mfu": 0.25})
    assert lines.add(Assumption("mfu", 0.4, "share", "assumed", "a guess")) == 0.25
    assert lines.add(Assumption("steps", 8.0, "s", "measured", "a benchmark")) == 8.0
    assert lines.add(Assumption("steps", 9.0, "s", "measured", "a benchmark")) == 8.0  # the first one counts
    assert tuple(lines.lines.values()) == (
        Assumption("mfu", 0.25, "share", "given", "instead of 0.4, assumed"),
        Assumption("steps", 8.0, "s", "measured", "a benchmark"),
    )


def test_a_tool_has_a_line_of_its_own_only_if_it_was_measured_or_given() -> None:
    lines = Assumptions({"mt.ok_share": 0.75})
    assert lines.of_tool("qa", "ok_share", None, "") == 0.5
    assert lines.of_tool("calculator", "ok_share", 0.25, "a sample build") == 0.25
    assert lines.of_tool("mt", "ok_share", 0.125, "a sample build") == 0.75
    assert {line.name: line.origin for line in lines.lines.values()} == {
        **{"ok_share": "assumed", "calculator.ok_share": "measured", "mt.ok_share": "given"}
    }
    # a shared line that was given counts for measured tools, too
    assert Assumptions({"ok_share": 0.9}).of_tool("calculator", "ok_share", 0.25, "a sample build") == 0.9


_LAYERS = {"num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2}
LLAMA = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 160, **_LAYERS, "vocab_size": 100}


def test_a_llama_by_hand() -> None:
    # attention: q and o 2 x 64 x 64, k and v 2 x 64 x (2 heads of 16): 8,192 + 4,096; gated MLP 3 x 64 x 160 = 30,720
    # three layers: 3 x 43,008 = 129,024
    shape = shape_of(LLAMA)
    assert shape.matrix_parameters == 129_024
    assert shape.kv_width == 32
    # 2 x 129,024 and, of 10 tokens looked back at, 4 x 3 x 64 x 10 = 7,680; the output layer 2 x 64 x 100 = 12,800
    assert shape.flops_per_token(10, 0.0) == 258_048 + 7_680
    assert shape.flops_per_token(10) == 258_048 + 7_680 + 12_800
    assert shape.weight_bytes() == 2 * (129_024 + 6_400)
    assert shape.kv_bytes_per_token() == 2 * 2 * 3 * 32


SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 300}
SMALL_GPT = {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 300}
QWEN = {"intermediate_size": 160, "num_key_value_heads": 2, "tie_word_embeddings": True}


@pytest.mark.parametrize(
    "settings",
    [
        {**LLAMA, "tie_word_embeddings": False},
        {"model_type": "gpt2", **SMALL_GPT, "n_positions": 32},
        {"model_type": "gptj", **SMALL_GPT, "rotary_dim": 8},
        {"model_type": "gpt_neox", **SMALL, "intermediate_size": 256},
        {"model_type": "opt", **SMALL, "ffn_dim": 256, "word_embed_proj_dim": 64, "max_position_embeddings": 32},
        {"model_type": "qwen2", **SMALL, **QWEN},
    ],
    ids=lambda settings: settings["model_type"],
)
def test_matrices_are_those_that_transformers_counts(settings: dict[str, object]) -> None:
    config = AutoConfig.for_model(**settings)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    tables = ("wte", "wpe", "lm_head", "embed_in", "embed_out", "embed_tokens", "embed_positions")
    named = [(name, p) for name, p in model.named_parameters() if p.dim() > 1]
    matrices = sum(p.numel() for name, p in named if not any(table in name for table in tables))
    assert shape_of({**config.to_dict(), **settings}).matrix_parameters == matrices


def test_the_papers_models_have_the_sizes_that_are_known_of_them() -> None:
    def parameters(name: str) -> int:
        shape = shape_of(config_of(name))
        return shape.matrix_parameters + 2 * shape.hidden * shape.vocabulary

    assert parameters("gpt-j-6b") == pytest.approx(6_050_882_784, rel=1e-3)
    assert parameters("huggyllama/llama-7b") == pytest.approx(6_738_415_616, rel=1e-3)
    assert config_of("EleutherAI/gpt-j-6B") is KNOWN_SHAPES["gpt-j-6b"]


def test_a_folder_needs_no_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    for name in (tmp_path, tmp_path / "config.json"):
        assert shape_of(config_of(str(name))) == shape_of(LLAMA)
    assert isinstance(shape_of(config_of("embedded")), ModelShape)


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no config.json of 'nosuch' here: give .* gpt-j-6b"):
        config_of("nosuch")
    for text in ("[1]", "{"):
        (tmp_path / "config.json").write_text(text, encoding="utf-8")
        with pytest.raises(ModelError, match="cannot be read"):
            config_of(str(tmp_path))
    with pytest.raises(UsageError, match="no hidden_size or n_embd"):
        shape_of({"vocab_size": 10})
