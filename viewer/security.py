"""Middleware: what a browser may do with the pages, and what may be sent to them.

Refused are another host or origin (403, see `serving.origins`), what a page of another origin loads or sends by
`Sec-Fetch-Site`, though it may link here (403), and a body larger than a form (413).
"""

from collections.abc import Mapping

from starlette.middleware.base import RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

MAX_BODY = 1 << 16  # bytes

HEADERS = {
    "content-security-policy": "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with none at all, a browser sends forms with the origin `null`
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


async def guard(request: Request, call_next: RequestResponseEndpoint) -> Response:
    """Pass a request on, unless it is refused; add the headers to the response."""
    response = _refusal(request) or await call_next(request)
    response.headers.update(HEADERS)
    return response


def is_from_elsewhere(headers: Mapping[str, str]) -> bool:
    """Return whether a page of another origin made a browser send a request."""
    return headers.get("sec-fetch-site", "none") not in ("none", "same-origin")


def _refusal(request: Request) -> PlainTextResponse | None:
    headers = request.headers
    followed = request.method == "GET" and headers.get("sec-fetch-mode") == "navigate"
    framed = headers.get("sec-fetch-dest", "document") != "document"
    if is_from_elsewhere(headers) and (not followed or framed):
        return PlainTextResponse("this server takes requests from its own pages; others may only link to it\n", 403)
    if request.method not in ("GET", "HEAD"):
        size = headers.get("content-length", "")
        if not size.isdigit() or int(size) > MAX_BODY:
            return PlainTextResponse(f"send a form of at most {MAX_BODY:,} bytes\n", 413)
    return None
