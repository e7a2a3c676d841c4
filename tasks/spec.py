"""What a build is asked for, in plain values that travel to workers, and the resources those name.

A worker gets names and digests, never a model or a table; it loads what
they name once a process. It does not know who started it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from toolformer_core.config import (
    AssembleConfig,
    ExecuteConfig,
    IngestConfig,
    PrefilterConfig,
    SampleConfig,
    ScoreConfig,
)
from toolformer_core.lm.base import LanguageModel
from toolformer_core.records import Prompt
from toolformer_core.tools.base import Tool
from toolformer_core.tools.build import ToolSettings
from warehouse.store import Store

__all__ = ["BuildSpec", "model_of", "model_turn", "tool_of"]


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
    prompts: Mapping[str, Prompt]
    tool_settings: ToolSettings
    ingest: IngestConfig
    prefilter: PrefilterConfig
    sample: Mapping[str, SampleConfig]
    execute: ExecuteConfig
    score: ScoreConfig
    assemble: AssembleConfig
    offline: bool = False  # tools are asked nothing: only what they answered before is used

    def store(self) -> Store:
        return Store(self.data)


_LOADING = threading.Lock()  # two threads asking for one model must not load it twice
_PASSES = threading.Lock()


def model_turn() -> threading.Lock:
    """Return the lock under which a process uses its model: two shards at once would only share the same cores."""
    return _PASSES


@lru_cache(maxsize=2)
def _load_model(name: str, digest: str) -> LanguageModel:
    from toolformer_core.lm.load import load_model

    return load_model(name, digest=digest)


@lru_cache(maxsize=16)
def _build_tool(key: str, settings: ToolSettings, digest: str) -> Tool:
    from toolformer_core.tools.build import build_tools

    return build_tools([key], settings)[key]


def model_of(spec: BuildSpec) -> LanguageModel:
    """Return the model that annotates and scores, loaded once a process.

    Raises:
        ModelError: it cannot be loaded.
    """
    with _LOADING:
        return _load_model(spec.model, spec.model_digest)


def tool_of(spec: BuildSpec, key: str) -> Tool:
    """Return a tool, built once a process.

    Raises:
        UsageError: something it reads is not there.
    """
    with _LOADING:
        return _build_tool(key, spec.tool_settings, spec.tool_digests[key])
