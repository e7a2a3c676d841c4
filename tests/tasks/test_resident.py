"""A process keeps one model: builds and evaluations share it, and it makes room before another is loaded."""

import weakref
from collections.abc import Iterator
from typing import Any, cast

import pytest
from tiny import tiny_lm

from tasks.shards import model_thread as models
from tasks.shards.model_thread import in_model_thread
from tasks.specs.build_spec import model_of
from tasks.specs.evaluation_spec import Evaluation, toolformer_of
from tests.support.stage_runs import calculator_spec
from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.tools.build import ToolSettings


class Loader:
    """Loads tiny models, and notes for each load which were still in memory when it began."""

    def __init__(self) -> None:
        self.loads: list[tuple[str, list[str]]] = []
        self._seen: list[tuple[str, weakref.ref[Any]]] = []

    def alive(self) -> list[str]:
        return [name for name, held in self._seen if held() is not None]

    def __call__(self, name: str, *, digest: str, credentials: object) -> TransformersLM:
        self.loads.append((name, self.alive()))
        lm = tiny_lm()
        self._seen.append((name, weakref.ref(lm.hf_model.model)))
        return lm


@pytest.fixture
def loader(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loader]:
    made = Loader()
    monkeypatch.setattr("toolformer_core.lm.load.load_model", made)
    yield made
    in_model_thread(drop)


def drop() -> None:
    for release in models._ON_DROP:
        release()
    models._RESIDENT.clear()


def build(model: str) -> None:
    model_of(calculator_spec("", "", model=model, model_digest=f"digest of {model}"))


def evaluate(model: str, *tools: str) -> None:
    arm = Evaluation("base", 0, model, f"digest of {model}", model, "", tools, (), ToolSettings(), 8)
    in_model_thread(lambda: toolformer_of(arm) and None)


def test_at_most_one_model_is_in_memory_and_none_while_another_is_loaded(loader: Loader) -> None:
    build("base")
    build("base")
    evaluate("base")
    evaluate("base", "calculator")
    evaluate("cc")
    evaluate("toolformer", "calculator")
    build("other")
    build("base")
    assert loader.loads == [(name, []) for name in ("base", "cc", "toolformer", "other", "base")]
    assert loader.alive() == ["base"]


def test_tokens_are_those_of_the_model_that_is_loaded(loader: Loader) -> None:
    in_model_thread(drop)
    assert models.tokens_of_resident() == 0
    build("base")
    fresh = models.tokens_of_resident()  # a few that tried it out
    [held] = map(cast(Any, lambda lm: lm.hf_model), models._RESIDENT.values())
    held.tokens += 1000
    assert models.tokens_of_resident() == fresh + 1000
    del held
    build("cc")
    assert models.tokens_of_resident() == fresh
