"""The plan by numbers of a build's parameters: its tools and sampling, and a sample build to measure from.

No corpus is read, no model is loaded and no tool is asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from flows.build_dataset.shard_size import documents_per_shard
from flows.call_forms import ALL, wordings_of
from flows.cost.assumptions import parse
from flows.cost.defaults import SINGLE
from flows.cost.plan import CostPlan, plan_cost
from flows.cost.query import CostQuery, ToolQuery
from flows.cost.sample import Sample, read_sample
from toolformer_core.annotate.tool_prompt import chosen_wordings
from toolformer_core.config import TOOL_NAMES, SampleConfig, check_tools, tau_f_for
from toolformer_core.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    from flows.build_dataset.parameters import BuildParameters

__all__ = ["cost_of_build"]


def cost_of_build(
    p: BuildParameters,
    documents: float,
    *,
    gpu: str = "",
    gpu_count: int = 1,
    gpu_price: float | None = None,
    sample: str | None = None,
    assume: Iterable[str] = (),
) -> CostPlan:
    """Return what a build with these parameters costs on so many documents.

    Args:
        p: the build's parameters; of these the corpus is not read.
        documents: how many.
        gpu: the card; "": the model runs on CPUs.
        gpu_count: cards.
        gpu_price: for an hour of one card.
        sample: data folder or URL of a finished build to measure from; None: the parameters' own, if there is one.
        assume: `name=value` each, in place of what is measured or assumed.

    Raises:
        UsageError: a value is wrong, a name is unknown, or nothing was built in `sample`.
    """
    query = CostQuery(
        documents=documents,
        tools=_tools(p),
        model=p.model,
        score_model=p.score_model or "",
        gpu=gpu,
        gpu_count=gpu_count,
        gpu_price=gpu_price,
        workers=p.workers,
        shard_documents=_shard_documents(p, documents),
        max_examples=p.max_examples,
        stop_when_full=p.stop_when_full,
        relevant_share=p.relevant_share,
        positions=p.positions,
        draw_form=p.draw_form,
        decoys=p.decoys_of_a_call * p.decoy_share,
        chain_depth=p.chain_depth,
        chain_starts=p.chain_starts,
        own_encoder=bool(p.encoder),
        remote="://" in p.data,
        assume=parse(assume),
    )
    return plan_cost(query, _sample(p, sample))


def _shard_documents(p: BuildParameters, documents: float) -> int:
    """Return the documents of a shard; of `auto` what it comes to for texts of the assumed length."""
    if isinstance(p.shard_documents, int):
        return p.shard_documents
    return documents_per_shard(SINGLE["characters"].value, round(documents))


def _tools(p: BuildParameters) -> tuple[ToolQuery, ...]:
    """Return the tools with the settings that a build would resolve them to."""
    given = {name: value for name in ("tau_s", "top_k", "draws") if (value := getattr(p, name)) is not None}
    declared: dict[str, dict[str, float | int]] = {}
    tau_f = p.thresholds
    keys = list(check_tools(p.tools)) if p.tools else []
    if p.tool:
        from flows.chosen_tools import chosen_tools
        from toolformer_core.tools.declaration import declaration_of

        built, _ = chosen_tools(p)
        for key, tool in built.items():
            declaration = declaration_of(tool)
            declared[key] = dict(declaration.sampling())
            if declaration.tau_f is not None:
                tau_f.setdefault(key, declaration.tau_f)
        keys = list(built)
    for key in p.tau_f:
        if key not in TOOL_NAMES and key not in keys and key != ALL:
            raise UnknownNameError("tool", key, {*TOOL_NAMES, *keys})
    configs = {key: SampleConfig.for_tool(key, **{**declared.get(key, {}), **given}) for key in keys}
    numbers, folder = wordings_of(p.wordings), Path(p.prompts) if p.prompts else None
    return tuple(
        ToolQuery(key, c.top_k, c.draws, tau_f_for(key, tau_f), len(chosen_wordings(key, numbers, folder)))
        for key, c in configs.items()
    )


def _sample(p: BuildParameters, given: str | None) -> Sample | None:
    """Return the sample build: of the folder that was named, else of the parameters' own if one was completed there."""
    if given is not None:
        found = read_sample(given) if "://" in given or Path(given).is_dir() else None
        if found is None:
            raise UsageError(f"--from {given}: nothing was built there; name the data folder of a finished build")
        return found
    if "://" in p.data or not Path(p.data).is_dir():
        return None
    try:
        return read_sample(p.data)
    except UsageError:  # begun and not ended: there is nothing to measure yet
        return None
