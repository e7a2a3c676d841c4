"""The HTTP application: OpenAI's endpoints, health, metrics, and the page."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from starlette.exceptions import HTTPException

from serving.chat import chat_prompt, turn_of
from serving.engine_thread import EngineThread, PendingRequest
from serving.errors import CLIENT_GONE, RequestError, error_body, invalid
from serving.middleware import RequestMiddleware
from serving.openai_format import ResponseForm, ResponseWriter
from serving.responses import ActiveResponse, Planned, unless_disconnected
from serving.routing.chat import plan_chat
from serving.routing.router import Router
from serving.routing.schemas import RoutedChatRequest
from serving.schemas import ChatRequest, CompletionRequest, check_supported, decode_settings, prompts_of
from serving.settings import ServerSettings
from toolformer_core.errors import ToolformerError, UnknownNameError

_PAGE = Path(__file__).with_name("page") / "index.html"
_CSP = (
    "default-src 'none'; connect-src 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def make_app(engine_thread: EngineThread, settings: ServerSettings) -> FastAPI:
    """Return the application; it starts the engine's thread when it starts, and closes it when it ends."""
    router = None if settings.router is None else Router(settings.router, engine_thread)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        engine_thread.start()
        if router is not None:
            router.start()
        yield
        if router is not None:
            await router.close()
        await engine_thread.close()

    # FastAPI's documentation pages would load scripts from other sites, so only /openapi.json is served.
    app = FastAPI(title="Toolformer", docs_url=None, redoc_url=None, lifespan=lifespan)
    app.add_middleware(RequestMiddleware, metrics=engine_thread.metrics, settings=settings)
    _add_error_handlers(app)
    _add_probes(app, engine_thread, router)
    _add_models(app, engine_thread, settings.name, router)
    service = _Service(engine_thread, settings, router)
    app.post("/v1/completions")(service.completions)
    app.post("/v1/chat/completions")(service.chat if router is None else service.routed_chat)
    return app


def _add_error_handlers(app: FastAPI) -> None:
    @app.exception_handler(RequestError)
    async def request_error(request: Request, exc: RequestError) -> Response:
        return JSONResponse(exc.body, exc.status, exc.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, exc: RequestValidationError) -> Response:
        return await request_error(request, _validation_error(exc, request.headers.get("content-type", "")))

    @app.exception_handler(HTTPException)
    async def http(request: Request, exc: HTTPException) -> Response:
        message = f"{exc.detail}: {request.method} {request.url.path}"
        return JSONResponse(error_body(message, "invalid_request_error"), exc.status_code, exc.headers)

    @app.exception_handler(Exception)
    async def server_error(request: Request, exc: Exception) -> Response:
        return JSONResponse(error_body("the server failed; its log says why", "server_error"), 500)


def _validation_error(exc: RequestValidationError, content_type: str) -> RequestError:
    first = exc.errors()[0]
    if first["loc"] == ("body",) and "json" not in content_type.lower():
        given = f", not {content_type}" if content_type else ""
        message = f"send the body as JSON, with the header Content-Type: application/json{given}"
        return RequestError(415, message, code="unsupported_media_type")
    path = [part for part in first["loc"] if part != "body"]
    param = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path[:3]).lstrip(".")
    if first["type"] == "json_invalid":
        return RequestError(400, f"the body is not valid JSON: {first.get('ctx', {}).get('error', '')}")
    if first["type"] == "extra_forbidden":
        message = f"unrecognized request argument supplied: {param}"
        return RequestError(400, message, param=param, code="unknown_parameter")
    return RequestError(400, f"{param or 'the body'}: {first['msg']}", param=param or None, code="invalid_value")


def _add_probes(app: FastAPI, engine_thread: EngineThread, router: Router | None) -> None:
    def status() -> str:
        """Return the state of the model, or the router's small one if only that is not ready."""
        return engine_thread.state if router is None or engine_thread.state != "ready" else router.state

    @app.get("/health")
    async def health() -> dict[str, Any]:
        return {"live": True, "ready": status() == "ready", "status": status()}

    @app.get("/health/live")
    async def live() -> dict[str, Any]:
        return {"live": True}

    @app.get("/health/ready")
    async def ready() -> Response:
        is_ready = status() == "ready"
        return JSONResponse({"ready": is_ready, "status": status()}, 200 if is_ready else 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(engine_thread.metrics.text(), headers={"content-type": engine_thread.metrics.content_type})

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        safely = {"x-content-type-options": "nosniff", "referrer-policy": "no-referrer", "cache-control": "no-cache"}
        return FileResponse(_PAGE, headers={"content-security-policy": _CSP, **safely})


def _add_models(app: FastAPI, engine_thread: EngineThread, name: str, router: Router | None) -> None:
    created = int(time.time())

    def card() -> dict[str, Any]:
        lm = engine_thread.toolformer.lm
        tools = [{"key": t.key, "name": n, "description": t.description} for n, t in engine_thread.tools.items()]
        details = {"digest": lm.digest, "context_length": lm.hf_model.context_length, "tools": tools}
        if router is not None:
            details["router"] = router.described
        return {"id": name, "object": "model", "created": created, "owned_by": "toolformer", "toolformer": details}

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [card()]}

    @app.get("/v1/models/{model:path}")
    async def model(model: str) -> dict[str, Any]:
        _check_model(model, name)
        return card()


def _check_model(requested: str, name: str) -> None:
    if requested != name:
        message = f"the model {requested!r} does not exist; this server has {name!r}"
        raise RequestError(404, message, param="model", code="model_not_found")


class _Service:
    def __init__(self, engine_thread: EngineThread, settings: ServerSettings, router: Router | None) -> None:
        self._engine_thread = engine_thread
        self._settings = settings
        self._router = router

    async def completions(self, body: CompletionRequest, request: Request) -> Response:
        self._check(body)
        prompts = [p for p in prompts_of(body.prompt) for _ in range(body.n or 1)]
        form = self._form(body, len(prompts), chat=False, echo=tuple(prompts) if body.echo else ())
        return await self._respond(body, request, self._plan(body, form, prompts))

    async def chat(self, body: ChatRequest, request: Request) -> Response:
        self._check(body)
        turns = [turn_of(message, f"messages[{i}]") for i, message in enumerate(body.messages)]
        prompt = chat_prompt(self._engine_thread.toolformer.lm.hf_model.tokenizer, turns)
        form = self._form(body, body.n or 1, chat=True, leading_space=prompt.leading_space)
        return await self._respond(body, request, self._plan(body, form, [prompt.text] * form.choices, prompt.stops))

    async def routed_chat(self, body: RoutedChatRequest, request: Request) -> Response:
        assert self._router is not None
        self._check(body)
        form = self._form(body, body.n or 1, chat=True)
        return await self._respond(body, request, plan_chat(self._router, self._engine_thread, body, form))

    def _check(self, body: CompletionRequest | ChatRequest) -> None:
        _check_model(body.model, self._settings.name)
        check_supported(body)

    def _form(self, body: CompletionRequest | ChatRequest, choices: int, **more: Any) -> ResponseForm:
        if choices > (places := self._engine_thread.places):
            message = f"the request has {choices} choices, but this server has only {places} places (rows and queue)"
            raise RequestError(400, f"{message}; request fewer")
        options = body.stream_options
        return ResponseForm(
            model=self._settings.name,
            fingerprint="fp_" + self._engine_thread.toolformer.lm.digest[:12],
            choices=choices,
            per_prompt=body.n or 1,
            show_calls=body.toolformer.show_calls,
            include_usage=bool(options and options.include_usage),
            **more,
        )

    async def _plan(
        self, body: CompletionRequest | ChatRequest, form: ResponseForm, prompts: list[str], stops: tuple[str, ...] = ()
    ) -> Planned:
        settings = decode_settings(body, form.choices // form.per_prompt, stops, self._settings.trigger)
        return Planned(ResponseWriter(form), prompts, settings)

    async def _respond(
        self, body: CompletionRequest | ChatRequest, request: Request, planning: Coroutine[Any, Any, Planned]
    ) -> Response:
        since, work = time.monotonic(), asyncio.ensure_future(planning)
        try:
            if not await unless_disconnected(work, request.receive):
                return Response(status_code=CLIENT_GONE)
            planned, pending = work.result(), PendingRequest(0)
            if planned.prompts:
                pending = await self._engine_thread.submit(planned.prompts, planned.settings)
        except UnknownNameError as exc:
            raise invalid("toolformer.tools" if exc.kind == "tool" else "toolformer.trigger", str(exc)) from exc
        except ToolformerError as exc:
            raise RequestError(400, str(exc), code="invalid_value") from exc
        active = ActiveResponse(self._engine_thread, pending, planned.writer, since)
        return active if body.stream else await active.complete(request)
