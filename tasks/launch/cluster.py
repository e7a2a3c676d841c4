"""The official Kubernetes client, found and opened: the one place that imports it, and only when it is called.

It knows how a cluster is reached and how it says no, and nothing of jobs.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from toolformer_core.errors import UsageError

__all__ = ["Cluster", "connect", "why"]


@dataclass(frozen=True, slots=True)
class Cluster:
    """The parts of the official client that are used; it has no types of its own."""

    batch: Any
    core: Any
    custom: Any
    plain: Any  # turns an object into what the API sent
    refused: Any  # the client's error for an answer that is no success
    unreachable: tuple[Any, ...]


@contextmanager
def connect(kubeconfig: str, context: str) -> Iterator[Cluster]:
    """Open a cluster: a named kubeconfig, else the client's usual places, else the account of the pod we run in.

    Raises:
        UsageError: the client is not installed, or no cluster is configured.
    """
    try:
        client = importlib.import_module("kubernetes.client")
        config = importlib.import_module("kubernetes.config")
        urllib3 = importlib.import_module("urllib3.exceptions")
    except ModuleNotFoundError as exc:
        raise UsageError(
            "the Kubernetes client is not installed: pip install 'toolformer-platform[kubernetes]'"
        ) from exc
    settings = client.Configuration()
    try:
        config.load_kube_config(kubeconfig or None, context=context or None, client_configuration=settings)
    except config.ConfigException as outside:
        try:
            if kubeconfig or context:
                raise outside
            config.load_incluster_config(client_configuration=settings)
        except config.ConfigException:
            raise UsageError(f"no cluster to launch on: {outside} Give a kubeconfig, or set KUBECONFIG") from outside
    settings.retries = 2
    with client.ApiClient(settings) as connection:
        yield Cluster(
            batch=client.BatchV1Api(connection),
            core=client.CoreV1Api(connection),
            custom=client.CustomObjectsApi(connection),
            plain=connection.sanitize_for_serialization,
            refused=client.ApiException,
            unreachable=(urllib3.HTTPError, OSError),
        )


def why(exc: Any) -> str:
    """Return an API error's own message, in one line."""
    message = ""
    with suppress(ValueError, TypeError, AttributeError):
        message = json.loads(exc.body).get("message", "")
    told = f"{getattr(exc, 'status', '')} {getattr(exc, 'reason', '') or ''}".strip() or type(exc).__name__
    return " ".join(f"{told}: {message}".split()) if message else told
