"""A grounding in plain values that travel to workers: queries, library, models and patterns, and what they name.

Scores are stored in parts, so gamma, lambda and the threshold belong to `AnswerRun` alone.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.settings import qa_credentials
from tasks.shards.model_thread import named_model
from tasks.specs.build_spec import changed_tool
from tasks.specs.evaluation_spec import OfBenchmark
from toolformer_core.config import canonical_json
from toolformer_core.grounding.encoders import Encoder, HiddenStateEncoder, encoder_named
from toolformer_core.grounding.ground import Grounder, GroundingSettings
from toolformer_core.grounding.library import DemonstrationKind, LibraryTool, library_of
from toolformer_core.grounding.patterns import PatternSet
from toolformer_core.grounding.records import Weights
from toolformer_core.grounding.small_lm import HFSmallLM
from toolformer_core.records import digest_of
from toolformer_core.tools.build import ToolSettings, build_tools
from warehouse.store import Store

# Versions of the stages; raised when the same inputs would give other rows.
GROUND_VERSION, CHOOSE_VERSION, ANSWER_VERSION = "1", "1", "2"

METHODS = ("gear", "cosine", "lm", "toolformer", "oracle", "zero-shot", "few-shot")
CHOSEN_BY_A_MODEL = ("lm", "toolformer")


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A model by its name and the digest of its files; of an encoder "" means hidden states of the small LM."""

    name: str
    digest: str


@dataclass(frozen=True, slots=True)
class ToolLibrary:
    tools: tuple[tuple[str, str], ...]  # key and digest of each, in the order in which equal scores are decided
    settings: ToolSettings  # where they find their data
    demonstrations: DemonstrationKind = "questions"  # how calls are shown to the small LM
    mocked: tuple[str, ...] = ()  # keys of the tools that are ranked by their mock responses

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(key for key, _ in self.tools)

    @property
    def digest(self) -> str:
        return digest_of("library", *(part for pair in self.tools for part in pair))


@dataclass(frozen=True, slots=True)
class GroundingRun(OfBenchmark):
    library: ToolLibrary
    small: NamedModel
    encoder: NamedModel
    patterns: PatternSet
    settings: GroundingSettings

    @property
    def name(self) -> str:
        """The grounding's name: the same for the same benchmark, library, models, patterns and settings."""
        parts = (*self.parts().values(), GROUND_VERSION, self.benchmark.source)
        return f"{self.benchmark.task}-{digest_of('grounding', *parts)[:12]}"

    def parts(self) -> dict[str, str]:
        return {
            "model": self.small.digest,
            "encoder": self.encoder.digest,
            "patterns": self.patterns.digest,
            "library": self.library.digest,
            "settings": canonical_json(self.settings),
        }


@dataclass(frozen=True, slots=True)
class _OfGrounding:
    grounding: GroundingRun
    method: str  # one of `METHODS`

    @property
    def run_id(self) -> str:
        return self.grounding.run_id

    def store(self) -> Store:
        return self.grounding.store()

    def parts_of(self, model: NamedModel, settings: Sequence[Any]) -> dict[str, str]:
        return {
            "model": model.digest,
            "library": self.grounding.library.digest,
            "settings": canonical_json([self.method, *settings]),
            "grounding": self.grounding.name,
        }


@dataclass(frozen=True, slots=True)
class ChoiceRun(_OfGrounding):
    """The choices that a model makes without scores, by the method `lm` or `toolformer`."""

    model: NamedModel  # the small LM, or the finetuned model
    top_k: int = 10  # of `toolformer`: a call starts where " [" is among this many most likely tokens
    max_new_tokens: int = 24  # of `toolformer`: tokens of text

    @property
    def name(self) -> str:
        parts = (*self.parts().values(), CHOOSE_VERSION, self.grounding.benchmark.source)
        return f"{self.grounding.benchmark.task}-{self.method}-{digest_of('choice', *parts)[:12]}"

    def parts(self) -> dict[str, str]:
        return self.parts_of(self.model, [self.top_k, self.max_new_tokens] if self.method == "toolformer" else [])


@dataclass(frozen=True, slots=True)
class AnswerRun(_OfGrounding):
    large: NamedModel  # the LM that writes the final call, or the answer
    weights: Weights  # of `gear`; other methods do not read them
    examples: tuple[tuple[str, str], ...] = ()  # of `few-shot`: questions and answers of held-out items

    @property
    def name(self) -> str:
        parts = (*self.parts().values(), ANSWER_VERSION)
        return f"{self.grounding.benchmark.task}-{self.method}-{digest_of('answers', *parts)[:12]}"

    def parts(self) -> dict[str, str]:
        settings: dict[str, list[Any]] = {"gear": [asdict(self.weights)], "few-shot": [list(map(list, self.examples))]}
        return self.parts_of(self.large, settings.get(self.method, []))


# --- what the names stand for, loaded once a process ------------------------------------------------------------------

_EMBEDDINGS: dict[str, NDArray[np.float32]] = {}  # of descriptions, by the digest of encoder and text


def tools_of(
    keys: Sequence[str], settings: ToolSettings, demonstrations: DemonstrationKind, mocked: Iterable[str]
) -> tuple[LibraryTool, ...]:
    """Build tools and return them as a library; see `build_tools` and `library_of`."""
    built = build_tools(keys, settings, qa_credentials=qa_credentials(settings.qa_reader))
    return library_of(built.values(), demonstrations=demonstrations, mock=tuple(mocked))


@lru_cache(maxsize=8)
def library_tools(library: ToolLibrary) -> tuple[LibraryTool, ...]:
    """Return the library's tools, built once a process, or raise a ToolError if one has changed, or a UsageError."""
    built = tools_of(library.keys, library.settings, library.demonstrations, library.mocked)
    for (key, digest), one in zip(library.tools, built, strict=True):
        if one.digest != digest:
            raise changed_tool(key)
    return built


def grounder_of(run: GroundingRun, large: NamedModel | None = None) -> Grounder:
    """Return what grounds a run's queries, or answers with chosen tools (`large`), or raise a ToolformerError."""
    model = large or run.small
    lm: Any = named_model(model.name, model.digest)
    encoder: Encoder = HiddenStateEncoder(lm.hf_model, model.digest)
    if large is None and run.encoder.name:  # the large LM embeds nothing
        encoder = encoder_named(run.encoder.name, run.encoder.digest)
    tools, patterns, settings = library_tools(run.library), run.patterns, run.settings
    return Grounder(tools, HFSmallLM(lm), encoder, patterns=patterns, settings=settings, embeddings=_EMBEDDINGS)
