"""`pytest --fuzz` scales what a property test asks for, and the suite draws the same examples everywhere."""

from __future__ import annotations

import hypothesis
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fuzz import scale


def test_a_test_with_examples_of_its_own_gets_so_many_times_as_many() -> None:
    drawn: list[int] = []

    @settings(max_examples=3, database=None)
    @given(st.integers())
    def own(number: int) -> None:
        drawn.append(number)

    own()
    assert len(drawn) == 3
    scale(own, times=20)
    drawn.clear()
    own()
    assert len(drawn) == 60  # 20 x 3


def test_a_test_without_gets_so_many_times_the_profiles() -> None:
    drawn: list[float] = []

    @given(st.floats())
    def profiled(number: float) -> None:
        drawn.append(number)

    scale(profiled, times=2)
    profiled()
    assert len(drawn) == 2 * hypothesis.settings.default.max_examples


def test_the_suite_draws_the_same_examples_every_time() -> None:
    def examples() -> list[float]:
        drawn: list[float] = []

        @given(st.floats())
        def some(number: float) -> None:
            drawn.append(number)

        some()
        return drawn

    first, second = examples(), examples()
    assert [repr(n) for n in first] == [repr(n) for n in second]
