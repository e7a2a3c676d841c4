"""Metrics of the router: how often each tool was chosen, and how long it took. They exist only where the router is on.

Labels come from closed sets: a client's tools are one label, whatever their names.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class RouterMetrics:
    """The router's part of a server's metrics.

    Args:
        registry: the server's.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.routed = Counter(
            "toolformer_routed_requests",
            "Requests that the router decided, by who runs the chosen tool (server, client, or nobody) and its name",
            ["runs_it", "tool"],
            registry=registry,
        )
        self.passed_over = Counter(
            "toolformer_router_passed_over",
            "Tools that ranked high enough, but whose call could not be written or gave nothing",
            ["runs_it"],
            registry=registry,
        )
        self.seconds = Histogram(
            "toolformer_router_seconds",
            "From a request's arrival at the router to its choice",
            registry=registry,
            buckets=_SECONDS,
        )
