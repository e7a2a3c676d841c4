"""What a request can be refused for, in OpenAI's error shape. It knows no framework: others make responses of it."""

from __future__ import annotations

from typing import Any

import orjson

from toolformer_core.records import storable, unencodable

__all__ = [
    "CLIENT_GONE",
    "RequestError",
    "busy",
    "check_text",
    "closing_answer",
    "error_body",
    "unavailable",
    "unsupported",
]

CLIENT_GONE = 499  # the status counted where the client left before its answer; nginx's, HTTP has none


class RequestError(Exception):
    """A request that is not answered with text.

    Args:
        status: of HTTP.
        message: what is wrong and how to mend it.
        kind: `type` of OpenAI's error.
        param: the field it is about.
        code: a short stable reason.
        retry_after_s: seconds after which to try again, for the header.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param
        self.code = code
        self.retry_after_s = retry_after_s

    @property
    def body(self) -> dict[str, Any]:
        return error_body(self.message, self.kind, self.param, self.code)

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}


def error_body(message: str, kind: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """Return an error as OpenAI's API writes it; of what a client sent, lone surrogates are escaped."""
    named = None if param is None else storable(param)
    return {"error": {"message": storable(message), "type": kind, "param": named, "code": code}}


def closing_answer(error: RequestError) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Return the headers and the body of an answer behind which the connection is closed."""
    content = orjson.dumps(error.body)
    headers = {
        "content-type": "application/json",
        "content-length": str(len(content)),
        "connection": "close",
        **error.headers,
    }
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    return [(name.lower().encode(), value.encode()) for name, value in headers.items()], content


def unsupported(param: str, message: str) -> RequestError:
    """What this server cannot do."""
    return RequestError(400, message, param=param, code="unsupported_parameter")


def check_text(text: str, param: str) -> None:
    """Refuse a text that no tokenizer can read.

    Raises:
        RequestError: 400, naming the field: it holds a lone surrogate.
    """
    if wrong := unencodable(text):
        raise RequestError(
            400, f"{param} is not UTF-8 text ({wrong}); remove that character", param=param, code="invalid_value"
        )


def busy(places: int, retry_after_s: int) -> RequestError:
    """All places are taken."""
    return RequestError(
        429,
        f"all {places} places of this server (rows and queue) are taken; try again in {retry_after_s} s",
        kind="rate_limit_error",
        code="queue_full",
        retry_after_s=retry_after_s,
    )


def unavailable(message: str, code: str) -> RequestError:
    """The model is not there: still loading, failed, or about to go."""
    return RequestError(503, message, kind="server_error", code=code, retry_after_s=2)
