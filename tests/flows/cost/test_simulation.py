"""The simulator: makespans that can be worked out, its laws, and what dies and is claimed again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.scale.limits import constants_of, loads
from benchmarks.scale.real_runs import waiting_world
from benchmarks.scale.simulation import retry_delay, simulate
from benchmarks.scale.world import Outcome, Stage, World
from flows.cost.plan import plan_cost
from flows.cost.query import CostQuery, ToolQuery
from warehouse.claims import LEASE_S, pauses

# One shard for one tool: a second of work before the model, ten with it.
ONE = World(
    documents=100,
    shard_documents=100,
    stages=(
        Stage("prefilter", "qa", cpu_s=0.01),
        Stage("sample", "qa", model_s=0.1),
        Stage("assemble", "", cpu_s=0.02),
    ),
)


def test_one_shard_by_hand() -> None:
    # prefilter 1 s, then sample 10 s, then assemble 2 s
    outcome = simulate(ONE)
    assert outcome.makespan_s == pytest.approx(13)
    assert (outcome.tasks, outcome.commits, outcome.deaths) == (3, 3, 0)
    assert outcome.card_busy == pytest.approx(1)
    # one worker and three places at the card: 13 of 4 x 13 s
    assert outcome.worker_busy == pytest.approx(13 / 52)


def test_what_stands_around_the_tasks_by_hand() -> None:
    world = replace(ONE, start_s=5, end_s=7, submit_s=0.5, task_s=0.25, note_s=0.1)
    # The start; the first task is handed over after 0.5 s, the others while it works; 0.25 s before each of the three;
    # the last commit is noted in 0.1 s; the end.
    assert simulate(world).makespan_s == pytest.approx(5 + 0.5 + 13 + 0.75 + 0.1 + 7)


def test_what_tasks_cost_beside_their_work_is_shared_by_the_cores() -> None:
    # ten tasks of a second on ten workers, each after 2 s of CPU time: five rounds on two cores, then the last second
    world = replace(ONE, documents=1000, stages=(Stage("prefilter", "qa", cpu_s=0.01),), workers=10, task_cpu_s=2)
    assert simulate(replace(world, cores=2)).makespan_s == pytest.approx(5 * 2 + 1)
    assert simulate(world).makespan_s == pytest.approx(1)  # enough cores: it delays nothing


def test_a_card_serves_one_task_at_a_time() -> None:
    tools = ("a", "b", "c")
    stages = tuple(Stage("sample", tool, model_s=0.1) for tool in tools)
    # three tools of 10 s: one card 30 s, three cards 10 s
    assert simulate(replace(ONE, stages=stages)).makespan_s == pytest.approx(30)
    assert simulate(replace(ONE, stages=stages, cards=3)).makespan_s == pytest.approx(10)


def test_calls_are_asked_so_many_at_a_time() -> None:
    world = replace(ONE, stages=(Stage("execute", "qa", calls=1, call_s=0.2),))
    # 100 calls, 32 at a time: four rounds of 0.2 s; a tool ten times as slow: 8 s
    assert simulate(world).makespan_s == pytest.approx(0.8)
    assert simulate(replace(world, slow_tool=10)).makespan_s == pytest.approx(8)


def test_the_flows_process_notes_one_commit_after_another() -> None:
    world = replace(ONE, documents=1000, stages=(Stage("prefilter", "qa", cpu_s=0.001),), workers=10, note_s=5)
    # ten shards of 0.1 s on ten workers: then ten commits of 5 s
    outcome = simulate(world)
    assert outcome.flow_busy_s == pytest.approx(50)
    assert outcome.makespan_s == pytest.approx(50.1)


def test_assembly_waits_for_all_scores_where_examples_are_limited() -> None:
    world = replace(ONE, documents=400, workers=4, stages=(Stage("score", "qa", model_s=0.1), ONE.stages[2]))
    # four shards, 10 s each on one card, one after another; then 2 s of assembly on four workers, in either case
    assert simulate(world).makespan_s == pytest.approx(42)
    assert simulate(replace(world, all_scores_first=True)).makespan_s == pytest.approx(42)
    few = replace(world, workers=1, card_tasks=1)
    # two places: assembly of three shards is hidden behind the card, or else all four come at the end, two at a time
    assert simulate(few).makespan_s == pytest.approx(42)
    assert simulate(replace(few, all_scores_first=True)).makespan_s == pytest.approx(44)
    # It is handed over only then: the first score begins after 0.1 s, the second assembly 0.2 s after the last score.
    late = replace(few, all_scores_first=True, submit_s=0.1)
    assert simulate(late).makespan_s == pytest.approx(0.1 + 40 + 0.2 + 2 + 2)


def test_places_at_cards_take_other_tasks_where_no_model_task_waits() -> None:
    one_second = Stage("prefilter", "qa", cpu_s=0.01)
    world = replace(ONE, documents=400, card_tasks=1, workers=1, stages=(one_second,))
    assert simulate(world).makespan_s == pytest.approx(2)  # four tasks of a second in two places
    # two prefilters of a second in both places; then the card's place is kept busy by four samples of 10 s
    both = replace(world, stages=(one_second, Stage("sample", "qa", model_s=0.1)))
    assert simulate(both).makespan_s == pytest.approx(1 + 4 * 10)


def test_a_claim_is_taken_at_the_first_look_after_its_lease() -> None:
    # looks after 0.05, 0.15, 0.35, 0.75, 1.55, 2.55, ... s
    waits = pauses()
    assert [next(waits) for _ in range(7)] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert retry_delay(0) == 0
    assert retry_delay(0.04) == pytest.approx(0.05)
    assert retry_delay(1.0) == pytest.approx(1.55)
    assert retry_delay(60.0) == pytest.approx(60.55)


def test_who_dies_loses_a_shard_and_no_more() -> None:
    # 1,000 shards of a second each on one worker, some forty in a task, five in a chunk
    stages = (Stage("prefilter", "qa", cpu_s=0.1),)
    world = replace(
        ONE, documents=10_000, shard_documents=10, stages=stages, shared=True, fail_per_hour=200, restart_s=1
    )
    calm, deadly = simulate(replace(world, fail_per_hour=0)), simulate(world)
    assert calm.makespan_s == pytest.approx(1000)
    assert deadly.deaths > 20
    assert deadly.commits == calm.commits  # everything is committed in the end
    # each death costs at most a shard of a second, and the restart
    assert calm.makespan_s < deadly.makespan_s <= calm.makespan_s + deadly.deaths * (1 + 1) + 1e-6
    held = simulate(replace(world, claims=True))
    assert deadly.makespan_s < held.makespan_s <= calm.makespan_s + held.deaths * (1 + 1 + LEASE_S + 1)


worlds = st.builds(
    World,
    documents=st.integers(1, 3000),
    shard_documents=st.sampled_from([10, 100, 256]),
    stages=st.just(ONE.stages),
    cards=st.integers(1, 4),
    workers=st.integers(1, 6),
    submit_s=st.sampled_from([0.0, 0.2]),
    request_s=st.sampled_from([0.0, 0.05]),
    fail_per_hour=st.sampled_from([0.0, 1.0]),
    straggler_share=st.sampled_from([0.0, 0.1]),
    straggler_factor=st.just(3.0),
    seed=st.integers(0, 100),
)


@given(worlds)
def test_all_work_is_done_once_and_no_place_is_busier_than_it_can_be(world: World) -> None:
    outcome = simulate(world)
    shards = -(-world.documents // world.shard_documents)
    assert outcome.commits >= shards * len(world.stages)
    assert outcome.makespan_s >= world.documents * 0.1 / world.cards - 1e-6  # the cards' work
    assert 0 <= outcome.card_busy <= 1 + 1e-9
    assert 0 <= outcome.worker_busy <= 1 + 1e-9
    assert simulate(world) == outcome  # the same world, the same outcome


@pytest.mark.parametrize("figure", ["makespan_s", "card_span_s"])
def test_the_worlds_of_the_real_runs_are_near_what_was_measured_of_them(figure: str) -> None:
    # python benchmarks/gpu_wait.py: 2,000 documents of 20 ms, a tool of 200 ms, took 42.6 to 44.0 s (see RESULTS.md)
    outcome: Outcome = simulate(waiting_world(2000, 200.0))
    assert 40.0 < getattr(outcome, figure) < 48.4  # within a tenth of 44


def test_loads_by_hand() -> None:
    query = CostQuery(1e6, (ToolQuery("qa", 5, 5, 1.0),), "gpt-j-6b", gpu="h100", gpu_price=1.0)
    plan = plan_cost(query)
    work_s = 3600 * next(
        lane.hours for lane in plan.lanes if lane.name == "cards"
    )  # the slowest of cards, cores, tools
    found = {one.name: one.share for one in loads(plan, remote=True)}
    # 1,000,000 documents in 3,907 shards, five stages: 19,535 commits and the corpus's
    assert plan.sum("commits") == 5 * 3907 + 1
    assert found["flow's process: commits read"] == pytest.approx(19_536 * 2 * 0.05 / work_s)
    assert found["catalog: rows of commits"] == pytest.approx(19_536 * 0.00021 / work_s)
    assert found["object store: reads"] == pytest.approx(19_536 * 5 / 5500 / work_s)
    assert found["scheduler: tasks handed over"] == pytest.approx(plan.sum("task_runs") * 0.2 / work_s)
    assert list(found.values()) == sorted(found.values(), reverse=True)
    assert "object store: writes" not in {one.name for one in loads(plan, remote=False)}
    given = {one.name: one.share for one in loads(plan_cost(replace(query, assume={"commit_ms": 2.1})), remote=True)}
    assert given["catalog: rows of commits"] == pytest.approx(10 * found["catalog: rows of commits"])


def test_every_constant_of_a_load_is_one_of_the_plan_or_of_the_limits() -> None:
    plan = plan_cost(CostQuery(1e6, (ToolQuery("qa", 5, 5, 1.0),), "gpt-j-6b", gpu="h100", gpu_price=1.0))
    known = {line.name for line in plan.assumptions} | constants_of({}).keys()
    assert {name for one in loads(plan, remote=True) for name in one.constants} <= known
