"""Sockets that servers listen on: an address is bound before anything is loaded, so that a mistake is told at once.

This module knows no server and no model.
"""

from __future__ import annotations

import ipaddress
import socket

from toolformer_core.errors import UsageError


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listen(host: str, port: int) -> socket.socket:
    """Bind an address and listen there.

    Args:
        host: the address.
        port: 0 takes a free one.

    Raises:
        UsageError: the address cannot be bound.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
        except OSError:
            listener.close()
            raise
    except (OSError, OverflowError) as exc:
        raise UsageError(f"cannot listen on {host} port {port}: {exc}; choose another --host or --port") from exc
    listener.listen(2048)
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the URL of an HTTP server on a socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
