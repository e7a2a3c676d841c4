"""What tests of the router share: tools, an encoder worked out by hand, and how a chat is asked."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import openai

from serving.routing.router import Route
from serving.server import ModelServer
from serving.settings import RouterSettings
from tests.core.decode.writers import call_edges, writing_lm
from tests.fakes import FakeTool
from tests.serving.servers import NAME
from tests.tiny import tokenizer
from toolformer_core.grounding.encoders import Embeddings, normalised
from toolformer_core.grounding.ground import GroundingSettings
from toolformer_core.grounding.library import library_of
from toolformer_core.grounding.records import Weights
from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.tools.declaration import ToolDeclaration

AXES = ("seven", "day", "weather", "robot")  # a text's embedding: which of these words it has
WEIGHTS = Weights(gamma=1.0, threshold=0.5)
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


def settings(tools: Sequence[Tool], **more: Any) -> RouterSettings:
    mock = more.pop("mock", ("days",))
    return RouterSettings(
        library_of(tools, mock=mock, undemonstrated=True),
        **{"weights": WEIGHTS, "grounding": SHORT, "encoder": WordEncoder(), **more},
    )


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
    extra = {"extra_body": {"toolformer": own or {}}, **more}
    return client.chat.completions.create(model=NAME, messages=messages, **{"max_tokens": 16, **extra})


ROUTES: list[Route] = []  # what routers of this process decided, see `conftest`


def ranking(weights: Weights = WEIGHTS) -> list[tuple[str, float]]:
    """The tools of the last decision with their scores, best first; none if they were not ranked."""
    grounding = ROUTES[-1].grounding
    return [] if grounding is None else [(score.tool, total) for score, total in grounding.ranking(weights)]


MESSAGE = {"role": "user", "content": "x"}
CALLED = {
    "role": "assistant",
    "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}


@contextlib.contextmanager
def asking(server: ModelServer) -> Iterator[openai.OpenAI]:
    """OpenAI's own client of a server."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as found:
        yield found


def calling_lm(family: str = "llama", seed: int = 0, names: str = "T") -> TransformersLM:
    """A model that writes [T(digits)] after every " [", and digits after every "("; by family and seed."""
    return writing_lm(family, tokenizer(), call_edges(tokenizer(), names, arrow="]"), seed=seed)
