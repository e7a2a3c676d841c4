"""A model that calls a tool behind every " [", and a server of it with its router on."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from serving.server import ModelServer
from tests.core.decode.writers import after, writing_lm
from tests.serving.routed import (
    Tool,
    asking,
    days,
    settings,
    sevens,
)
from tests.serving.servers import running
from tests.tiny import tokenizer
from toolformer_core.decode.toolformer import Toolformer
from toolformer_core.lm.hf.engine import TransformersLM


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
    with asking(server) as found:
        yield found
