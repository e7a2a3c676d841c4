"""The HTTP client for models' servers and for our own: each request by a connection of its own, past the proxies.

httpx2 is imported on use.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx2


@cache
def direct_client() -> httpx2.Client:
    """Return the client of this process, which threads may share; a redirect to another host takes no key along."""
    import httpx2

    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
    return httpx2.Client(trust_env=False, follow_redirects=True, limits=limits)
