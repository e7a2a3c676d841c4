"""A model that calls a tool behind every " [", and a server of it with its router on."""

from collections.abc import Iterator

import openai
import pytest

from serving.routing.router import Route, Router, RouteRequest
from serving.server import ModelServer
from tests.serving.routed import ROUTES, Tool, asking, calling_lm, days, settings, sevens
from tests.serving.servers import model_server
from toolformer_core.lm.hf.engine import TransformersLM


@pytest.fixture(autouse=True)
def routes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what routers decide in `ROUTES`."""
    route = Router.route

    async def kept(self: Router, request: RouteRequest) -> Route:
        ROUTES.append(await route(self, request))
        return ROUTES[-1]

    monkeypatch.setattr(Router, "route", kept)


@pytest.fixture(scope="module")
def lm() -> TransformersLM:
    return calling_lm()


@pytest.fixture(scope="module")
def tools() -> list[Tool]:
    return [sevens(), days()]


@pytest.fixture(scope="module")
def server(lm: TransformersLM, tools: list[Tool]) -> Iterator[ModelServer]:
    router = settings(tools)
    with model_server(lm, tools, queue=64, router=router) as found:
        yield found


@pytest.fixture
def client(server: ModelServer) -> Iterator[openai.OpenAI]:
    with asking(server) as found:
        yield found
