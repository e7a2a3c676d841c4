"""The options of `serve` that choose tools: what they make, and what is told before the server starts."""

from __future__ import annotations

import pytest

from cli.use.router_options import ServeOptions, router_of
from tests.fakes import FakeTool
from toolformer_core.decode.toolformer import Toolformer
from toolformer_core.errors import UsageError
from toolformer_core.grounding.records import Weights
from toolformer_core.tools.calculator import Calculator
from toolformer_core.tools.calendar import Calendar


def never(name: str) -> Toolformer:
    raise AssertionError(f"{name} was loaded")


def test_the_router_is_off_by_default() -> None:
    assert router_of(ServeOptions(), [Calculator()], "m", never, 4) is None


def test_what_the_options_make() -> None:
    options = ServeOptions(
        router="gear",
        router_model="embedded",
        router_threshold=0.25,
        router_gamma=0.5,
        router_mock="calendar",  # type: ignore[arg-type]  # as it is given
    )
    router = router_of(options, [Calculator(), Calendar(), FakeTool({})], "other", never, 4)
    assert router is not None
    assert router.weights == Weights(gamma=0.5, threshold=0.25)
    assert [(one.key, one.mocked) for one in router.library] == [
        ("calculator", False),
        ("calendar", True),
        ("fake", False),  # it has no demonstrations, and is shown by its description
    ]
    assert (router.model, router.max_rows, router.encoder) == ("embedded", 4, None)
    assert router.load is not None
    with pytest.raises(AssertionError, match="embedded was loaded"):
        router.load()
    same = router_of(ServeOptions(router="gear", router_model="embedded"), [Calculator()], "embedded", never, 4)
    assert same is not None
    assert (same.load, same.model) == (None, "")


def test_a_tool_without_a_mock_response_cannot_be_mocked() -> None:
    options = ServeOptions(router="gear", router_mock=["fake"])
    with pytest.raises(UsageError, match="no mock response"):
        router_of(options, [FakeTool({})], "m", never, 4)
