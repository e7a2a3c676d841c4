"""A build's parameters, in plain values that travel to workers, and the resources those name, loaded once a process."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from tasks.settings import model_credentials, qa_credentials, seconds, shared_catalog
from tasks.shards.model_thread import named_model, resident_model
from tasks.specs.decontamination import Decontamination
from tasks.specs.rating_filter import RatingFilter
from toolformer_core import config
from toolformer_core.annotate.call_filter import SharedWords
from toolformer_core.errors import ToolError, ToolformerError
from toolformer_core.lm.base import LanguageModel
from toolformer_core.records import Prompt
from toolformer_core.tools.base import Tool
from toolformer_core.tools.build import ToolSettings
from toolformer_core.tools.declaration import DocumentFilter
from toolformer_core.tools.execution.pool import AnnotationPool
from warehouse.files.base import Files
from warehouse.files.overlay import OverlayFiles
from warehouse.leases import Leases
from warehouse.store import Store

if TYPE_CHECKING:
    from toolformer_core.lm.remote.identity import RemoteModel


class NotInOverlayError(ToolformerError):
    """Work that is only tried out came to a model or a tool, which it may not call."""


@dataclass(frozen=True, slots=True)
class BuildSpec:
    """One build, resolved: names looked up, digests taken, configs complete."""

    run_id: str
    data: str  # folder or URL
    corpus: str
    corpus_digest: str
    model: str
    model_digest: str
    tools: tuple[str, ...]  # keys
    tool_names: Mapping[str, str]  # key -> name in calls
    tool_digests: Mapping[str, str]
    prompts: Mapping[str, Prompt]  # of each tool
    tool_settings: ToolSettings
    ingest: config.IngestConfig
    prefilter: config.PrefilterConfig
    sample: Mapping[str, config.SampleConfig]
    execute: config.ExecuteConfig
    score: config.ScoreConfig
    assemble: config.AssembleConfig
    decontamination: Decontamination | None = None  # benchmarks that the corpus must not hold; None: none
    deduplicate: bool = False  # near-duplicates are dropped
    mask_pii: bool = False  # e-mail addresses and telephone numbers are masked in what stages read of documents
    # By document, of those that share words with a benchmark where that costs calls alone; known once they are read.
    shared_words: Mapping[str, Sequence[SharedWords]] = field(default_factory=dict)
    max_same_call: int | None = None  # documents that may keep a call of one tool, input and response; None: all
    chains: config.ChainConfig = field(default_factory=config.ChainConfig)
    chain_prompts: Mapping[str, Prompt] = field(default_factory=dict)  # of each tool, if calls are chained
    candidates: tuple[str, str] | None = None  # file of calls in place of sampled ones, and its digest; None: none
    filters: Mapping[str, DocumentFilter] = field(default_factory=dict)  # of tools that are none of the paper's
    rates: Mapping[str, float] = field(default_factory=dict)  # tool -> rate of false discoveries to find tau_f for
    stop_when_full: bool = False  # once a tool has `assemble.max_examples`; see `tasks.specs.example_limit`
    offline: bool = False  # tools are not called: only what they answered before is used
    retry_failures_before: str = ""  # ISO UTC: ask again what failed for a passing reason in earlier commits; "": none
    weights_digest: str = ""  # of the model's files but its tokenizer's; "": not distinguished
    tokenizer_digest: str = ""  # of its tokenizer's files
    rating_filter: RatingFilter | None = None  # which calls take part by what people say of them; None: all
    remote: RemoteModel | None = None  # the model, if it lives behind a server alone
    overlay: Files | None = None  # stands before the data where work is only tried out: no model, no tool is called

    def store(self) -> Store:
        return Store(self.data, files=self.overlay)

    def model_digests(self) -> dict[str, str]:
        """Return the parts of a fingerprint that say which model answers."""
        return {"model": self.weights_digest or self.model_digest, "tokenizer": self.tokenizer_digest}


_LOADING = threading.Lock()  # two threads asking for one model must not load it twice

_leases: dict[tuple[str, str], Leases] = {}  # by URL of the database and root of the store


def leases_of(store: Store) -> Leases | None:
    """Return who is at work in a store that several machines share, connected once; else None; or a CatalogError."""
    url = shared_catalog()
    if url is None or isinstance(store.files, OverlayFiles):  # a dry run needs no lease
        return None
    with _LOADING:
        if (url, store.root) not in _leases:
            _leases[url, store.root] = Leases(url, store, lease_s=seconds("lease"))
        return _leases[url, store.root]


_TOOLS_AT_MOST = 64  # that a process keeps, the newest

_tools: dict[tuple[str, ToolSettings, str], Tool] = {}  # by key, settings and fingerprint


def keep_tools(tools: Mapping[str, Tool], settings: ToolSettings) -> None:
    """Have `tool_of` return tools, by key, that this process has built already."""
    with _LOADING:
        for key, tool in tools.items():
            _keep((key, settings, tool.fingerprint), tool)


def _keep(known_as: tuple[str, ToolSettings, str], tool: Tool) -> Tool:
    _tools[known_as] = tool
    if len(_tools) > _TOOLS_AT_MOST:
        del _tools[next(iter(_tools))]
    return tool


def _build_tool(key: str, settings: ToolSettings, digest: str) -> Tool:
    from toolformer_core.tools.build import build_tools

    tool = build_tools([key], settings, qa_credentials=qa_credentials(settings.qa_reader))[key]
    if key not in config.TOOL_NAMES and tool.fingerprint != digest:
        raise changed_tool(key)
    return tool


def changed_tool(key: str) -> ToolError:
    problem = "is not the one that this run was started with: its code, description or data have changed since"
    return ToolError(f"the tool {key} {problem}; run the same command again")


def model_of(spec: BuildSpec) -> LanguageModel:
    """Return the build's model, loaded once as long as no other is requested, or raise a ModelError."""
    if spec.overlay is not None:
        raise NotInOverlayError(f"the model {spec.model}")
    if spec.remote is None:
        return named_model(spec.model, spec.model_digest)
    from toolformer_core.lm.remote.engine import load_remote_model

    load = partial(load_remote_model, spec.model, served=spec.remote, credentials=model_credentials(spec.model))
    return resident_model(spec.model, spec.model_digest, load)


def tool_of(spec: BuildSpec, key: str) -> Tool:
    """Return a tool, built once a process, or raise a UsageError if something it reads is not there."""
    if spec.overlay is not None:
        raise NotInOverlayError(f"the tool {key}")
    known_as = key, spec.tool_settings, spec.tool_digests[key]
    with _LOADING:
        return _tools.get(known_as) or _keep(known_as, _build_tool(*known_as))


_POOLS_AT_MOST = 16  # that a process keeps; more are closed when unused, the least recently used first

_pools: dict[tuple[int, float], AnnotationPool] = {}  # by the tool's identity and the time limit


def pool_of(tool: Tool, timeout_s: float) -> AnnotationPool:
    """Return what asks a tool, which all shards of a process share with its limits, or raise a ToolError."""
    key = id(tool), timeout_s  # a pool holds its tool, so that the identity stays the tool's
    with _LOADING:
        pool = _pools.pop(key, None) or AnnotationPool(tool, timeout_s=timeout_s)
        _pools[key] = pool  # the last one now
        for other in list(_pools)[:-_POOLS_AT_MOST]:
            if _pools[other].idle:
                _pools.pop(other).close()
        return pool
