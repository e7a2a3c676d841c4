"""Reasons for refusing a request, in OpenAI's error format."""

from typing import Any

from toolformer_core.records import storable, unencodable

CLIENT_GONE = 499  # counted if the client disconnects before its response; HTTP has no status for this, nginx uses 499


class RequestError(Exception):
    """An answer: `kind` is the `type` of OpenAI's error, `param` the wrong field, `code` a short stable reason."""

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
        self.param = param
        self.code = code
        self.body = error_body(message, kind, param, code)
        self.headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}


def error_body(message: str, kind: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """Return an error in OpenAI's format; lone surrogates in what a client sent are escaped."""
    safe_param = None if param is None else storable(param)
    return {"error": {"message": storable(message), "type": kind, "param": safe_param, "code": code}}


def unsupported(param: str, message: str) -> RequestError:
    return RequestError(400, message, param=param, code="unsupported_parameter")


def invalid(param: str, message: str) -> RequestError:
    return RequestError(400, message, param=param, code="invalid_value")


def check_text(text: str, param: str) -> None:
    """Refuse (400) a text with a lone surrogate, which no tokenizer can read."""
    if flaw := unencodable(text):
        raise invalid(param, f"{param} is not UTF-8 text ({flaw}); remove that character")


def unavailable(message: str, code: str) -> RequestError:
    """Return the error for a model that is loading, has failed, or is shutting down."""
    return RequestError(503, message, kind="server_error", code=code, retry_after_s=2)
