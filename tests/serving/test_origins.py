"""Whose browser pages may ask a server of this machine, and under which names; a real server, asked by real clients."""

import asyncio
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from serving.origins import OwnOriginOnly, origin_of, refusal
from tests.support.served_app import served


def scope(host: str | None = None, *origins: str, scheme: str = "http") -> dict[str, Any]:
    headers = [(b"Host", host.encode("latin-1"))] if host is not None else []
    headers += [(b"Origin", origin.encode("latin-1")) for origin in origins]
    return {"type": "http", "scheme": scheme, "headers": headers}


def test_the_names_of_loopback_are_answered_and_no_others() -> None:
    for host in ("localhost", "LOCALHOST:4200", "127.0.0.1", "127.0.0.1:4200", "[::1]", "[::1]:4200"):
        assert refusal(scope(host)) is None
    evil = ("evil.example", "evil.example:4200", "localhost.evil.example", "127.0.0.1.evil.example")
    for host in (*evil, "10.0.0.5", "::1", "0.0.0.0", ""):
        assert refusal(scope(host)) == f"this server answers to localhost, 127.0.0.1, not to {host!r}"
    assert refusal(scope()) is None  # some programs name no host


def test_a_name_or_an_origin_that_is_allowed_is_let_in() -> None:
    assert refusal(scope("prefect:4200"), hosts=["prefect"]) is None
    assert refusal(scope("prefect.evil.example"), hosts=["prefect"]) is not None
    origins = ["https://prefect.example"]
    assert refusal(scope("127.0.0.1:4200", "https://prefect.example"), origins=origins) is None  # by way of a proxy
    assert refusal(scope("prefect.example"), origins=origins) is None  # a proxy that hands the name on
    assert refusal(scope("127.0.0.1:4200", "http://prefect.example"), origins=origins) is not None
    assert refusal(scope("127.0.0.1:4200", "https://prefect.example:8443"), origins=origins) is not None


@pytest.mark.parametrize(
    ("host", "origin", "scheme"),
    [
        ("127.0.0.1:4200", "http://127.0.0.1:4200", "http"),
        ("127.0.0.1:4200", "http://localhost:4200", "http"),  # the page was opened by another name of loopback
        ("127.0.0.1:4200", "HTTP://[::1]:4200", "ws"),  # a websocket's Origin is its page's
        ("localhost", "http://localhost:80", "http"),  # 80 is HTTP's own
        ("localhost:443", "https://localhost", "https"),
    ],
)
def test_a_page_of_the_servers_own_is_let_in(host: str, origin: str, scheme: str) -> None:
    assert refusal(scope(host, origin, scheme=scheme)) is None


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "http://127.0.0.1:9000",  # another server of this machine
        "http://127.0.0.1",
        "https://127.0.0.1:4200",
        "http://127.0.0.1:4200.evil.example",
        "http://127.0.0.1:4200@evil.example",
        "file://",
        "null",
        "",
    ],
)
def test_a_page_of_another_origin_is_refused(origin: str) -> None:
    told = refusal(scope("127.0.0.1:4200", origin))
    assert told == f"this server takes requests from its own pages, not from those of {origin!r}"
    own = "http://127.0.0.1:4200"
    assert refusal(scope("127.0.0.1:4200", own, origin)) is not None  # one good header does not excuse another
    assert refusal(scope(None, origin)) is not None


@given(st.text(st.characters(max_codepoint=255), max_size=300))
def test_a_reason_is_one_printable_line_whatever_was_sent(text: str) -> None:
    for told in (refusal(scope(text)), refusal(scope("localhost", text))):
        assert told is None or (told.isprintable() and len(told) < 600)


@given(
    st.sampled_from(["http", "https"]), st.from_regex(r"[a-z][a-z0-9.-]{0,30}", fullmatch=True), st.integers(1, 65535)
)
def test_a_server_is_asked_by_its_own_pages_alone(scheme: str, name: str, port: int) -> None:
    url = f"{scheme}://{name}:{port}"
    own = origin_of(url)
    assert own is not None
    assert origin_of(own) == own
    host = f"{name}:{port}"
    assert refusal(scope(host, url, scheme=scheme), hosts=[name]) is None
    assert refusal(scope(host, f"{scheme}://{name}:{port % 65535 + 1}", scheme=scheme), hosts=[name]) is not None


async def application(scope: Any, receive: Any, send: Any) -> None:
    """It says `in` to whoever comes in."""
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"in"})
    elif scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": "in"})
        await send({"type": "websocket.close"})


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # uvicorn's, of websockets
def test_what_is_refused_does_not_reach_the_application() -> None:
    with served(OwnOriginOnly(application, advice="ask somebody else"), ws="websockets-sansio") as at:
        for method in ("GET", "POST", "OPTIONS", "DELETE", "PATCH"):
            assert httpx.request(method, f"http://{at}/api").text == "in"
            for headers in ({"host": "evil.example"}, {"origin": "http://evil.example"}, {"origin": "null"}):
                refused = httpx.request(method, f"http://{at}/api", headers=headers)
                assert (refused.status_code, refused.text.count("\n")) == (403, 1)
                assert refused.text.endswith("; ask somebody else\n")
        for origin in (None, f"http://{at}"):
            with connect(f"ws://{at}/events", origin=origin, proxy=None) as channel:  # type: ignore[arg-type]
                assert channel.recv() == "in"
        with pytest.raises(InvalidStatus) as refused_socket:
            connect(f"ws://{at}/events", origin="http://evil.example", proxy=None)  # type: ignore[arg-type]
        answer = refused_socket.value.response
        assert (answer.status_code, b"not from those of 'http://evil.example'" in (answer.body or b"")) == (403, True)


def test_a_server_that_cannot_tell_a_websocket_why_closes_it() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def ask() -> None:
        door = OwnOriginOnly(application)
        await door({**scope("evil.example"), "type": "websocket"}, None, send)  # type: ignore[arg-type]

    asyncio.run(ask())
    assert sent == [{"type": "websocket.close", "code": 1008}]
