"""On which shards a tool is annotated where a build stops when it has enough examples."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tasks.shards.stage import Shard
from tasks.specs.example_limit import ExampleCounter, shard_order
from warehouse.commits import DataFile

TOOLS = ("calculator", "qa")


def annotated(found: list[dict[str, int]], enough: int) -> tuple[dict[str, int], ExampleCounter]:
    """Return on how many shards each tool is annotated, of shards with so many examples of each tool."""
    filling, prefixes = ExampleCounter(TOOLS, enough), Counter[str]()
    for examples in found:
        prefixes.update(filling.open_tools)
        filling.add(examples)
    return {tool: prefixes[tool] for tool in TOOLS}, filling


def test_a_tool_stops_with_the_shard_that_makes_it_enough() -> None:
    found = [{"calculator": 2, "qa": 1}, {"qa": 0}, {"calculator": 2, "qa": 1}, {"calculator": 9, "qa": 2}]
    # calculator: 2, 2, 4 >= 3 with the third; qa: 1, 1, 2, 4 with the fourth
    assert annotated(found, 3)[0] == {"calculator": 3, "qa": 4}
    assert annotated(found, 2)[0] == {"calculator": 1, "qa": 3}
    filling = ExampleCounter(TOOLS, 1)
    assert filling.add({"qa": 1}) == ("qa",)
    assert filling.add({"qa": 5, "calculator": 0}) == ()  # it is not counted any more
    assert filling.open_tools == ("calculator",)


COUNTS = st.lists(st.fixed_dictionaries({tool: st.integers(0, 4) for tool in TOOLS}), max_size=12)


@given(found=COUNTS, enough=st.integers(1, 10))
def test_each_tool_has_the_shortest_prefix_that_is_enough(found: list[dict[str, int]], enough: int) -> None:
    prefixes, filling = annotated(found, enough)
    for tool, n in prefixes.items():

        def examples(shards: int, tool: str = tool) -> int:
            return sum(one[tool] for one in found[:shards])

        assert all(examples(shorter) < enough for shorter in range(n))
        assert examples(n) >= enough or n == len(found)
        assert (tool in filling.open_tools) == (examples(n) < enough)


def test_the_order_is_the_seeds_and_names_alone_decide() -> None:
    shards = [Shard(f"part-{n:05d}", DataFile(f"{n}", "", n, n)) for n in range(8)]
    order = [shard.name for shard in shard_order(shards, 0)]
    assert sorted(order) == [shard.name for shard in shards]
    assert order == [shard.name for shard in shard_order(reversed(shards), 0)]
    assert order != [shard.name for shard in shard_order(shards, 1)]
    # a corpus that grows keeps the order of what was there
    assert [name for name in order if name < "part-00005"] == [s.name for s in shard_order(shards[:5], 0)]
