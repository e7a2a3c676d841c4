"""The HTTP application: OpenAI's endpoints, health, metrics, and the page.

A request is parsed, checked, handed to the driver, and answered whole or as a stream (`answer`). Nothing here knows the
model beyond its prompt form; the door is in `guard`, shapes are in `schemas` and `wire`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from functools import lru_cache
from importlib import resources
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.exceptions import HTTPException

from serving.answer import Answer, Stream
from serving.chat import chat_prompt, turns_of
from serving.driver import Driver
from serving.errors import RequestError, error_body
from serving.guard import Guard
from serving.schemas import ChatRequest, CompletionRequest, check, prompts_of, settings
from serving.wire import Form, Writer
from toolformer_core.errors import ToolformerError, UnknownNameError

__all__ = ["MAX_BODY", "make_app"]

MAX_BODY = 1 << 20  # bytes
_CSP = (
    "default-src 'none'; connect-src 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def make_app(
    driver: Driver,
    *,
    name: str,
    api_key: str | None = None,
    loopback: bool = True,
    max_body: int = MAX_BODY,
    body_timeout_s: float = 30.0,
) -> FastAPI:
    """Return the application; it starts the driver with itself and ends it.

    Args:
        driver: not yet started.
        name: the model's name for clients.
        api_key: what clients must send; None lets everybody in.
        loopback: whether the server is bound to the loopback interface.
        max_body: bytes a request may have.
        body_timeout_s: seconds in which they must have come.
    """

    @contextlib.asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        driver.start()
        yield
        await driver.close()

    # No pages of documentation: they would load scripts from elsewhere. /openapi.json is there.
    app = FastAPI(title="Toolformer", docs_url=None, redoc_url=None, lifespan=life)
    app.add_middleware(
        Guard,
        metrics=driver.metrics,
        api_key=api_key,
        max_body=max_body,
        loopback=loopback,
        body_timeout_s=body_timeout_s,
    )
    _answer_errors(app)
    _add_probes(app, driver)
    _add_models(app, driver, name)
    serve = _Service(driver, name)

    @app.post("/v1/completions")
    async def completions(body: CompletionRequest, request: Request) -> Response:
        return await serve.complete(body, request)

    @app.post("/v1/chat/completions")
    async def chat(body: ChatRequest, request: Request) -> Response:
        return await serve.chat(body, request)

    return app


def _answer_errors(app: FastAPI) -> None:
    def refused(error: RequestError) -> Response:
        return JSONResponse(error.body, error.status, error.headers)

    @app.exception_handler(RequestError)
    async def ours(request: Request, exc: RequestError) -> Response:
        return refused(exc)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, exc: RequestValidationError) -> Response:
        return refused(_of_validation(exc))

    @app.exception_handler(HTTPException)
    async def http(request: Request, exc: HTTPException) -> Response:
        found = f"{exc.detail}: {request.method} {request.url.path}"
        return JSONResponse(error_body(found, "invalid_request_error"), exc.status_code, exc.headers)

    @app.exception_handler(Exception)
    async def broken(request: Request, exc: Exception) -> Response:
        return JSONResponse(error_body("the server failed; its log says why", "server_error"), 500)


def _of_validation(exc: RequestValidationError) -> RequestError:
    first = exc.errors()[0]
    path = [part for part in first["loc"] if part != "body"]
    param = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path[:3]).lstrip(".")
    if first["type"] == "json_invalid":
        return RequestError(400, f"the body is no JSON: {first.get('ctx', {}).get('error', '')}")
    if first["type"] == "extra_forbidden":
        return RequestError(
            400, f"unrecognized request argument supplied: {param}", param=param, code="unknown_parameter"
        )
    return RequestError(400, f"{param or 'the body'}: {first['msg']}", param=param or None, code="invalid_value")


def _add_probes(app: FastAPI, driver: Driver) -> None:
    @app.get("/health")
    async def health() -> dict[str, Any]:
        return {"live": True, "ready": driver.state == "ready", "status": driver.state}

    @app.get("/health/live")
    async def live() -> dict[str, Any]:
        return {"live": True}

    @app.get("/health/ready")
    async def ready() -> Response:
        is_ready = driver.state == "ready"
        return JSONResponse({"ready": is_ready, "status": driver.state}, 200 if is_ready else 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(driver.metrics.text(), headers={"content-type": driver.metrics.content_type})

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        headers = {
            "content-security-policy": _CSP,
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
        }
        return HTMLResponse(_page(), headers=headers)


@lru_cache(maxsize=1)
def _page() -> str:
    return (resources.files("serving") / "page" / "index.html").read_text(encoding="utf-8")


def _add_models(app: FastAPI, driver: Driver, name: str) -> None:
    created = int(time.time())

    def card() -> dict[str, Any]:
        lm = driver.toolformer.lm
        tools = [{"key": t.key, "name": n, "description": t.description} for n, t in driver.tools.items()]
        own = {"digest": lm.digest, "context_length": lm.network.context_length, "tools": tools}
        return {"id": name, "object": "model", "created": created, "owned_by": "toolformer", "toolformer": own}

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [card()]}

    @app.get("/v1/models/{model:path}")
    async def model(model: str) -> dict[str, Any]:
        _check_model(model, name)
        return card()


def _check_model(asked: str, name: str) -> None:
    if asked != name:
        message = f"the model {asked!r} does not exist; this server has {name!r}"
        raise RequestError(404, message, param="model", code="model_not_found")


class _Service:
    """The two endpoints."""

    def __init__(self, driver: Driver, name: str) -> None:
        self._driver = driver
        self._name = name

    async def complete(self, body: CompletionRequest, request: Request) -> Response:
        _check_model(body.model, self._name)
        check(body)
        prompts = [p for p in prompts_of(body.prompt) for _ in range(body.n or 1)]
        form = self._form(body, len(prompts), chat=False, echo=tuple(prompts) if body.echo else ())
        return await self._answer(body, form, prompts, request)

    async def chat(self, body: ChatRequest, request: Request) -> Response:
        _check_model(body.model, self._name)
        check(body)
        prompt = chat_prompt(self._driver.toolformer.lm.network.tokenizer, turns_of(body.messages))
        prompts = [prompt.text] * (body.n or 1)
        form = self._form(body, len(prompts), chat=True, leading_space=prompt.leading_space)
        return await self._answer(body, form, prompts, request, prompt.stops)

    def _form(self, body: CompletionRequest | ChatRequest, choices: int, **more: Any) -> Form:
        options = body.stream_options
        return Form(
            model=self._name,
            fingerprint="fp_" + self._driver.toolformer.lm.digest[:12],
            choices=choices,
            per_prompt=body.n or 1,
            show_calls=body.toolformer.show_calls,
            include_usage=bool(options and options.include_usage),
            **more,
        )

    async def _answer(
        self,
        body: CompletionRequest | ChatRequest,
        form: Form,
        prompts: list[str],
        request: Request,
        stops: tuple[str, ...] = (),
    ) -> Response:
        since = time.monotonic()
        if form.choices > self._driver.places:
            raise RequestError(
                400, f"{form.choices} choices, and this server has {self._driver.places} places in all; ask for fewer"
            )
        try:
            of = settings(body, form.choices // form.per_prompt, stops)
            ticket = await self._driver.submit(prompts, of)
        except UnknownNameError as exc:
            raise RequestError(400, str(exc), param="toolformer.tools", code="invalid_value") from exc
        except ToolformerError as exc:
            raise RequestError(400, str(exc), code="invalid_value") from exc
        answer = Answer(self._driver, ticket, Writer(form), since)
        return Stream(answer) if body.stream else await answer.whole(request)
