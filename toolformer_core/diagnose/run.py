"""A complete diagnosis: choose texts, observe each tool, compute figures. `verdict` judges them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from toolformer_core.annotate.in_memory import OnProgress
from toolformer_core.annotate.tool_prompt import prompt_for
from toolformer_core.config import TOOL_NAMES, PrefilterConfig, SampleConfig, tau_f_for
from toolformer_core.diagnose.figures import Figures, figures_of
from toolformer_core.diagnose.gold import GoldTexts, choose
from toolformer_core.diagnose.observe import observe
from toolformer_core.diagnose.structure import loss_per_token, structure_of
from toolformer_core.errors import UnknownNameError
from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.lm.tokens import call_fault
from toolformer_core.tools.base import Tool
from toolformer_core.tools.declaration import declaration_of, repeating_tools

_MT_CHUNK_WORDS = 3  # the small world's foreign phrases are short
DOCUMENTS = 24  # per tool: about two minutes for five tools and the embedded model on two cores


@dataclass(frozen=True, slots=True)
class DiagnoseConfig:
    """How much is measured, and with which settings of a build; None means the paper's value."""

    documents: int | None = DOCUMENTS  # per tool; None: all that pass the prefilter
    tau_s: float | None = None
    top_k: int | None = None
    samples: int | None = None
    tau_f: Mapping[str, float] = field(default_factory=dict)
    prompts: Path | None = None  # folder; None: the shipped ones
    seed: int = 0
    numbers: str = "any"  # which calls of numeric tools are tried, see `SampleConfig`
    draw_form: str = "free"  # as in `SampleConfig`
    keep_repeats: bool | None = None  # whether equal calls within five tokens are all kept; None: as the tool declares

    def sampling(self, tool: Tool) -> SampleConfig:
        given = {name: value for name in ("tau_s", "top_k", "samples") if (value := getattr(self, name)) is not None}
        settings = {**declaration_of(tool).sampling(), **given}
        numbers = self.numbers if declaration_of(tool).numeric else "any"
        return SampleConfig.for_tool(tool.key, **settings, seed=self.seed, numbers=numbers, draw_form=self.draw_form)

    def threshold(self, tool: Tool) -> float:
        declared = declaration_of(tool).tau_f
        return tau_f_for(tool.key, ({} if declared is None else {tool.key: declared}) | dict(self.tau_f))


def measure(
    lm: TransformersLM,
    tools: Mapping[str, Tool],
    texts: GoldTexts,
    config: DiagnoseConfig,
    on_progress: OnProgress | None = None,
) -> Iterator[Figures]:
    """Yield the figures of each tool, in their order, for tools that have what the gold calls need; or a UsageError."""
    occupied = {doc_id: [call.position for call in calls] for doc_id, calls in texts.calls.items()}
    prefilter = PrefilterConfig(chunk_words=_MT_CHUNK_WORDS, seed=config.seed)
    for key, tool in tools.items():
        prompt = prompt_for(tool, config.prompts)
        declared = None if key in TOOL_NAMES else declaration_of(tool).filter
        chosen = choose(texts, key, config.documents, prefilter, declared)
        by_id = {document.doc_id: document.text for document, _ in chosen.pairs}
        loss = loss_per_token(lm, list(by_id.values()), lm.hf_model.context_length)
        structure = structure_of(lm.hf_model, tool.name, prompt, by_id, chosen.gold, loss)
        sampling = config.sampling(tool)
        observed = observe(lm, tool, prompt, chosen, sampling, occupied=occupied, on_progress=on_progress)
        if fault := call_fault(lm.hf_model.tokenizer, tool.name):
            observed = replace(observed, faults={**observed.faults, "tokenizer": fault})
        keep_repeats = bool(repeating_tools({key: tool}, config.keep_repeats))
        yield figures_of(observed, config.threshold(tool), structure, keep_repeats=keep_repeats)


def check_config(tools: Mapping[str, Tool], config: DiagnoseConfig) -> None:
    """Raise a UsageError for a wrong name, setting or prompt, before a model is loaded."""
    for key in config.tau_f:
        if key not in TOOL_NAMES and key not in tools:
            raise UnknownNameError("tool", key, {*TOOL_NAMES, *tools})
    for tool in tools.values():
        prompt_for(tool, config.prompts)
        config.sampling(tool)
