"""Opens a Kubernetes cluster with the official client; the only module that imports it, and only when it is called.

It knows how to reach a cluster and how to read its errors, and nothing of jobs.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from toolformer_core.errors import UsageError


@dataclass(frozen=True, slots=True)
class Cluster:
    """The parts of the official client that are used; typed `Any`, as the client has no type annotations."""

    core: Any
    custom: Any
    to_dict: Any  # turns the client's object into the plain values that the API sent
    api_error: Any  # the exception for an answer that is not a success
    connection_errors: tuple[Any, ...]  # the exceptions when the cluster cannot be reached


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
    except config.ConfigException as exc:
        try:
            if kubeconfig or context:
                raise exc
            config.load_incluster_config(client_configuration=settings)
        except config.ConfigException:
            raise UsageError(f"no cluster to launch on: {exc} Give a kubeconfig, or set KUBECONFIG") from exc
    settings.retries = 2
    with client.ApiClient(settings) as connection:
        yield Cluster(
            core=client.CoreV1Api(connection),
            custom=client.CustomObjectsApi(connection),
            to_dict=connection.sanitize_for_serialization,
            api_error=client.ApiException,
            connection_errors=(urllib3.HTTPError, OSError),
        )


def error_message(exc: Any) -> str:
    """Return an API error's status, reason and message, in one line."""
    message = ""
    with suppress(ValueError, TypeError, AttributeError):
        message = json.loads(exc.body).get("message", "")
    status = f"{getattr(exc, 'status', '')} {getattr(exc, 'reason', '') or ''}".strip() or type(exc).__name__
    return " ".join(f"{status}: {message}".split()) if message else status
