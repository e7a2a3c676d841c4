"""`annotate_texts` and `generate`: what a user calls.

The stages run in memory with the ids, seeds and defaults of a build, so a text gets the calls that a build with the
same settings keeps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, overload

from toolformer_core.annotate.in_memory import OnProgress, ToolRun, run_stages
from toolformer_core.annotate.prefilter import prefilter as run_prefilter
from toolformer_core.api.annotation import Annotation, annotations_of
from toolformer_core.api.inputs import check_loaded, documents_of, prompts_of, thresholds_of, tools_by_key
from toolformer_core.config import TOOL_NAMES, ExecuteConfig, PrefilterConfig, SampleConfig, ScoreConfig
from toolformer_core.decode.records import Generation, GenerationSettings
from toolformer_core.errors import UsageError
from toolformer_core.lm.base import LanguageModel
from toolformer_core.records import Document, PrefilterResult
from toolformer_core.tools.base import Tool
from toolformer_core.tools.declaration import declaration_of

if TYPE_CHECKING:
    from toolformer_core.lm.hf.engine import TransformersLM

_NOT_FILTERED = "not_filtered"


def annotate_texts(
    texts: Sequence[str],
    model: LanguageModel,
    tools: Sequence[str | Tool],
    *,
    prompts: Mapping[str, str] | None = None,
    urls: Sequence[str | None] | None = None,
    tau_s: float | None = None,
    top_k: int | None = None,
    samples: int | None = None,
    draw_form: str = "free",
    tau_f: float | Mapping[str, float] | None = None,
    seed: int = 0,
    prefilter: bool | PrefilterConfig = True,
    keep_repeats: bool | None = None,
    tool_timeout_s: float = 30.0,
    tool_workers: int = 1,
    on_progress: OnProgress | None = None,
) -> list[Annotation]:
    """Annotate texts with tool calls, and say of every call what it gains and whether it is kept.

    Args:
        texts: the texts. One that is longer than the model's context is annotated in pieces.
        model: a loaded model; see `load_model`.
        tools: keys (`calculator`, `calendar`, `wikisearch`, `qa`, `mt`) or tools, your own among them; see `Tool`.
        prompts: annotation prompts by the key of their tool, each with one `{text}`. A tool without one here has the
            shipped prompt; a tool of your own needs one.
        urls: one for each text; the calendar reads a text's date there, and elsewhere they change no more than the
            seeds of its samples.
        tau_s: smallest p(" [") of a position. None is the paper's: 0.05, 0 for calculator and mt.
        top_k: positions per text and tool. None is the paper's: 5, 20 for calculator and mt.
        samples: calls drawn per position. None is the paper's: 5, 10 for calculator and mt.
        draw_form: `free`, as in the paper, or `forced`: every draw begins with the tool's name and "(".
        tau_f: smallest gain of a call that is kept, in nats; for all tools, or by key. None is the paper's: 1, 0.5 for
            calculator and mt.
        seed: of the samples, and of the prefilter's random share.
        prefilter: leave out the texts in which a tool is unlikely to help, as a build does; by the paper's rules, or by
            those of a config. False tries every tool on every text.
        keep_repeats: whether calls of one tool with the same input within five tokens are all kept, as in the paper;
            None: as each tool declares.
        tool_timeout_s: seconds a tool may take for one call.
        tool_workers: calls of one tool at the same time. More than 1 needs a thread-safe tool, and saves time
            with one that waits for a network.
        on_progress: called with a tool's key, the number of texts sampled for it, and the number of texts to sample.

    Returns:
        One annotation per text, in the order given.

    Raises:
        UnknownNameError: a tool is not known.
        UsageError: a text, a tool, a prompt or a figure is wrong, or a package that a tool needs is not installed.
        ContextError: the model's context has too little room for a text beside a prompt.
        ModelError: the model cannot be reached.
        ToolformerError: a tool cannot be made ready, or does not answer at all.
    """
    check_loaded(model)
    by_key = tools_by_key(tools)
    if not by_key:
        raise UsageError("no tool was named; give at least one of: " + ", ".join(TOOL_NAMES))
    documents = documents_of(texts, urls)
    tool_prompts = prompts_of(by_key, prompts)
    thresholds = thresholds_of(by_key, tau_f)
    named = {"tau_s": tau_s, "top_k": top_k, "samples": samples, "seed": seed, "draw_form": draw_form}
    given = {name: value for name, value in named.items() if value is not None}
    sampling = {key: SampleConfig.for_tool(key, **declaration_of(t).sampling() | given) for key, t in by_key.items()}
    execution = ExecuteConfig(timeout_s=tool_timeout_s)
    if tool_workers < 1:
        raise UsageError(f"tool_workers must be at least 1, got {tool_workers}")
    scoring = ScoreConfig(floor=min([0.0, *thresholds.values()]))
    filtering = PrefilterConfig(seed=seed) if prefilter is True else prefilter or None

    distinct = list({document.doc_id: document for document in documents}.values())
    prefiltered = {
        key: {result.doc_id: result for result in _prefiltered(tool, distinct, filtering)}
        for key, tool in by_key.items()
    }
    runs: dict[str, ToolRun] = {}
    for key, tool in by_key.items():
        pairs = [(document, result) for document in distinct if (result := prefiltered[key][document.doc_id]).kept]
        runs[key] = run_stages(
            model, tool, tool_prompts[key], pairs, sampling[key], execution, scoring, tool_workers, on_progress
        )
    annotations = annotations_of(distinct, by_key, prefiltered, runs, thresholds, keep_repeats)
    return [annotations[document.doc_id] for document in documents]


def _prefiltered(tool: Tool, documents: Sequence[Document], config: PrefilterConfig | None) -> list[PrefilterResult]:
    """Return the prefilter's results; without a config every document is kept whole, with the date of its URL."""
    if config is not None:
        declared = None if tool.key in TOOL_NAMES else declaration_of(tool).filter
        return list(run_prefilter(tool.key, documents, config, declared=declared))
    # the results do not depend on the language, which need not be identified
    prefiltered = run_prefilter(tool.key, documents, PrefilterConfig(), identify=lambda _: ("", 0.0))
    return [replace(result, kept=True, reason=_NOT_FILTERED, spans=()) for result in prefiltered]


@overload
def generate(
    prompts: str,
    model: TransformersLM,
    tools: Sequence[str | Tool] = (),
    settings: GenerationSettings | None = None,
    *,
    tool_timeout_s: float = 10.0,
) -> Generation: ...


@overload
def generate(
    prompts: list[str] | tuple[str, ...],
    model: TransformersLM,
    tools: Sequence[str | Tool] = (),
    settings: GenerationSettings | Sequence[GenerationSettings] | None = None,
    *,
    tool_timeout_s: float = 10.0,
) -> list[Generation]: ...


def generate(
    prompts: str | list[str] | tuple[str, ...],
    model: TransformersLM,
    tools: Sequence[str | Tool] = (),
    settings: GenerationSettings | Sequence[GenerationSettings] | None = None,
    *,
    tool_timeout_s: float = 10.0,
) -> Generation | list[Generation]:
    """Go on from a prompt, or from several, and call tools on the way.

    The tools are made ready for each call of this function; `toolformer_core.decode.toolformer` keeps them, and yields
    text while it is written.

    Args:
        prompts: one text, or a list of them. They are decoded together; what is written for one does not depend on the
            others.
        model: a loaded model that was trained on calls; see `load_model`.
        tools: keys or tools, as in `annotate_texts`; none is decoding without calls.
        settings: for all prompts, or a list with one for each; None is greedy, 64 tokens, and at most one call.
        tool_timeout_s: seconds a tool may take for one call; then its response is empty.

    Returns:
        One generation for one text, a list for a list.

    Raises:
        UnknownNameError: a tool is not known.
        UsageError: a prompt is empty or longer than the model's context, or the settings do not fit.
        ModelError: the model cannot decode prompts of different lengths together.
        ToolformerError: a tool cannot be made ready.
    """
    from toolformer_core.decode.toolformer import Toolformer

    check_loaded(model)
    given = list(tools_by_key(tools).values())
    with closing(Toolformer(model, given, tool_timeout_s=tool_timeout_s)) as toolformer:
        written = toolformer.generate([prompts] if isinstance(prompts, str) else prompts, settings)
    return written[0] if isinstance(prompts, str) else written
