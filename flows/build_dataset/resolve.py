"""What the parameters of a build resolve to: names looked up, digests taken, configs completed, paths made absolute.

So a mistake is answered before anything runs. Nothing is written, and no model is loaded.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from flows.build_dataset.parameters import BuildParameters
from tasks.build_spec import BuildSpec
from toolformer_core.annotate.ingest import corpus_files, file_digest, read_corpus
from toolformer_core.config import (
    TOOL_NAMES,
    AssembleConfig,
    ExecuteConfig,
    IngestConfig,
    PrefilterConfig,
    SampleConfig,
    ScoreConfig,
    check_tools,
)
from toolformer_core.errors import UnknownNameError, UsageError
from toolformer_core.lm.check import check_model
from toolformer_core.lm.load import model_digests
from toolformer_core.prompts.load import load_prompt
from toolformer_core.records import digest_of
from toolformer_core.tools.build import ToolSettings, build_tools
from warehouse.commits import check_name
from warehouse.errors import StoreError

__all__ = ["resolve"]


@lru_cache(maxsize=4096)
def _digest(path: str, size: int, modified_ns: int) -> str:
    return file_digest(path)


def _corpus_digest(files: list[Path]) -> str:
    """Digest of names and contents; a file is read once a process unless it changes meanwhile."""
    parts = []
    for file in files:
        now = file.stat()
        parts += [file.name, _digest(str(file), now.st_size, now.st_mtime_ns)]
    return digest_of("corpus", *parts)


def _absolute(path: str) -> str:
    """Return a path as workers in other folders must be told it; a URL as it is."""
    return path if "://" in path else str(Path(path).absolute())


def _model(name: str) -> str:
    """Return a folder as `_absolute` does; `embedded` and names on the hub as they are."""
    folder = Path(name).expanduser()
    return str(folder.absolute()) if name != "embedded" and folder.is_dir() else name


def resolve(p: BuildParameters, run_id: str) -> BuildSpec:
    """Look every name up, take every digest, complete every config, and make every path absolute.

    Raises:
        UsageError: a path, name or value is wrong; the message says which and how to mend it.
    """
    tools = check_tools(p.tools)
    for tool in p.tau_f:
        if tool not in TOOL_NAMES:
            raise UnknownNameError("tool", tool, TOOL_NAMES)
    ingest = IngestConfig(
        text_column=p.text_column,
        url_column=p.url_column,
        date_column=p.date_column,
        max_chars=p.max_chars,
        shard_documents=p.shard_documents,
        limit=p.limit,
        text_unit=p.text_unit,
    )
    try:
        check_name("dataset", p.dataset)
    except StoreError as exc:
        raise UsageError(f"--dataset: {exc}") from exc
    files = corpus_files(p.corpus)
    read_corpus(p.corpus, ingest)  # looks for the columns that were named, and reads no further
    settings = ToolSettings(
        passages=Path(p.passages).absolute() if p.passages else None,
        phrases=Path(p.phrases).absolute() if p.phrases else None,
    )
    built = build_tools(tools, settings)
    sample: dict[str, Any] = {
        tool: SampleConfig.for_tool(
            tool,
            tau_s=p.tau_s,
            top_k=p.top_k,
            draws=p.draws,
            temperature=p.temperature,
            max_call_tokens=p.max_call_tokens,
            seed=p.seed,
            inside_words=p.inside_words,
        )
        for tool in tools
    }
    check_model(p.model)
    whole, weights, tokenizer = model_digests(p.model)
    return BuildSpec(
        run_id=run_id,
        data=_absolute(p.data),
        corpus=_absolute(p.corpus),
        corpus_digest=_corpus_digest(files),
        model=_model(p.model),
        model_digest=whole,
        weights_digest=weights,
        tokenizer_digest=tokenizer,
        tools=tools,
        tool_names={key: tool.name for key, tool in built.items()},
        tool_digests={key: tool.fingerprint for key, tool in built.items()},
        prompts={key: load_prompt(key, Path(p.prompts).absolute() if p.prompts else None) for key in tools},
        tool_settings=settings,
        ingest=ingest,
        prefilter=PrefilterConfig(chunk_tokens=p.mt_chunk_tokens, latest_date=p.latest_date, seed=p.seed),
        sample=sample,
        execute=ExecuteConfig(),
        score=ScoreConfig(),
        assemble=AssembleConfig(
            tau_f=dict(p.tau_f), max_examples=p.max_examples, seed=p.seed, keep_repeats=p.keep_repeats
        ),
        stop_when_full=p.stop_when_full,
        offline=p.offline,
    )
