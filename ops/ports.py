"""Ports of this machine: which are free, which a command takes, and who listens on one that is not free."""

import contextlib
import socket

import psutil

from toolformer_core.errors import ToolformerError, UsageError

LOOPBACK = "127.0.0.1"
_COMMAND_CHARS = 120


class PortTakenError(ToolformerError):
    """Another process listens on the requested port; the message says who."""


def choose_ports(requested: dict[str, int]) -> dict[str, int]:
    """Return the port to use for each option: the requested one, or a free one for 0."""
    by_port: dict[int, list[str]] = {}
    for option, port in requested.items():
        by_port.setdefault(port, []).append(option)
    for port, options in by_port.items():
        if port and len(options) > 1:
            raise UsageError(f"{' and '.join(options[:2])} are both {port}: choose two different ports")
    for option, port in requested.items():
        if port and (holder := port_holder(port)):
            raise PortTakenError(f"port {port} is taken by {holder}: stop it, or choose another port with {option}")
    return {option: port or free_port() for option, port in requested.items()}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def port_holder(port: int) -> str:
    """Return who listens on a port of this machine, as a phrase for messages; "" if the port is free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
            return ""
        except PermissionError as exc:
            raise UsageError(f"port {port} is reserved for the system: choose one above 1023") from exc
        except OSError:
            pass
    with contextlib.suppress(psutil.Error):
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr[1:] == (port,) and connection.pid:
                command = " ".join(psutil.Process(connection.pid).cmdline())
                return f"process {connection.pid} ({command[:_COMMAND_CHARS]})"
    return "a process of another user"
