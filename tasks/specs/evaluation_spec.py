"""An evaluation in plain values that travel to workers: a benchmark, an arm of a model, and the resources they name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.settings import qa_credentials
from tasks.shards.model_thread import named_model, on_model_dropped
from toolformer_core.config import canonical_json
from toolformer_core.errors import CorpusError
from toolformer_core.evaluate.items import Task
from toolformer_core.evaluate.readers.files import benchmark_files, translation_files
from toolformer_core.evaluate.tasks import EMBEDDED
from toolformer_core.folders import file_digest, regular_files
from toolformer_core.records import digest_of
from toolformer_core.tools.build import ToolSettings, build_tools
from warehouse.store import Store

if TYPE_CHECKING:
    from toolformer_core.decode.toolformer import Toolformer

# Versions of the stages of that name, raised when the same inputs would give other rows. They stand here because an
# evaluation's name holds them: figures of one version are not mixed with another's.
EVALUATE_VERSION, PERPLEXITY_VERSION = "4", "2"

TRIGGER_ARM = "toolformer-trigger"
# An arm is a model, as it was (`base`) or finetuned on the plain texts (`cc`) or on C* (`toolformer`), with tools or
# without (k is 0); that of the trigger calls a tool only where p(" [") is at least theta_tool.
ARMS: Mapping[str, tuple[str, bool]] = {
    "base": ("base", False),
    "base+tools": ("base", True),
    "cc": ("cc", False),
    "toolformer": ("toolformer", True),
    TRIGGER_ARM: ("toolformer", True),
    "toolformer-disabled": ("toolformer", False),
}


@dataclass(frozen=True, slots=True)
class Benchmark:
    run_id: str
    data: str  # folder or URL
    task: str
    path: str | None  # None: generated, embedded, or from the hub
    digest: str  # see `source_digest`
    limit: int | None
    shard_items: int
    seed: int | None = None  # the items are a sample chosen by this seed (see `evaluate.items`); None: the first
    held_out: int = 0  # of a sample: items that are never used

    def store(self) -> Store:
        return Store(self.data)

    @property
    def source(self) -> str:
        """What the items are of: the file's or folder's name, and how they are chosen; "" without one."""
        name = Path(self.path).name if self.path else ""
        return name if self.seed is None or self.held_out else f"{name} (sampled by seed {self.seed})".strip()


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One arm at one k: which model, and with which tools."""

    arm: str
    k: int  # 0: tools disabled
    model: str
    model_digest: str
    base: str  # the model that was finetuned; the same as `model` where none was
    base_digest: str
    offered: tuple[str, ...]  # keys of the tools offered; none where k is 0
    tool_digests: tuple[tuple[str, str], ...]  # key and fingerprint of those offered
    tool_settings: ToolSettings
    max_new_tokens: int  # 0 for perplexity
    max_calls: int = 1  # of an item; 1 where k is 0
    trigger: tuple[tuple[str, float], ...] = ()  # key and theta of tools, by key; none but in the arm of that name

    def name(self, benchmark: Benchmark) -> str:
        """Return the evaluation's name: the same for the same arm, k, model, tools, settings and source of items."""
        parts = (*self.parts().values(), EVALUATE_VERSION, PERPLEXITY_VERSION, benchmark.source)
        return f"{benchmark.task}-{self.arm.replace('+', '-')}-k{self.k}-{digest_of('evaluation', *parts)[:12]}"

    def parts(self) -> dict[str, str]:
        settings = {
            "arm": self.arm,
            "k": self.k,
            "max_new_tokens": self.max_new_tokens,
            "max_calls": self.max_calls if self.k else 0,
            **({"trigger": dict(self.trigger)} if self.trigger else {}),
        }
        tools = digest_of("tools", *(part for pair in sorted(self.tool_digests) for part in pair))
        models = {"model": self.model_digest, "base": self.base_digest}
        return {**models, "settings": canonical_json(settings), "tools": tools}


@dataclass(frozen=True, slots=True)
class OfBenchmark:
    benchmark: Benchmark

    @property
    def run_id(self) -> str:
        return self.benchmark.run_id

    def store(self) -> Store:
        return self.benchmark.store()


@dataclass(frozen=True, slots=True)
class ArmRun(OfBenchmark):
    evaluation: Evaluation

    @property
    def name(self) -> str:
        return self.evaluation.name(self.benchmark)


def source_digest(task: Task, path: Path | None) -> str:
    """Return the digest of all that a benchmark is read from, of the hub its name; a CorpusError: there is nothing."""
    if path is None:
        if (items := EMBEDDED.get(task.name)) is not None:
            return file_digest(items) if items.is_file() else ""
        return digest_of("hub", task.hub.repository, task.hub.config or "", task.hub.split) if task.hub else ""
    if not path.exists():
        raise CorpusError(f"no such benchmark file or folder: {path}")
    if task.form == "translation":
        files = list(translation_files(path, task.files[0]))
    elif task.reader is None:  # texts, of any kind
        files = [path] if path.is_file() else regular_files(path)
    else:
        files = benchmark_files(path, task.files)
    return digest_of(
        "files", *(part for f in files for part in (f.relative_to(path.parent).as_posix(), file_digest(f)))
    )


# The resident model with its tools, by all that makes it; only the model's thread touches it.
_HELD: dict[tuple[Any, ...], Toolformer] = {}


def _release() -> None:
    while _HELD:
        _HELD.popitem()[1].close()


on_model_dropped(_release)


def toolformer_of(evaluation: Evaluation) -> Toolformer:
    """Return the evaluation's model with its tools, loaded once as long as no other is requested; see `named_model`."""
    from toolformer_core.decode.toolformer import Toolformer

    model, settings = (evaluation.model, evaluation.model_digest), evaluation.tool_settings
    key = (*model, evaluation.offered, settings, evaluation.tool_digests)
    if key not in _HELD:
        _release()
        lm: Any = named_model(*model)
        credentials = qa_credentials(settings.qa_reader)
        tools = build_tools(evaluation.offered, settings, qa_credentials=credentials) if evaluation.offered else {}
        _HELD[key] = Toolformer(lm, list(tools.values()))
    return _HELD[key]
