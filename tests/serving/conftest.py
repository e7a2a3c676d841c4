"""A tiny random model that calls a tool behind every "!", and a server of it."""

from collections.abc import Iterator

import pytest

from serving.server import ModelServer
from tests.core.decode.writers import after, call_edges, writing_lm
from tests.fakes import FakeTool
from tests.serving.servers import model_server, tool_named
from tests.tiny import tokenizer
from toolformer_core.decode.toolformer import Toolformer
from toolformer_core.lm.hf.engine import TransformersLM

ROWS, QUEUE = 8, 192


def tools() -> list[FakeTool]:
    """Seven times the input; the context."""
    sevens = tool_named("T", lambda input, context: str(7 * int(input)), "sevens")
    return [sevens, tool_named("U", lambda input, context: context, "days")]


@pytest.fixture(scope="session")
def lm() -> TransformersLM:
    coded = tokenizer()
    return writing_lm("llama", coded, [(after(coded, "!"), after(coded, " [")), *call_edges(coded, "TU")])


@pytest.fixture(scope="session")
def alone(lm: TransformersLM) -> Iterator[Toolformer]:
    """What the server's answers are compared with."""
    toolformer = Toolformer(lm, tools())
    yield toolformer
    toolformer.close()


@pytest.fixture(scope="session")
def server(lm: TransformersLM) -> Iterator[ModelServer]:
    with model_server(lm, tools(), ROWS, queue=QUEUE) as found:
        yield found
