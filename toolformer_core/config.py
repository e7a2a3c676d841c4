"""One frozen config per stage, with the paper's defaults and its per-tool exceptions.

| what                         | default | Calculator | MT   | source               |
|------------------------------|---------|------------|------|----------------------|
| tau_s, sampling threshold    | 0.05    | 0.0        | 0.0  | Toolformer, App. A   |
| k, positions per document    | 5       | 20         | 20   | Toolformer, App. A   |
| m, samples per position      | 5       | 10         | 10   | Toolformer, App. A   |
| tau_f, filtering threshold   | 1.0     | 0.5        | 0.5  | Toolformer, App. A   |
| examples per tool            | 25,000  |            |      | Toolformer, App. B   |
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from toolformer_core.errors import UsageError
from toolformer_core.records import digest_of

# The five tools of the paper: the name a user types -> the name in calls.
TOOL_NAMES: Mapping[str, str] = {
    "calculator": "Calculator",
    "calendar": "Calendar",
    "wikisearch": "WikiSearch",
    "qa": "QA",
    "mt": "MT",
}

DRAW_FORMS = ("free", "forced")
NUMBERS = ("any", "new")

# Of these, the tools that answer with a number.
NUMERIC_TOOLS = ("calculator",)

_ISO_DAY = re.compile(r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])")
PAPER_DECAY = 0.2  # of the weights w_t a token (§4.1)
MAX_CALL_TOKENS = 64  # of a drawn call, "]" included
CHAIN_STARTS = 5  # calls of a document after which a further one is drawn, at most, at each depth
MAX_CHAIN_DEPTH = 4  # calls of a chain; every further one needs three more stages
NGRAM = 13  # words in a row that a text shares with a benchmark's item (GPT-3, App. C; lm-eval)
MIN_WORDS = 6  # of a shorter item that is looked for; with fewer it is found in texts that have nothing to do with it
MAX_DECOYS = 100  # of a call; each costs as much as the call's own response
_TAU_F = {"calculator": 0.5, "mt": 0.5}
_KEEP_REPEATS = ("calendar", "mt")  # what gains most often stands a word after the right place (docs/small-world.md)
_SAMPLE_MORE = {"tau_s": 0.0, "top_k": 20, "samples": 10}
_SAMPLE = {"calculator": _SAMPLE_MORE, "mt": _SAMPLE_MORE}


def canonical_json(config: Any) -> str:
    """Return a dataclass (or plain value) as JSON with sorted keys and no spaces, so equal configs give equal texts."""
    is_record = dataclasses.is_dataclass(config) and not isinstance(config, type)
    value = dataclasses.asdict(config) if is_record else config
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def tau_f_for(tool: str, overrides: Mapping[str, float] | None = None) -> float:
    """Return the filtering threshold of a tool: the user's if there is one, else the paper's."""
    if overrides and tool in overrides:
        return float(overrides[tool])
    return _TAU_F.get(tool, 1.0)


def keeps_repeats(tool: str, overrides: Mapping[str, bool] | None = None) -> bool:
    """Return whether equal calls of a tool nearby are all kept: as the user says, else as is best for the tool."""
    return (overrides or {}).get(tool, tool in _KEEP_REPEATS)


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise UsageError(message)


@dataclass(frozen=True, slots=True)
class IngestConfig:
    """How corpus rows become documents. Columns that are not named here are detected."""

    text_column: str | None = None
    url_column: str | None = None
    date_column: str | None = None
    max_chars: int = 200_000  # a longer text is rejected
    shard_documents: int = 256
    limit: int | None = None  # documents after which to stop; None for all

    def __post_init__(self) -> None:
        _require(self.max_chars > 0, f"max_chars must be positive, got {self.max_chars}")
        _require(self.shard_documents > 0, f"shard_documents must be positive, got {self.shard_documents}")
        _require(self.limit is None or self.limit > 0, f"limit must be positive, got {self.limit}")


@dataclass(frozen=True, slots=True)
class PrefilterConfig:
    """Toolformer App. A.1. The tokens of the heuristics are words and numbers, because no model is loaded yet."""

    number_window: int = 100  # tokens
    few_numbers_share: float = 0.01  # share kept of documents with three numbers and no relation between them
    chunk_words: int = 4  # of a foreign chunk, for MT; the paper's 10 tokens, see `annotate.prefilter`
    language_confidence: float = 0.8
    min_chars: int = 40  # for QA and WikiSearch; the paper has no heuristic for them, ours is length and language
    language: str = "en"
    latest_date: str = ""  # ISO; later dates in URLs are ignored. A build sets it from its corpus; "": there is none
    seed: int = 0

    def __post_init__(self) -> None:
        is_day = not self.latest_date or _ISO_DAY.fullmatch(self.latest_date) is not None
        _require(is_day, f"latest_date must be YYYY-MM-DD, got {self.latest_date!r}")
        _require(0 <= self.few_numbers_share <= 1, "few_numbers_share must lie in [0, 1]")
        _require(0 <= self.language_confidence <= 1, "language_confidence must lie in [0, 1]")


@dataclass(frozen=True, slots=True)
class SampleConfig:
    """§2, sampling API calls."""

    tau_s: float = 0.05
    top_k: int = 5
    samples: int = 5
    temperature: float = 1.0
    seed: int = 0
    draw_form: str = "free"  # forced: every draw begins with `Name(`
    numbers: str = "any"  # which calls of numeric tools are tried, see `sample`

    def __post_init__(self) -> None:
        _require(0 <= self.tau_s < 1, f"tau_s must lie in [0, 1), got {self.tau_s}")
        _require(self.top_k > 0, f"top_k must be positive, got {self.top_k}")
        _require(self.samples > 0, f"samples must be positive, got {self.samples}")
        _require(self.temperature > 0, f"temperature must be positive, got {self.temperature}")
        for name, allowed in (("draw_form", DRAW_FORMS), ("numbers", NUMBERS)):
            value = getattr(self, name)
            _require(value in allowed, f"{name} must be one of {', '.join(allowed)}: {value!r}")

    @classmethod
    def for_tool(cls, tool: str, **overrides: Any) -> SampleConfig:
        """Return the paper's config for a tool; overrides of None are ignored."""
        return cls(**{**_SAMPLE.get(tool, {}), **{k: v for k, v in overrides.items() if v is not None}})


@dataclass(frozen=True, slots=True)
class ChainConfig:
    """Calls that go on where another one ended: `annotate.chains`."""

    depth: int = 1  # calls of a chain at most; 1: there are no chains, as in the paper

    def __post_init__(self) -> None:
        _require(1 <= self.depth <= MAX_CHAIN_DEPTH, f"depth must lie in [1, {MAX_CHAIN_DEPTH}], got {self.depth}")


@dataclass(frozen=True, slots=True)
class ExecuteConfig:
    """Limits for running tools."""

    timeout_s: float = 30.0
    max_response_chars: int = 1_000

    def __post_init__(self) -> None:
        _require(self.timeout_s > 0, f"timeout_s must be positive, got {self.timeout_s}")
        _require(self.max_response_chars > 0, f"max_response_chars must be positive, got {self.max_response_chars}")


@dataclass(frozen=True, slots=True)
class ScoreConfig:
    """§4.1: w~_t = max(0, 1 - decay t), normalised; with the paper's decay of 0.2, five tokens count.

    Of a call with L(eps) - L+ below `floor` the third loss, L(e(c, eps)), is not computed (see `annotate.score`). None:
    all losses are. The floor is used with the paper's decay only.
    """

    decay: float = PAPER_DECAY
    floor: float | None = 0.0  # nats
    decoys: int = 0  # of a call, at most; 0: none are scored
    decoy_seed: int = 0

    def __post_init__(self) -> None:
        _require(0.01 <= self.decay <= 1, f"decay must lie in [0.01, 1], got {self.decay}")
        _require(0 <= self.decoys <= MAX_DECOYS, f"decoys must lie in [0, {MAX_DECOYS}], got {self.decoys}")

    @property
    def skips_below(self) -> float:
        """The gain below which a call is not scored to the end, in nats; -inf: every call is."""
        return self.floor if self.floor is not None and self.decay == PAPER_DECAY else -math.inf


@dataclass(frozen=True, slots=True)
class AssembleConfig:
    """Filter and interleave. Scores are stored, so a new tau_f never runs the model again.

    A value of a tool that is its default is dropped, so that it gives the same fingerprint as none.
    """

    tau_f: Mapping[str, float] = field(default_factory=dict)  # per tool; the paper's for a missing tool
    max_examples: int = 25_000  # per tool
    seed: int = 0
    keep_repeats: Mapping[str, bool] = field(default_factory=dict)  # per tool, where not as by default
    top_k: Mapping[str, int] = field(default_factory=dict)  # per tool: fewer positions of a document than were sampled
    tau_s: Mapping[str, float] = field(default_factory=dict)  # per tool: only positions with p(" [") above

    def __post_init__(self) -> None:
        tau_f, repeats = self.tau_f.items(), self.keep_repeats.items()
        object.__setattr__(self, "tau_f", {tool: value for tool, value in tau_f if value != tau_f_for(tool)})
        object.__setattr__(self, "keep_repeats", {tool: keep for tool, keep in repeats if keep != keeps_repeats(tool)})
        _require(self.max_examples > 0, f"max_examples must be positive, got {self.max_examples}")


def config_digest(config: Any) -> str:
    """Return the digest of a config's canonical JSON."""
    return digest_of("config", canonical_json(config))
