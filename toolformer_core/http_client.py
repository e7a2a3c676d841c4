"""HTTP clients: one for models' servers and our own, one for a tool's server, and bounded reading of a response."""

from __future__ import annotations

from functools import cache, lru_cache
from http.cookiejar import DefaultCookiePolicy
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx2

HEADER_NAME = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"


@cache
def direct_client() -> httpx2.Client:
    """Return a client that opens a connection for each request, past the proxies; threads may share it."""
    import httpx2

    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
    return httpx2.Client(trust_env=False, follow_redirects=True, limits=limits)


@lru_cache(maxsize=16)  # the certificates are read once for each
def kept_client(at_once: int, timeout_s: float, *, proxies: bool = False) -> httpx2.Client:
    """Return a client that keeps its connections for the next requests and follows no redirect; threads may share it.

    It keeps no cookies: what one tool's server sets, another tool would send. It has `at_once` connections at a time;
    connecting, and each wait for data, may take `timeout_s` seconds. `proxies`: those that the environment names.
    """
    import httpx2

    limits = httpx2.Limits(max_connections=at_once, keepalive_expiry=30.0)
    client = httpx2.Client(follow_redirects=False, trust_env=proxies, timeout=timeout_s, limits=limits)
    client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    return client


def read_at_most(response: httpx2.Response, limit: int) -> bytes | None:
    data = bytearray()
    for part in response.iter_bytes():
        data += part
        if len(data) > limit:
            return None
    return bytes(data)
