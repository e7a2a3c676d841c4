"""Prometheus metrics. Labels come from closed sets: text written by a model or a client never becomes a label."""

import re
from collections.abc import Callable, Iterable
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from toolformer_core.decode.records import Generation, ToolCall

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_REASON = re.compile("[a-z_]{1,32}")


class Metrics:
    """The metrics of one server; the arguments count sequences that wait for a row, those that have one, and places."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, waiting: Callable[[], int], running: Callable[[], int], places: Callable[[], int]) -> None:
        self.registry = r = CollectorRegistry()
        self._tools: frozenset[str] = frozenset()
        meaning = "Requests by endpoint and HTTP status (499: the client disconnected before its response)"
        self.requests = Counter("toolformer_requests", meaning, ["endpoint", "status"], registry=r)
        meaning = "Tokens: prompt, text, call (responses included)"
        self._tokens = Counter("toolformer_tokens", meaning, ["kind"], registry=r)
        self._finished = Counter("toolformer_sequences", "Sequences by how they ended", ["finish"], registry=r)
        self._calls = Counter("toolformer_tool_calls", "Calls by tool and outcome", ["tool", "outcome"], registry=r)
        histogram = partial(Histogram, buckets=SECONDS, registry=r)
        self._call_seconds = histogram("toolformer_tool_seconds", "From the arrow to the response", ["tool"])
        meaning = "From a request's arrival to its first text or call"
        self.first_text = histogram("toolformer_first_text_seconds", meaning)
        meaning = "From a request's arrival to its end"
        self.request_seconds = histogram("toolformer_request_seconds", meaning, ["endpoint"])
        self.restarts = Counter("toolformer_engine_restarts", "Restarts of the engine after a failure", registry=r)
        for name, text, value in (
            ("toolformer_queue_length", "Sequences that wait for a row", waiting),
            ("toolformer_running_rows", "Unfinished sequences with a row", running),
            ("toolformer_places_taken", "Occupied places, of rows and queue together", places),
        ):
            Gauge(name, text, registry=r).set_function(value)

    def set_tools(self, names: Iterable[str]) -> None:
        """Use these names as labels; all other names are counted as "unknown"."""
        self._tools = frozenset(names)

    def finished(self, generation: Generation) -> None:
        self._finished.labels(generation.finish).inc()
        self._tokens.labels("prompt").inc(generation.prompt_tokens)
        self._tokens.labels("text").inc(generation.new_tokens)
        self._tokens.labels("call").inc(generation.call_tokens)

    def called(self, call: ToolCall) -> None:
        tool = call.tool if call.tool in self._tools else "unknown"
        outcome = "ok" if call.failure is None else call.failure if _REASON.fullmatch(call.failure) else "other"
        self._calls.labels(tool, outcome).inc()
        self._call_seconds.labels(tool).observe(call.seconds)

    def text(self) -> bytes:
        return generate_latest(self.registry)
