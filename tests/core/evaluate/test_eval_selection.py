"""Which items of a benchmark are asked, and GEAR's own figures as the paper's tables give them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolformer_core.evaluate.figures import ANSWERS_GPT3, ANSWERS_GPT_J, GROUNDING, GROUNDING_BY_DEMONSTRATIONS
from toolformer_core.evaluate.items import Item, select_items
from toolformer_core.evaluate.tasks import tasks

counts, seeds, limits = st.integers(0, 30), st.integers(0, 5), st.integers(1, 40)


def items(count: int) -> list[Item]:
    return [Item(f"i{number}", "svamp", f"prompt {number}", ("1",)) for number in range(count)]


@given(counts, seeds, limits, limits, st.integers(0, 5))
def test_a_larger_sample_begins_with_the_smaller_and_holds_out_the_same(
    count: int, seed: int, one: int, other: int, held_out: int
) -> None:
    small, large = sorted((one, other))
    first = select_items(items(count), seed=seed, limit=small, held_out=held_out)
    second = select_items(items(count), seed=seed, limit=large, held_out=held_out)
    assert second.used[: len(first.used)] == first.used
    assert second.held_out == first.held_out


@given(counts, seeds, st.none() | limits, st.integers(0, 5), st.randoms())
def test_every_item_is_asked_or_held_out_or_left_and_the_order_of_the_file_does_not_matter(
    count: int, seed: int, limit: int | None, held_out: int, random: object
) -> None:
    whole = items(count)
    chosen = select_items(whole, seed=seed, limit=limit, held_out=held_out)
    assert len(chosen.used) + len(chosen.held_out) + chosen.left == count
    assert not set(chosen.used) & set(chosen.held_out)
    if limit is None:
        assert chosen.left == 0
    shuffled = list(whole)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert select_items(shuffled, seed=seed, limit=limit, held_out=held_out) == chosen


def test_an_item_is_left_to_ask_however_few_there_are() -> None:
    # of two items one is held out, though three are wanted; of one none is
    assert [len(select_items(items(n), seed=0, held_out=3).used) for n in (0, 1, 2, 4, 5)] == [0, 1, 1, 1, 2]


def test_seeds_give_different_samples_and_not_the_first_items() -> None:
    samples = {select_items(items(100), seed=seed, limit=5).used for seed in range(4)}
    assert len(samples) == 4
    assert tuple(items(5)) not in samples


def test_the_averages_that_the_paper_prints_follow_from_its_rows() -> None:
    printed = {"zero-shot": (3.3, 14.3), "few-shot": (13.4, 31.9), "lm": (12.6, 20.6), "gear": (15.2, 38.6)}
    for method, averages in printed.items():
        row = ANSWERS_GPT_J[method]
        groups = (("asdiv", "gsm8k", "svamp"), ("nq", "webqs", "triviaqa"))
        assert [sum(row[task] for task in group) / 3 for group in groups] == pytest.approx(averages, abs=0.051), method


def test_figures_name_benchmarks_that_there_are() -> None:
    rows = (GROUNDING, *GROUNDING_BY_DEMONSTRATIONS.values(), *ANSWERS_GPT_J.values(), *ANSWERS_GPT3.values())
    assert {task for row in rows for task in row} | set(GROUNDING_BY_DEMONSTRATIONS) <= set(tasks())
