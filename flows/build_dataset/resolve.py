"""What the parameters of a build resolve to, so that a mistake is answered before anything is written or loaded."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from flows.build_dataset.parameters import BuildParameters
from flows.build_dataset.remote_model import remote_model_of
from flows.build_dataset.shard_size import auto_shard_documents
from flows.forms.calls import ALL
from flows.forms.chosen_tools import absolute_data, chosen_tools
from flows.report.judging import chosen_ratings
from tasks.provenance import new_run_id
from tasks.shards.corpus import corpus_digest
from tasks.specs.build_spec import BuildSpec, keep_tools
from tasks.specs.decontamination import Decontamination
from toolformer_core import config
from toolformer_core.annotate.ingest import read_corpus
from toolformer_core.annotate.sample import read_candidates
from toolformer_core.annotate.tool_prompt import chain_prompt_for, prompt_for
from toolformer_core.errors import UnknownNameError, UsageError
from toolformer_core.folders import file_digest
from toolformer_core.lm.check import check_model
from toolformer_core.lm.load import model_digests
from toolformer_core.lm.reference import ModelRef
from toolformer_core.records import digest_of
from toolformer_core.tools.base import Tool
from toolformer_core.tools.declaration import declaration_of, repeating_tools
from warehouse.commits import check_name
from warehouse.errors import StoreError
from warehouse.schema import STAGES
from warehouse.store import Store


def resolve(p: BuildParameters) -> BuildSpec:
    """Look every name up, take every digest, complete every config; a UsageError says which path or value is wrong."""
    store = Store(p.data)
    ingest = config.IngestConfig(
        text_column=p.columns.get("text"),
        url_column=p.columns.get("url"),
        date_column=p.columns.get("date"),
        max_chars=p.max_chars,
        limit=p.limit,
    )
    try:
        check_name("dataset", p.dataset)
    except StoreError as exc:
        raise UsageError(f"--dataset: {exc}") from exc
    read_corpus(p.corpus, ingest)  # looks for the columns that were named, and reads no further
    digest = corpus_digest(p.corpus, store)
    given = p.shard_documents
    documents = auto_shard_documents(p.corpus, digest, ingest) if given == "auto" else given
    ingest = replace(ingest, shard_documents=documents)
    built, settings = chosen_tools([*p.tools, *p.tool], p.passages, p.qa_reader, p.translator)
    keep_tools(built, settings)  # a flow in this process asks these
    if ALL in built:
        raise UsageError(f"a tool cannot be named {ALL!r}, which stands for every tool in --tau-f")
    sample, tau_f = sampling(p, built)
    _check_combinations(p)
    model = ModelRef.of(p.model).absolute()
    if (remote := remote_model_of(model, store)) is None:
        check_model(model)
        whole, weights, tokenizer = model_digests(model)
    else:
        weights, tokenizer = remote.digest, remote.tokenizer_digest
        whole = digest_of("remote", weights, tokenizer)
    prompts = Path(p.prompts).absolute() if p.prompts else None
    if p.candidates is not None:
        read_candidates(Path(p.candidates))
    # Calls are scored to the end where a threshold may keep them.
    floors = [0.0, *(declaration_of(tool).tau_f or 0.0 for tool in built.values()), *p.thresholds.values()]
    decoys, repeats = p.decoys_of_a_call, repeating_tools(built, p.keep_repeats)
    every_tool = {tool: p.rates[ALL] for tool in built if tool not in p.tau_f} if ALL in p.rates else {}
    return BuildSpec(
        run_id=new_run_id(),
        data=absolute_data(p.data),
        corpus=absolute_data(p.corpus),
        corpus_digest=digest,
        model=model.name,
        model_digest=whole,
        weights_digest=weights,
        tokenizer_digest=tokenizer,
        remote=remote,
        tools=tuple(built),
        tool_names={key: tool.name for key, tool in built.items()},
        tool_digests={key: tool.fingerprint for key, tool in built.items()},
        prompts={key: prompt_for(tool, prompts) for key, tool in built.items()},
        chain_prompts={key: chain_prompt_for(tool, prompts) for key, tool in built.items() if p.chain_depth > 1},
        candidates=(p.candidates, file_digest(Path(p.candidates))) if p.candidates is not None else None,
        filters={key: declaration_of(tool).filter for key, tool in built.items() if key not in config.TOOL_NAMES},
        tool_settings=settings,
        ingest=ingest,
        decontamination=Decontamination.of(p.decontaminate, p.ngram, calls_only=p.decontaminate_drops == "calls"),
        deduplicate=p.deduplicate,
        mask_pii=p.mask_pii,
        max_same_call=p.max_same_call,
        prefilter=config.PrefilterConfig(chunk_words=p.mt_chunk_words, seed=p.seed),
        sample=sample,
        chains=config.ChainConfig(p.chain_depth),
        execute=config.ExecuteConfig(),
        score=config.ScoreConfig(floor=min(floors), decoys=decoys, decoy_seed=p.seed if decoys else 0),
        assemble=config.AssembleConfig(
            tau_f=tau_f, max_examples=p.max_examples, seed=p.seed, keep_repeats={key: key in repeats for key in built}
        ),
        rates={tool: rate for tool in built if (rate := p.rates.get(tool, every_tool.get(tool))) is not None},
        stop_when_full=p.stop_when_full,
        offline=p.answers == "stored",
        rating_filter=chosen_ratings(store, p.ratings),
        retry_failures_before=_after_all_calls(store) if p.answers == "retry" else "",
    )


def sampling(p: BuildParameters, built: Mapping[str, Tool]) -> tuple[dict[str, config.SampleConfig], dict[str, float]]:
    """Return how each tool's calls are sampled, and the thresholds (nats) that are given or that tools declare."""
    for tool in p.tau_f:
        if tool not in config.TOOL_NAMES and tool not in built and tool != ALL:
            raise UnknownNameError("tool", tool, {*config.TOOL_NAMES, *built})
    declared = {key: declaration_of(tool) for key, tool in built.items()}
    for_tool, names = config.SampleConfig.for_tool, ("tau_s", "top_k", "samples", "temperature", "seed", "draw_form")
    given: dict[str, Any] = {name: value for name in names if (value := getattr(p, name)) is not None}
    sample = {
        key: for_tool(key, **{**one.sampling(), **given}, numbers=p.numbers if one.numeric else "any")
        for key, one in declared.items()
    }
    return sample, {key: one.tau_f for key, one in declared.items() if one.tau_f is not None} | p.thresholds


def _check_combinations(p: BuildParameters) -> None:
    if p.rates and not p.decoys_of_a_call:
        raise UsageError("--tau-f fdr=... finds thresholds by decoys, and --decoys 0 scores none: leave one out")
    if p.stop_when_full and p.chain_depth > 1:
        raise UsageError(
            "--stop-when-full ends each tool by itself, and chains need the responses of all tools: leave one out"
        )
    late = "--max-same-call drops some of them" if p.max_same_call else "--tau-f fdr=... finds thresholds"
    if p.stop_when_full and (p.max_same_call or p.rates):
        raise UsageError(
            f"--stop-when-full counts examples while calls are scored, and {late} when all are: leave one of them out"
        )


def _after_all_calls(store: Store) -> str:
    """Return a time, ISO UTC, that is not before now nor before any commit of calls: clocks are set back."""
    calls = (one for stage in STAGES if stage.startswith("execute") for one in store.commits(stage))
    last = max([dt.datetime.now(dt.UTC), *(dt.datetime.fromisoformat(commit.created) for commit in calls)])
    return (last + dt.timedelta(microseconds=1)).isoformat()
