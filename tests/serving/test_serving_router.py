"""The server with its router on, asked by OpenAI's own client: which tool answers, and in which form."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from serving.routing.records import RouterSettings
from serving.server import ModelServer
from tests.core.decode.writers import after, writing_lm
from tests.fakes import FakeTool
from tests.serving.servers import NAME, running
from tests.tiny import tokenizer
from toolformer_core.decode.records import GenerationSettings
from toolformer_core.decode.toolformer import Toolformer
from toolformer_core.grounding.encoders import Embeddings, normalised
from toolformer_core.grounding.ground import Grounder, GroundingSettings
from toolformer_core.grounding.library import library_of
from toolformer_core.grounding.records import Query
from toolformer_core.grounding.scores import Weights
from toolformer_core.grounding.small_lm import HFSmallLM
from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.records import ToolFailure
from toolformer_core.tools.declaration import ToolDeclaration

AXES = ("seven", "day", "weather", "robot")  # a text's embedding: which of these words it has
SHORT = GroundingSettings(max_answer_tokens=4, max_call_tokens=12)


class WordEncoder:
    """One dimension for each of a few words, and one that all texts have: cosines worked out by hand."""

    digest = "words"

    def __init__(self) -> None:
        self.embedded: list[str] = []

    def encode(self, texts: Sequence[str]) -> Embeddings:
        self.embedded += texts
        return normalised(np.asarray([[1.0, *(3.0 * (word in text.lower()) for word in AXES)] for text in texts]))


class Tool(FakeTool):
    def __init__(self, key: str, name: str, description: str, answer: Any, mock: str = "") -> None:
        super().__init__(answer)
        self.key, self.name, self.description, self.fingerprint = key, name, description, key
        self.declaration = ToolDeclaration(mock_response=mock)


def sevens() -> Tool:
    return Tool("sevens", "T", "Seven times a number.", lambda input, context: f"it is {7 * int(input)}")


def days() -> Tool:
    return Tool("days", "U", "Tells the day.", lambda input, context: f"{context} after {input}", mock="2020-01-01")


@pytest.fixture(scope="module")
def lm() -> TransformersLM:
    """A model that writes [T(digits)] after every " [", and digits after every "("."""
    coded = tokenizer()

    def one(text: str) -> int:
        (token,) = coded.convert_tokens_to_ids([text])
        return int(token)

    digits = [one(d) for d in "123456789"]
    edges = [
        ([after(coded, " [")[-1]], [one("T")]),
        ([one("T")], [one("(")]),
        ([one("(")], digits),
        (digits[:4], [one(")")]),
        (digits[4:], [one(")"), *digits]),
        ([one(")")], [one("]")]),
    ]
    return writing_lm("llama", coded, edges)


def settings(tools: Sequence[Tool], **more: Any) -> RouterSettings:
    mock = more.pop("mock", ("days",))
    return RouterSettings(
        library_of(tools, mock=mock, undemonstrated=True),
        **{"weights": Weights(gamma=1.0, threshold=0.5), "grounding": SHORT, "encoder": WordEncoder(), **more},
    )


@pytest.fixture(scope="module")
def tools() -> list[Tool]:
    return [sevens(), days()]


@pytest.fixture(scope="module")
def server(lm: TransformersLM, tools: list[Tool]) -> Iterator[ModelServer]:
    router = settings(tools)
    with running(lambda: Toolformer(lm, tools, max_rows=4), max_rows=4, queue=64, router=router) as found:
        yield found


@pytest.fixture
def client(server: ModelServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as found:
        yield found


def function(name: str, description: str, properties: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    given = {"city": {"type": "string"}} if properties is None else properties
    parameters = {"type": "object", "properties": given, "required": list(given), "additionalProperties": False}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters, **more},
    }


WEATHER = function("get-weather", "The weather of a city.")
ROBOT = function("move", "Moves the robot.", {"steps": {"type": "integer"}})


def chat(
    client: openai.OpenAI, text: str | list[dict[str, Any]], own: dict[str, Any] | None = None, **more: Any
) -> Any:
    messages = [{"role": "user", "content": text}] if isinstance(text, str) else text
    return client.chat.completions.create(
        model=NAME,
        messages=messages,
        max_tokens=16,
        extra_body={"toolformer": {"explain": True, **(own or {})}},
        **more,
    )


def router_of(answer: Any) -> dict[str, Any]:
    found = answer.choices[0].toolformer["router"]
    assert isinstance(found, dict)
    return found


def test_a_tool_of_the_server_answers(client: openai.OpenAI, tools: list[Tool]) -> None:
    answer = chat(client, "What is seven of these?", tools=[WEATHER])
    (choice,) = answer.choices
    (call,) = choice.toolformer["calls"]
    assert (call["tool"], call["response"]) == ("T", f"it is {7 * int(call['input'])}")
    assert (choice.message.content, choice.finish_reason) == (call["response"], "stop")
    assert choice.message.tool_calls is None
    told = router_of(answer)
    assert (told["runs_it"], told["tool"]) == ("server", "T")
    # (1, 3) with (1, 3) on the same axis: 1; (1, 3) with (1, 3) on another one: 1 / 10
    assert [(one["tool"], one["score"]) for one in told["ranking"]] == [
        ("sevens", 1.0),
        ("days", 0.1),
        ("client:get-weather", 0.1),
    ]
    assert tools[0].asked.count((call["input"], tools[0].asked[-1][1])) >= 1
    assert answer.usage.completion_tokens > 0
