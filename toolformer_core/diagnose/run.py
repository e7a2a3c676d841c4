"""The whole of a diagnosis: texts chosen, each tool observed, figures, verdict. What the command and reports call.

`measure` gives figures of any model for any texts with gold calls; `diagnose` adds the embedded model's figures and the
verdicts. Nothing is written and nothing printed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from toolformer_core.config import TOOL_NAMES, PrefilterConfig, SampleConfig, tau_f_for
from toolformer_core.diagnose.figures import Figures, figures_of
from toolformer_core.diagnose.gold import GoldTexts, choose
from toolformer_core.diagnose.observe import Observed, Tell, observe
from toolformer_core.diagnose.reference import Reference
from toolformer_core.diagnose.structure import loss_per_token, lost_in_writing, structure_of
from toolformer_core.diagnose.verdict import Verdict, judge
from toolformer_core.errors import TokenizerError, UnknownNameError
from toolformer_core.lm.hf import TransformersLM
from toolformer_core.lm.load import load_model
from toolformer_core.lm.served import Credentials
from toolformer_core.prompts.load import load_prompt
from toolformer_core.tools.base import Tool

__all__ = ["DOCUMENTS", "DiagnoseConfig", "Diagnosis", "Measured", "diagnose", "measure"]

DOCUMENTS = 24  # per tool: about two minutes for five tools and the embedded model on two cores


@dataclass(frozen=True, slots=True)
class DiagnoseConfig:
    """How much is measured, and the build's settings that it is measured with; None is the paper's."""

    documents: int | None = DOCUMENTS  # per tool; None: all that pass the prefilter
    tau_s: float | None = None
    top_k: int | None = None
    draws: int | None = None
    tau_f: Mapping[str, float] = field(default_factory=dict)
    prompts: Path | None = None  # folder; None: the shipped ones
    mt_chunk_tokens: int = 3  # the small world's foreign phrases are short
    seed: int = 0
    inside_words: bool = False  # let a call split a word or a number
    keep_repeats: bool = False  # keep calls alike within five tokens of each other

    def __post_init__(self) -> None:
        for tool in self.tau_f:
            if tool not in TOOL_NAMES:
                raise UnknownNameError("tool", tool, TOOL_NAMES)

    def sampling(self, tool: str) -> SampleConfig:
        """Return a tool's sampling config.

        Raises:
            UsageError: a setting is wrong.
        """
        return SampleConfig.for_tool(
            tool,
            tau_s=self.tau_s,
            top_k=self.top_k,
            draws=self.draws,
            seed=self.seed,
            inside_words=self.inside_words,
        )


@dataclass(frozen=True, slots=True)
class Measured:
    """One tool: what was observed, and its figures."""

    observed: Observed
    figures: Figures


def measure(
    lm: TransformersLM,
    tools: Mapping[str, Tool],
    texts: GoldTexts,
    config: DiagnoseConfig,
    tell: Tell | None = None,
) -> Iterator[Measured]:
    """Yield what a model does with each tool, in the order of the tools.

    Args:
        lm: the model.
        tools: by key; with the data that the texts' gold calls ask for.
        texts: with gold calls.
        config: how much, and with which settings.
        tell: called with (tool, documents done, in all).

    Raises:
        UsageError: a prompt cannot be read, a setting is wrong, or the texts hold no gold call of a tool.
    """
    taken = {doc_id: [call.position for call in calls] for doc_id, calls in texts.calls.items()}
    prefilter = PrefilterConfig(chunk_tokens=config.mt_chunk_tokens, seed=config.seed)
    prompts = {key: load_prompt(key, config.prompts) for key in tools}
    for key, tool in tools.items():
        chosen = choose(texts, key, config.documents, prefilter, seed=config.seed)
        by_id = {document.doc_id: document.text for document, _ in chosen.pairs}
        loss = loss_per_token(lm, list(by_id.values()), lm.network.context_length)
        structure = structure_of(lm.network, tool.name, prompts[key], by_id, chosen.gold, loss)
        seen = observe(lm, tool, prompts[key], chosen, config.sampling(key), taken=taken, tell=tell)
        seen = replace(seen, tokenizer_fault=lost_in_writing(lm.network, tool.name))
        tau_f = tau_f_for(key, config.tau_f)
        yield Measured(seen, figures_of(seen, tau_f, structure, keep_repeats=config.keep_repeats))


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One tool: observed, summed up, judged."""

    measured: Measured
    verdict: Verdict


def diagnose(
    model: str,
    tools: Mapping[str, Tool],
    texts: GoldTexts,
    config: DiagnoseConfig,
    reference: Reference,
    tell: Tell | None = None,
    credentials: Credentials | None = None,
) -> Iterator[Diagnosis]:
    """Load a model and yield a verdict per tool.

    A tokenizer that cannot write " [" at all keeps a model from being loaded; that is a verdict like any other.

    Args:
        model: `embedded`, a folder, or a hub name.
        tools: by key.
        texts: with gold calls.
        config: how much, and with which settings.
        reference: the embedded model's figures.
        tell: called with (tool, documents done, in all).
        credentials: for the model's server; see `load_model`.

    Raises:
        UsageError: the model cannot be found or loaded, or see `measure`.
    """
    for key in tools:  # mistakes are told before a model is loaded
        load_prompt(key, config.prompts)
        config.sampling(key)
    try:
        lm = load_model(model, credentials=credentials)
    except TokenizerError as exc:
        for key in tools:
            yield _unwritable(key, str(exc), config, reference)
        return
    for one in measure(lm, tools, texts, config, tell):
        yield Diagnosis(one, judge(one.figures, reference.measured(one.figures.tool)))


def _unwritable(key: str, why: str, config: DiagnoseConfig, reference: Reference) -> Diagnosis:
    """Return the verdict on a tokenizer that has no " [": nothing was measured."""
    seen = Observed(key, (), (), config.sampling(key), tokenizer_fault=why)
    figures = figures_of(seen, tau_f_for(key, config.tau_f))
    return Diagnosis(Measured(seen, figures), judge(figures, reference.measured(key)))
