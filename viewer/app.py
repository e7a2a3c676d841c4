"""The application: a URL, the page that answers it, and the errors in words.

A page is a function from the data and the query string to a template's values (`pages/`). Pages are written whole; the
script htmx only replaces the part that changed, so everything works without it.
"""

import contextlib
import csv
import getpass
import io
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any
from urllib.parse import parse_qsl, quote, unquote

from anyio import to_thread
from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic_core import to_json, to_jsonable_python
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from serving.origins import OwnOriginOnly
from toolformer_core.errors import UsageError
from viewer.data import ViewedData
from viewer.materialising import Materialiser
from viewer.pages import calls, compare, document, documents, judge, models, overview, sql, thresholds
from viewer.query import NotThereError, Query, WrongQueryError
from viewer.rendering import render
from viewer.security import guard, is_from_elsewhere
from warehouse.errors import SnapshotError, WarehouseError

_THREADS = 4  # requests answered at a time; DuckDB uses all cores for each
_USER, _MAX_NAME, _YEAR_S = "toolformer_user", 30, 365 * 86_400  # the cookie with the name of who judges
_ADVICE = "TOOLFORMER_ALLOWED_HOSTS and TOOLFORMER_ALLOWED_ORIGINS allow more"

_STATUS = {WrongQueryError: 400, NotThereError: 404, UsageError: 400, SnapshotError: 503, WarehouseError: 500}

Page = Callable[[ViewedData, Query], Mapping[str, Any]]
PAGES: dict[str, tuple[str, Page]] = {
    "/": ("overview.html", overview.page),
    "/documents": ("documents.html", documents.page),
    "/calls": ("calls.html", calls.page),
    "/thresholds": ("thresholds.html", thresholds.page),
    "/compare": ("compare.html", compare.page),
    "/models": ("models.html", models.page),
}


def make_app(data: str, *, hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> FastAPI:
    """Return the application for a data folder; it answers further hosts, and pages of further origins."""
    viewed = ViewedData(data)
    materialiser = Materialiser(viewed.store)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        to_thread.current_default_thread_limiter().total_tokens = _THREADS
        yield

    app = FastAPI(title="Toolformer viewer", docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    app.middleware("http")(guard)
    app.add_middleware(OwnOriginOnly, hosts=hosts, origins=origins, advice=_ADVICE)
    app.mount("/static", StaticFiles(packages=[("viewer", "static")]), name="static")
    _add_error_handlers(app)

    @app.get("/health")
    def health() -> dict[str, bool]:
        return {"live": True}

    def add(path: str, template: str, page: Page) -> None:
        @app.get(path)
        def show(request: Request) -> Response:
            return _shown(template, path, viewed, page, request)

    for path, (template, page) in PAGES.items():
        add(path, template, page)

    @app.get("/documents/{doc_id:path}")
    def show_document(doc_id: str, request: Request) -> Response:
        return _shown("document.html", "/documents", viewed, lambda v, q: document.page(v, q, doc_id), request)

    @app.get("/sql")
    def show_sql(request: Request) -> Response:
        query = Query(request.query_params.multi_items())
        answer = None if is_from_elsewhere(request.headers) else sql.answer_to(viewed, query)
        return _shown("sql.html", "/sql", viewed, lambda v, q: sql.page(v, q, answer), request)

    @app.get("/judge")
    def show_judge(request: Request) -> Response:
        return _shown("judge.html", "/judge", viewed, lambda v, q: judge.page(v, q, _user(request)), request)

    @app.post("/judge/name")
    async def name_user(request: Request) -> Response:
        form = await _form(request)
        response = RedirectResponse(_back(form), 303)
        name = quote(form.text("user")[:_MAX_NAME])
        response.set_cookie(_USER, name, max_age=_YEAR_S, httponly=True, samesite="strict")
        return response

    @app.post("/ratings")
    async def add_rating(request: Request) -> Response:
        form = await _form(request)
        await to_thread.run_sync(lambda: judge.rate(viewed, form, _user(request)))
        return RedirectResponse(_back(form), 303)

    @app.get("/versions/new")
    def show_materialisation() -> Response:
        return HTMLResponse(render("materialisation.html", path="/thresholds", last=materialiser.last))

    @app.post("/versions")
    async def make_version(request: Request) -> Response:
        form = await _form(request)
        await to_thread.run_sync(lambda: materialiser.start(thresholds.requested(viewed, form)[0], form.text("name")))
        return RedirectResponse("/versions/new", 303)

    return app


async def _form(request: Request) -> Query:
    return Query(parse_qsl((await request.body()).decode(errors="replace")))


def _back(form: Query) -> str:
    """Return the page that a form was on: a path of this server, and no other address."""
    back = form.text("back")
    return back if back.startswith("/") and not back.startswith(("//", "/\\")) else "/judge"


def _user(request: Request) -> str:
    if name := unquote(request.cookies.get(_USER, "")).strip():
        return name[:_MAX_NAME]
    with contextlib.suppress(OSError, KeyError):  # an account without a name
        return getpass.getuser()
    return "me"


def _shown(template: str, path: str, viewed: ViewedData, page: Page, request: Request) -> Response:
    query = Query(request.query_params.multi_items())
    with viewed.opened():
        values = page(viewed, query)
        if query.choice("format", ("csv", "json")):
            return _exported(values.get("tables", {}), query)
        speaks_of = values.get("version") or (viewed.build() if viewed.snapshot.is_file() else None)
        shared = {"path": path, "query": query, "data": viewed.data, "speaks_of": speaks_of}
        return HTMLResponse(render(template, **{**shared, **values}))


def _exported(tables: Mapping[str, Sequence[Any]], query: Query) -> Response:
    """Return tables, whose rows are mappings or dataclasses, as `format` says; of CSV `table`, else the first."""
    name = query.choice("table", tables) or next(iter(tables), "")
    if not name:
        raise NotThereError("this page shows no table")
    if query.text("format") == "json":
        records = {name: [_record(row) for row in rows] for name, rows in tables.items()}
        return Response(to_json(records), media_type="application/json")  # what is no finite number is null
    rows: list[dict[str, Any]] = to_jsonable_python([_record(row) for row in tables[name]])
    out = io.StringIO()
    writer = csv.DictWriter(out, list(dict.fromkeys(column for row in rows for column in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows({column: _cell(value) for column, value in row.items()} for row in rows)
    headers = {"content-disposition": f'attachment; filename="{name}.csv"'}
    return Response(out.getvalue(), media_type="text/csv", headers=headers)


def _record(row: Any) -> dict[str, Any]:
    if isinstance(row, Mapping):
        return dict(row)
    record: dict[str, Any] = {}
    for field in fields(row):
        value = getattr(row, field.name)
        record |= value._asdict() if hasattr(value, "_asdict") else {field.name: value}
    return record


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


def _add_error_handlers(app: FastAPI) -> None:
    async def answer(request: Request, exc: Exception) -> Response:
        status, message = 500, "the viewer failed; its log says why"
        if isinstance(exc, HTTPException):
            status, message = exc.status_code, f"{exc.detail}: {request.method} {request.url.path}"
        elif known := [status for kind, status in _STATUS.items() if isinstance(exc, kind)]:
            status, message = known[0], str(exc)
        return HTMLResponse(render("problem.html", path="", message=message, status=status), status)

    for error in (*_STATUS, HTTPException, Exception):
        app.add_exception_handler(error, answer)
