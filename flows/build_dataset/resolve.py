"""What the parameters of a build resolve to: names looked up, digests taken, configs completed, paths made absolute.

So a mistake is answered before anything runs. Nothing is written, and no model is loaded.
"""

import datetime as dt
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from flows.build_dataset.parameters import BuildParameters
from flows.build_dataset.remote_model import remote_model_of
from flows.build_dataset.shard_size import auto_shard_documents
from flows.forms.calls import ALL
from flows.forms.chosen_tools import chosen_tools
from flows.report.judging import chosen_marks
from tasks.provenance import new_run_id
from tasks.shards.corpus import corpus_digest
from tasks.specs.build_spec import BuildSpec, keep_tools
from tasks.specs.decontamination import Decontamination
from toolformer_core.annotate.ingest import read_corpus
from toolformer_core.annotate.sample import read_candidates
from toolformer_core.annotate.tool_prompt import chain_prompt_for, prompt_for
from toolformer_core.config import (
    TOOL_NAMES,
    AssembleConfig,
    ChainConfig,
    ExecuteConfig,
    IngestConfig,
    PrefilterConfig,
    SampleConfig,
    ScoreConfig,
)
from toolformer_core.errors import UnknownNameError, UsageError
from toolformer_core.folders import file_digest
from toolformer_core.lm.check import check_model
from toolformer_core.lm.load import model_digests
from toolformer_core.lm.reference import ModelRef
from toolformer_core.lm.remote.identity import RemoteModel
from toolformer_core.records import digest_of
from toolformer_core.tools.base import Tool
from toolformer_core.tools.declaration import declaration_of, repeating_tools
from warehouse.commits import check_name
from warehouse.errors import StoreError
from warehouse.schema import STAGES
from warehouse.store import Store

__all__ = ["resolve"]


def _absolute(path: str) -> str:
    """Return a path as workers in other folders must name it; a URL as it is."""
    return path if "://" in path else str(Path(path).absolute())


def resolve(p: BuildParameters) -> BuildSpec:
    """Look every name up, take every digest, complete every config, and make every path absolute.

    Raises:
        UsageError: a path, name or value is wrong; the message says which and how to correct it.
    """
    ingest = IngestConfig(
        text_column=p.columns.get("text"),
        url_column=p.columns.get("url"),
        date_column=p.columns.get("date"),
        max_chars=p.max_chars,
        shard_documents=IngestConfig().shard_documents if p.shard_documents == "auto" else p.shard_documents,
        limit=p.limit,
    )
    try:
        check_name("dataset", p.dataset)
    except StoreError as exc:
        raise UsageError(f"--dataset: {exc}") from exc
    read_corpus(p.corpus, ingest)  # looks for the columns that were named, and reads no further
    digest = corpus_digest(p.corpus, Store(p.data))
    if p.shard_documents == "auto":
        ingest = replace(ingest, shard_documents=auto_shard_documents(p.corpus, digest, ingest))
    built, settings = chosen_tools(p)
    keep_tools(built, settings)  # a flow in this process asks these
    if ALL in built:
        raise UsageError(f"a tool cannot be named {ALL!r}, which stands for every tool in --tau-f")
    for tool in p.tau_f:
        if tool not in TOOL_NAMES and tool not in built and tool != ALL:
            raise UnknownNameError("tool", tool, {*TOOL_NAMES, *built})
    declared = {key: declaration_of(tool) for key, tool in built.items()}
    given = {name: value for name in ("tau_s", "top_k", "draws") if (value := getattr(p, name)) is not None}
    sample: dict[str, Any] = {
        tool: SampleConfig.for_tool(
            tool,
            **{**declared[tool].sampling(), **given},
            temperature=p.temperature,
            seed=p.seed,
            numbers=p.numbers if declared[tool].numeric else "any",
            draw_form=p.draw_form,
        )
        for tool in built
    }
    repeats = repeating_tools(built, p.keep_repeats)
    tau_f = {key: tau_f for key, one in declared.items() if (tau_f := one.tau_f) is not None}
    model = ModelRef.of(p.model).absolute()
    remote = remote_model_of(model, Store(p.data))
    whole, weights, tokenizer = _digests(model, remote)
    return BuildSpec(
        run_id=new_run_id(),
        data=_absolute(p.data),
        corpus=_absolute(p.corpus),
        corpus_digest=digest,
        model=model.name,
        model_digest=whole,
        weights_digest=weights,
        tokenizer_digest=tokenizer,
        remote=remote,
        tools=tuple(built),
        tool_names={key: tool.name for key, tool in built.items()},
        tool_digests={key: tool.fingerprint for key, tool in built.items()},
        prompts={key: prompt_for(tool, _prompt_folder(p)) for key, tool in built.items()},
        chain_prompts=(
            {key: chain_prompt_for(tool, _prompt_folder(p)) for key, tool in built.items()} if p.chain_depth > 1 else {}
        ),
        candidates=_candidates(p.candidates),
        filters={key: declared[key].filter for key in built if key not in TOOL_NAMES},
        tool_settings=settings,
        ingest=ingest,
        decontamination=Decontamination.of(p.decontaminate, p.ngram, calls_only=p.decontaminate_drops == "calls"),
        deduplicate=p.deduplicate,
        mask_pii=p.mask_pii,
        max_same_call=_max_same_call(p),
        prefilter=PrefilterConfig(chunk_words=p.mt_chunk_words, seed=p.seed),
        sample=sample,
        chains=_chains(p),
        execute=ExecuteConfig(),
        score=_score(p, [*tau_f.values(), *p.thresholds.values()]),
        assemble=AssembleConfig(
            tau_f={**tau_f, **p.thresholds},
            max_examples=p.max_examples,
            seed=p.seed,
            keep_repeats={key: key in repeats for key in built},
        ),
        rates=_rates(p, built),
        stop_when_full=p.stop_when_full,
        offline=p.answers == "stored",
        marks=chosen_marks(Store(p.data), p.ratings),
        retry_failures_before=_after_all_calls(Store(p.data)) if p.answers == "retry" else "",
    )


def _candidates(file: str | None) -> tuple[str, str] | None:
    """Return a file of candidate calls with its digest, after it was read once; None if none is given."""
    if file is None:
        return None
    read_candidates(Path(file))
    return file, file_digest(Path(file))


def _after_all_calls(store: Store) -> str:
    """Return a time, ISO UTC, that is not before now nor before any commit of calls: clocks are set back."""
    commits = (one for stage in STAGES if stage.startswith("execute") for one in store.commits(stage))
    made = [dt.datetime.fromisoformat(commit.created) for commit in commits]
    return (max([dt.datetime.now(dt.UTC), *made]) + dt.timedelta(microseconds=1)).isoformat()


def _digests(model: ModelRef, remote: RemoteModel | None) -> tuple[str, str, str]:
    """Return the digests of a model, of it without its tokenizer, and of its tokenizer.

    Raises:
        ModelError: its files, if it has any here, are not complete.
    """
    if remote is not None:
        return digest_of("remote", remote.digest, remote.tokenizer_digest), remote.digest, remote.tokenizer_digest
    check_model(model)
    return model_digests(model)


def _prompt_folder(p: BuildParameters) -> Path | None:
    return Path(p.prompts).absolute() if p.prompts else None


def _score(p: BuildParameters, thresholds: list[float]) -> ScoreConfig:
    """Return how calls are scored: to the end where a threshold may keep them, and with decoys where any are wanted."""
    decoys = p.decoys_of_a_call
    if p.rates and not decoys:
        raise UsageError(
            "--tau-f fdr=... finds thresholds by decoys, and --decoys 0 scores none: leave one of them out"
        )
    return ScoreConfig(
        floor=min([0.0, *thresholds]),
        decoys=decoys,
        decoy_seed=p.seed if decoys else 0,
    )


def _chains(p: BuildParameters) -> ChainConfig:
    if p.chain_depth > 1 and p.stop_when_full:
        raise UsageError(
            "--stop-when-full ends each tool by itself, and chains need the responses of all tools: leave one out"
        )
    return ChainConfig(p.chain_depth)


def _max_same_call(p: BuildParameters) -> int | None:
    if p.max_same_call is not None and p.stop_when_full:
        raise UsageError(
            "--stop-when-full counts examples while calls are scored, and --max-same-call drops some of them when all "
            "are: leave one of them out"
        )
    return p.max_same_call


def _rates(p: BuildParameters, tools: Mapping[str, Tool]) -> dict[str, float]:
    """Return the promised rate of each tool that has one."""
    given = p.rates
    if given and p.stop_when_full:
        raise UsageError(
            "--stop-when-full counts examples while calls are scored, and --tau-f fdr=... finds thresholds when all "
            "are: leave one of them out"
        )
    of_the_others = {tool: given[ALL] for tool in tools if tool not in p.tau_f} if ALL in given else {}
    return {tool: rate for tool in tools if (rate := given.get(tool, of_the_others.get(tool))) is not None}
