"""A plan by numbers: worked out by hand, its laws, overrides, and what is wrong with it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.cost.assumptions import COMPUTED, GIVEN
from flows.cost.build import StageCost
from flows.cost.plan import CostPlan, plan_cost
from flows.cost.query import CostQuery, ToolQuery
from toolformer_core.errors import ModelError, UnknownNameError, UsageError

CALCULATOR = ToolQuery("calculator", 20, 10, 0.5)
PAPERS = tuple(
    ToolQuery(key, *((20, 10, 0.5) if key in ("calculator", "mt") else (5, 5, 1.0)))
    for key in ("calculator", "calendar", "wikisearch", "qa", "mt")
)
# A thousand documents for one tool: 500 kept, 2,000 draws, 1,000 of them calls, 500 questions, 250 scored.
RATES = {
    "calculator.kept_share": 0.5,
    "calculator.draws": 4,
    "ok_share": 0.5,
    "calls_per_ok_draw": 0.5,
    "scored_per_ok_draw": 0.25,
    "calculator.scan_tokens": 100,
    "draw_tokens": 10,
    "calculator.score_tokens": 50,
    "call_seconds": 3.6,
}
# 10^9 weights in matrices beside 2 x 1,000 x 1,000 in embeddings; a token looks back at 100 others.
SHAPE = {"parameters": 1_002_000_000, "layers": 1, "hidden": 1000, "vocabulary": 1000}
CARD = {"tflops": 1.0, "bandwidth": 1.0, "mfu": 0.5, "bandwidth_share": 0.5, "gpu_busy_share": 1.0}
TEXT = {"text_tokens": 100, "prompt_tokens": 0}


def by_hand(**changes: Any) -> CostPlan:
    assume: Mapping[str, float] = {**RATES, **SHAPE, **TEXT, **changes.pop("assume", {})}
    query = {"documents": 1000.0, "tools": (CALCULATOR,), "shard_documents": 100, "workers": 2, "assume": assume}
    return plan_cost(CostQuery(**{**query, **changes}))


def stages(plan: CostPlan) -> dict[str, StageCost]:
    return {stage.cost.stage: stage.cost for stage in plan.stages}


def test_work_by_hand() -> None:
    found = stages(by_hand())
    assert {name: cost.units for name, cost in found.items()} == {
        "ingest": 1000,
        "prefilter": 1000,
        "sample": 500,
        "execute": 500,
        "score": 250,
        "assemble": 1000,
    }
    assert found["sample"].lm_tokens == 500 * 100 + 2000 * 10
    assert found["score"].lm_tokens == 250 * 50
    assert found["execute"].tool_calls == 500
    assert found["execute"].tool_hours == pytest.approx(500 * 3.6 / 3600)
    # ten shards of 100 documents for each of five stages, and one commit for the corpus
    assert [found[name].commits for name in ("ingest", "prefilter", "score", "assemble")] == [1, 10, 10, 10]


def test_chains_by_hand() -> None:
    found = stages(by_hand(chain_depth=3, chain_starts=5))
    # 0.5 x 4 x 0.5 x 0.25 = 0.25 calls are scored for a document, fewer than five: 1,000 x 0.25 starts, ten draws each
    for depth in (2, 3):
        units = [found[f"{stage}_{depth}"].units for stage in ("sample", "execute", "score")]
        assert units == [250, 2500 * 0.5 * 0.5, 2500 * 0.5 * 0.25]
        # one text and a half and a call of 25 tokens, x 1.05 of padding; ten tokens a draw
        assert found[f"sample_{depth}"].lm_tokens == pytest.approx(250 * (1.5 * 100 + 25) * 1.05 + 2500 * 10)
    bounded = stages(by_hand(chain_depth=2, chain_starts=5, assume={"scored_per_ok_draw": 100}))
    assert bounded["sample_2"].units == 1000 * 5
    assert "sample_4" not in found
    assert "sample_2" not in stages(by_hand())


def test_cpu_and_bytes_by_hand() -> None:
    given = {"sample_ms": 4, "commit_cpu_ms": 10, "calculator.sample_model_us": 1000, "sample_bytes": 20}
    found = stages(by_hand(assume={**given, "commit_bytes": 7, "file_bytes": 3}))["sample"]
    # 500 documents x 4 ms + 10 commits x 10 ms + 70,000 tokens x 1 ms = 2 + 0.1 + 70 s
    assert found.cpu_hours == pytest.approx(72.1 / 3600)
    assert found.bytes == 500 * 20 + 10 * (7 + 3)
    assert found.gpu_hours == 0


def test_gpu_hours_by_hand() -> None:
    given = {**CARD, "decode_rows": 2}
    plan = by_hand(gpu="mine", gpu_count=4, gpu_price=2.0, assume=given)
    found = stages(plan)
    # A scanned token: 2 x 10^9 + 4 x 1 x 1,000 x 100 FLOPs, and for half of them 2 x 1,000 x 1,000 more, at 5 x 10^11 a
    # second: (2,000.4 + 1) x 10^6 / 5 x 10^11 = 4.0028 ms.
    scan_s = 50_000 * 0.0040028
    # A drawn token is held up by memory: 2 x (10^9 + 10^6) bytes for two draws, and of 200 tokens looked back at
    # 2 x 2 x 1,000 bytes each, shared by two draws: 1.001 x 10^9 + 0.4 x 10^6 bytes at 5 x 10^8 a second = 2.0028 s.
    draw_s = 20_000 * 2.0028
    assert found["sample"].gpu_hours == pytest.approx((scan_s + draw_s) / 3600)
    # A scored token stands behind a call of 25 tokens in half a text, and looks back at half of both: 37.5 tokens.
    # 2 x 10^9 + 4 x 1,000 x 37.5 = 2,000.15 x 10^6 FLOPs = 4.0003 ms.
    assert found["score"].gpu_hours == pytest.approx(12_500 * 0.0040003 / 3600)
    cards = next(lane for lane in plan.lanes if lane.name == "cards")
    assert cards.hours == pytest.approx(plan.sum("gpu_hours") / 4)
    assert plan.gpu_origin == COMPUTED


def test_a_drawn_token_takes_no_less_than_its_flops() -> None:
    fast = by_hand(gpu="mine", gpu_price=0.0, assume={**CARD, "bandwidth": 1e9})
    # compute: 2 x 10^9 + 4 x 1,000 x 200 + 2 x 10^6 FLOPs at 5 x 10^11 a second = 4.0056 ms
    assert stages(fast)["sample"].gpu_hours == pytest.approx((50_000 * 0.0040028 + 20_000 * 0.0040056) / 3600)


def test_wall_time_and_money_by_hand() -> None:
    given = {**CARD, "cores": 10, "start_s": 36, "ingest_ms": 36, "cpu_price": 0.5, "storage_price": 3}
    plan = by_hand(gpu="mine", gpu_count=4, gpu_price=2.0, assume=given)
    assert plan.start_hours == pytest.approx(0.01)
    assert plan.ingest_hours == pytest.approx(0.01)  # 1,000 x 36 ms, in one process
    assert plan.wall_hours == pytest.approx(0.02 + plan.lanes[0].hours + plan.end_hours)
    assert plan.bottleneck == "cards"
    money = plan.money
    assert money.gpu_work == pytest.approx(plan.sum("gpu_hours") * 2.0)
    assert money.gpu == pytest.approx(4 * plan.wall_hours * 2.0)
    assert money.cpu == pytest.approx(10 * plan.wall_hours * 0.5)
    assert money.storage == pytest.approx(plan.sum("bytes") / 1e9 * 3)
    assert money.build == pytest.approx(money.gpu + money.cpu + money.storage)


def test_finetuning_by_hand() -> None:
    given = {"steps": 10, "batch": 8, "call_tokens": 20, "evaluate_every": 5, "dev_documents": 3, "training_mfu": 0.1}
    given |= {"calculator.examples": 0.25, "training_passes": 3}
    found = by_hand(gpu="mine", gpu_count=2, gpu_price=2.0, assume={**CARD, **given}).training
    assert found.texts == 250
    assert found.text_tokens == 120  # a text and a call
    assert found.corpus_tokens == 30_000
    assert found.trained_tokens == 10 * 8 * 120
    assert found.passes == pytest.approx(80 / 250)
    assert found.dev_tokens == 3 * 3 * 100  # at the start, after 5 and after 10 steps
    # a token: 2 x 10^9 + 4 x 1,000 x 60 + 2 x 10^6 = 2,002.24 x 10^6 FLOPs; three passes of 9,600 tokens, one of 900
    flops = 2_002_240_000 * (3 * 9600 + 900)
    assert found.gpu_hours == pytest.approx(flops / 1e11 / 3600)
    assert found.hours == pytest.approx(found.gpu_hours / 2)
    assert found.memory_gb == pytest.approx(16 * 1.002e9 / 2 / 1e9)


def test_a_tool_stops_once_it_has_enough_examples() -> None:
    # 100 examples at 0.25 a document: 400 of the 1,000 documents, in four shards
    plan = by_hand(stop_when_full=True, max_examples=100, assume={"calculator.examples": 0.25})
    found = stages(plan)
    assert (found["prefilter"].units, found["sample"].units, found["prefilter"].commits) == (400, 200, 4)
    # one task a shard, so that it can stop at any of them; all ten shards are assembled, in groups
    assert {stage.cost.stage: stage.task_runs for stage in plan.stages if stage.cost.tool} == dict.fromkeys(
        ("prefilter", "sample", "execute", "score"), 4
    )
    assert found["assemble"].commits == 10


def test_a_share_of_relevant_documents_is_sampled_and_all_are_embedded() -> None:
    found = stages(by_hand(relevant_share=0.5))
    assert (found["relevance"].units, found["sample"].units) == (500, 250)
    assert found["relevance"].lm_tokens == 500 * 100  # one tool, so it embeds every text itself


def test_another_encoder_than_the_model_costs_it_no_tokens() -> None:
    found = stages(by_hand(relevant_share=0.5, own_encoder=True))
    assert (found["relevance"].units, found["relevance"].lm_tokens) == (500, 0)


def test_tokens_of_a_scored_call_by_hand() -> None:
    # Half a text of 100 tokens behind a call of 10, twice: 120. Four draws a document, half of them calls, a quarter of
    # these scored: one call in two documents, which needs a plain pass of 100 tokens for itself. No padding: 220.
    assume = {name: value for name, value in RATES.items() if name != "calculator.score_tokens"}
    few = {**assume, **SHAPE, **TEXT, "call_tokens": 10, "padding": 1}
    query = CostQuery(1000.0, (CALCULATOR,), assume=few)
    assert stages(plan_cost(query))["score"].lm_tokens == 250 * 220
    # 40 draws a document: five scored calls share the plain pass, 20 tokens each
    many = replace(query, assume={**few, "calculator.draws": 40})
    assert stages(plan_cost(many))["score"].lm_tokens == 2500 * 140
    # three decoys are three more calls of 10 tokens, each in front of half a text
    assert stages(plan_cost(replace(query, decoys=3.0)))["score"].lm_tokens == 250 * (220 + 3 * 60)


@given(st.integers(100, 10**9), st.integers(2, 5))
def test_more_documents_are_so_many_times_the_tokens(documents: int, times: int) -> None:
    one, more = (plan_cost(CostQuery(float(n), PAPERS, "gpt-j-6b")) for n in (documents, documents * times))
    for figure in ("lm_tokens", "tool_calls", "tool_hours"):
        assert more.sum(figure) == pytest.approx(times * one.sum(figure))


@given(st.sampled_from([10**4, 10**6, 10**9]), st.integers(1, 512))
def test_more_cards_are_never_slower_unless_handing_over_tasks_takes_longest(documents: int, cards: int) -> None:
    query = CostQuery(float(documents), PAPERS, "gpt-j-6b", gpu="h100", gpu_count=cards, gpu_price=1.0)
    few, many = plan_cost(query), plan_cost(replace(query, gpu_count=2 * cards))
    if many.lanes[0].name != "the scheduler":  # more workers get more tasks, each handed over by one process
        assert many.wall_hours <= few.wall_hours * (1 + 1e-9)
    assert many.sum("gpu_hours") == pytest.approx(few.sum("gpu_hours"))


@given(st.floats(0, 100), st.floats(0, 100))
def test_money_is_hours_times_price(price: float, other: float) -> None:
    query = CostQuery(1e6, PAPERS, "gpt-j-6b", gpu="a100", gpu_count=8, gpu_price=price)
    one, two = plan_cost(query), plan_cost(replace(query, gpu_price=other))
    assert one.money.gpu == pytest.approx(8 * one.wall_hours * price)
    assert one.money.gpu_work == pytest.approx(one.sum("gpu_hours") * price)
    assert one.wall_hours == two.wall_hours  # a price changes no hours
    assert math.isfinite(one.money.total)


@pytest.mark.parametrize("changes", [{"gpu": "h100", "gpu_count": 8, "gpu_price": 2.0, "model": "gpt-j-6b"}, {}])
def test_every_assumption_that_counts_is_a_line_with_an_origin_and_can_be_given(changes: dict[str, Any]) -> None:
    query = CostQuery(1e6, PAPERS, remote=True, relevant_share=0.5, **changes)
    plan = plan_cost(query)
    assert len({line.name for line in plan.assumptions}) == len(plan.assumptions)
    assert all(line.origin and line.source for line in plan.assumptions)
    for line in plan.assumptions:
        told = plan_cost(replace(query, assume={line.name: line.value / 2}))
        own = next(one for one in told.assumptions if one.name == line.name)
        assert (own.value, own.origin) == (line.value / 2, GIVEN)


def test_a_text_of_twice_the_characters_has_twice_the_tokens() -> None:
    query = CostQuery(1e6, (CALCULATOR,), "gpt-j-6b")
    lines = {line.name: line.value for line in plan_cost(query).assumptions}
    longer = plan_cost(replace(query, assume={"characters": 2 * lines["characters"]}))
    told = {line.name: line.value for line in longer.assumptions}
    assert told["text_tokens"] == pytest.approx(2 * lines["text_tokens"])
    assert told["calculator.scan_tokens"] == pytest.approx(2 * lines["calculator.scan_tokens"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"documents": 0.0}, "--documents must be at least 1"),
        ({"documents": -5.0}, "--documents must be at least 1"),
        ({"documents": math.inf}, "--documents must be at least 1"),
        ({"tools": ()}, "no tool was named"),
        ({"gpu": "h100"}, "--gpu needs the price"),
        ({"gpu": "h100", "gpu_price": -1.0}, "--gpu-price is an amount of money"),
        ({"gpu": "h100", "gpu_price": math.nan}, "--gpu-price is an amount of money"),
        ({"gpu": "h100", "gpu_price": 1.0, "gpu_count": 0}, "--gpu-count must be at least 1"),
        ({"gpu_price": 1.0}, "need a card"),
        ({"gpu_count": 2}, "need a card"),
        ({"assume": {"mfu": 0.0}, "gpu": "h100", "gpu_price": 1.0}, "mfu must be positive"),
        ({"assume": {"calculator.kept_share": 2.0}}, r"calculator.kept_share is a share"),
        ({"assume": {"text_copies": 0.0}}, "text_copies must be positive"),
        ({"assume": {"characters_a_token": 0.0}, "model": "embedded"}, "characters_a_token must be positive"),
    ],
)
def test_wrong_values_are_answered_in_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as told:
        plan_cost(CostQuery(**{"documents": 1e6, "tools": (CALCULATOR,), "model": "gpt-j-6b", **changes}))
    assert "\n" not in str(told.value)


def test_unknown_names_are_answered_with_the_ones_that_were_meant() -> None:
    query = CostQuery(1e6, (CALCULATOR,), "gpt-j-6b", gpu="h10", gpu_price=1.0)
    with pytest.raises(UnknownNameError, match="Did you mean 'h100'"):
        plan_cost(query)
    with pytest.raises(UnknownNameError, match="Did you mean 'bandwidth_share'"):
        plan_cost(replace(query, gpu="h100", assume={"bandwith_share": 0.5}))
    with pytest.raises(ModelError, match=r"no config\.json of 'nosuch'"):
        plan_cost(replace(query, gpu="h100", model="nosuch"))
    described = replace(query, gpu="mine", model="nosuch", assume={**SHAPE, "tflops": 500.0, "bandwidth": 2000.0})
    assert plan_cost(described).training.fits is None  # its memory was not given
