"""A complete diagnosis: choose texts, observe each tool, compute figures and a verdict. Commands and reports call this.

`measure` returns figures of any model for any texts with gold calls; `diagnose` adds the embedded model's figures and
the verdicts. Nothing is written or printed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from toolformer_core.annotate.in_memory import OnProgress
from toolformer_core.annotate.tool_prompt import prompt_for
from toolformer_core.config import TOOL_NAMES, PrefilterConfig, SampleConfig, tau_f_for
from toolformer_core.diagnose.figures import Figures, figures_of
from toolformer_core.diagnose.gold import GoldTexts, choose
from toolformer_core.diagnose.observe import Observed, observe
from toolformer_core.diagnose.reference import Reference
from toolformer_core.diagnose.structure import loss_per_token, structure_of
from toolformer_core.diagnose.verdict import Verdict, judge
from toolformer_core.errors import TokenizerError, UnknownNameError
from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.lm.load import load_model
from toolformer_core.lm.reference import Credentials
from toolformer_core.lm.tokens import call_fault
from toolformer_core.prompts.chat import NONE, prompt_in_chat
from toolformer_core.records import Prompt
from toolformer_core.tools.base import Tool
from toolformer_core.tools.declaration import declaration_of, repeating_tools

DOCUMENTS = 24  # per tool: about two minutes for five tools and the embedded model on two cores


@dataclass(frozen=True, slots=True)
class DiagnoseConfig:
    """How much is measured, and with which settings of a build; None means the paper's value."""

    documents: int | None = DOCUMENTS  # per tool; None: all that pass the prefilter
    tau_s: float | None = None
    top_k: int | None = None
    draws: int | None = None
    tau_f: Mapping[str, float] = field(default_factory=dict)
    prompts: Path | None = None  # folder; None: the shipped ones
    chat_template: str = NONE  # by which they are written; see `prompt_in_chat`
    mt_chunk_words: int = 3  # the small world's foreign phrases are short
    seed: int = 0
    numbers: str = "any"  # which calls of numeric tools are tried, see `SampleConfig`
    draw_form: str = "free"  # as in `SampleConfig`
    keep_repeats: bool | None = None  # whether equal calls within five tokens are all kept; None: as the tool declares

    def sampling(self, tool: Tool) -> SampleConfig:
        """Return a tool's sampling config.

        Raises:
            UsageError: a setting is wrong.
        """
        given = {name: value for name in ("tau_s", "top_k", "draws") if (value := getattr(self, name)) is not None}
        settings = {**declaration_of(tool).sampling(), **given}
        return SampleConfig.for_tool(
            tool.key,
            **settings,
            seed=self.seed,
            numbers=self.numbers if declaration_of(tool).numeric else "any",
            draw_form=self.draw_form,
        )

    def prompt(self, tool: Tool) -> Prompt:
        """Return a tool's prompt.

        Raises:
            PromptError: it cannot be read.
        """
        return prompt_for(tool, self.prompts)

    def threshold(self, tool: Tool) -> float:
        """Return a tool's filtering threshold, in nats."""
        declared = declaration_of(tool).tau_f
        return tau_f_for(tool.key, ({} if declared is None else {tool.key: declared}) | dict(self.tau_f))


@dataclass(frozen=True, slots=True)
class Measured:
    """The observations and the figures of one tool."""

    observed: Observed
    figures: Figures


def measure(
    lm: TransformersLM,
    tools: Mapping[str, Tool],
    texts: GoldTexts,
    config: DiagnoseConfig,
    on_progress: OnProgress | None = None,
) -> Iterator[Measured]:
    """Yield the measurements of each tool, in the order of the tools.

    Args:
        lm: the model.
        tools: by key; with the data that the gold calls need.
        texts: with gold calls.
        config: how much to measure, and with which settings.
        on_progress: called with (tool, documents done, documents in total).

    Raises:
        UsageError: a prompt cannot be read or written as a chat, a setting is wrong, or the texts hold no gold call of
            a tool.
    """
    occupied = {doc_id: [call.position for call in calls] for doc_id, calls in texts.calls.items()}
    prefilter = PrefilterConfig(chunk_words=config.mt_chunk_words, seed=config.seed)
    tokenizer = lm.hf_model.tokenizer
    prompts = {key: prompt_in_chat(config.prompt(tool), tokenizer, config.chat_template) for key, tool in tools.items()}
    for key, tool in tools.items():
        declared = None if key in TOOL_NAMES else declaration_of(tool).filter
        chosen = choose(texts, key, config.documents, prefilter, seed=config.seed, declared=declared)
        by_id = {document.doc_id: document.text for document, _ in chosen.pairs}
        loss = loss_per_token(lm, list(by_id.values()), lm.hf_model.context_length)
        structure = structure_of(lm.hf_model, tool.name, prompts[key], by_id, chosen.gold, loss)
        observed = observe(
            lm, tool, prompts[key], chosen, config.sampling(tool), occupied=occupied, on_progress=on_progress
        )
        observed = replace(observed, tokenizer_fault=call_fault(tokenizer, tool.name))
        yield Measured(
            observed,
            figures_of(
                observed,
                config.threshold(tool),
                structure,
                keep_repeats=bool(repeating_tools({key: tool}, config.keep_repeats)),
            ),
        )


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The measurements and the verdict of one tool."""

    measured: Measured
    verdict: Verdict


def check_config(tools: Mapping[str, Tool], config: DiagnoseConfig) -> None:
    """Report mistakes before a model is loaded.

    Raises:
        UsageError: a name or a setting is wrong, or a prompt cannot be read.
    """
    for key in config.tau_f:
        if key not in TOOL_NAMES and key not in tools:
            raise UnknownNameError("tool", key, {*TOOL_NAMES, *tools})
    for tool in tools.values():
        config.prompt(tool)
        config.sampling(tool)


def diagnose(
    model: str,
    tools: Mapping[str, Tool],
    texts: GoldTexts,
    config: DiagnoseConfig,
    reference: Reference,
    on_progress: OnProgress | None = None,
    credentials: Credentials | None = None,
) -> Iterator[Diagnosis]:
    """Load a model and yield a verdict per tool.

    If the tokenizer cannot write " [" at all, the model cannot be loaded; that gives a verdict, too.

    Args:
        model: `embedded`, a folder, or a hub name.
        tools: by key.
        texts: with gold calls.
        config: how much to measure, and with which settings.
        reference: the embedded model's figures.
        on_progress: called with (tool, documents done, documents in total).
        credentials: for the model's server; see `load_model`.

    Raises:
        UsageError: the model cannot be found or loaded, or see `measure`.
    """
    check_config(tools, config)
    try:
        lm = load_model(model, credentials=credentials)
    except TokenizerError as exc:
        for tool in tools.values():
            yield _unwritable(tool, str(exc), config, reference)
        return
    for measured in measure(lm, tools, texts, config, on_progress):
        yield Diagnosis(measured, judge(measured.figures, reference.measured(measured.figures.tool)))


def _unwritable(tool: Tool, reason: str, config: DiagnoseConfig, reference: Reference) -> Diagnosis:
    """Return the verdict for a tokenizer without " [", with which nothing can be measured."""
    observed = Observed(tool.key, (), (), config.sampling(tool), tokenizer_fault=reason)
    figures = figures_of(observed, config.threshold(tool))
    return Diagnosis(Measured(observed, figures), judge(figures, reference.measured(tool.key)))
