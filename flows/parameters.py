"""What a user may ask of `build_dataset`: one pydantic model, which is also the form in the Prefect UI.

Every field says what it is and where its default comes from. Names are resolved and digests taken by `resolve`, so that
a mistake is answered before anything runs.
"""

from __future__ import annotations

import shlex
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from flows.forms import FORM, AbsolutePath, DatasetName, ModelName, Passages, PathOrUrl, Phrases, TauF, Tools
from tasks.spec import BuildSpec
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

__all__ = ["BuildParameters", "build_command", "resolve"]


class BuildParameters(BaseModel):
    """Corpus to C*."""

    model_config = FORM

    corpus: PathOrUrl = Field(
        description="A file or folder: JSONL or a JSON array (.gz, .zst too), Parquet, or a saved Hugging Face dataset"
    )
    data: PathOrUrl = Field("toolformer-data", description="Data folder or URL: shards, commits, catalog, snapshot")
    model: ModelName = Field("embedded", description="'embedded', a folder written by save_pretrained, or a hub name")
    tools: Tools = Field(list(TOOL_NAMES), description="Which tools to teach: " + ", ".join(TOOL_NAMES))
    dataset: DatasetName = Field(
        "cstar", description="Name under which C* is kept; every different content is a new version"
    )
    limit: int | None = Field(None, gt=0, description="Read at most this many documents (default: all)")
    tau_s: float | None = Field(
        None, ge=0, lt=1, description="Sampling threshold on p(' ['); paper: 0.05, calculator and mt 0.0 (App. A)"
    )
    top_k: int | None = Field(None, gt=0, description="Positions per document; paper: 5, calculator and mt 20 (App. A)")
    draws: int | None = Field(
        None, gt=0, description="Calls drawn per position; paper: 5, calculator and mt 10 (App. A)"
    )
    tau_f: TauF = Field(
        default_factory=dict, description="Filtering threshold on L- - L+ per tool; paper: 1.0, calculator and mt 0.5"
    )
    inside_words: bool = Field(
        False,
        description="Let a call split a word or a number, as the paper's letter allows; by default none does",
    )
    keep_repeats: bool = Field(
        False,
        description="Keep several calls of one tool with the same input within five tokens; by default the one with "
        "the largest gain is kept",
    )
    max_examples: int = Field(25_000, gt=0, description="Examples per tool at most (App. B)")
    stop_when_full: bool = Field(
        False,
        description="Stop a tool's stages once max_examples of it are certain; stored yields then speak of the part of "
        "the corpus that was annotated",
    )
    temperature: float = Field(1.0, gt=0, description="Temperature of the draws; the paper samples from M as it is")
    max_call_tokens: int = Field(64, gt=0, description="Tokens a call may take before it is given up")
    mt_chunk_tokens: int = Field(
        10, gt=0, description="Words a foreign passage must have to be seen by mt's prefilter (App. A.1: 10 tokens)"
    )
    latest_date: str = Field(
        PrefilterConfig().latest_date,
        description="Later dates in URLs are none to the calendar's prefilter: YYYY-MM-DD",
    )
    seed: int = Field(0, description="Seed of every random choice")
    shard_documents: int = Field(256, gt=0, description="Documents per shard: the unit of work and of restart")
    max_chars: int = Field(200_000, gt=0, description="Longer texts are rejected as too_long")
    text_column: str | None = Field(None, description="Column of the text, if not text or raw_content")
    url_column: str | None = Field(None, description="Column of the URL, if not url or metadata.url")
    date_column: str | None = Field(None, description="Column of the date, if not timestamp, date_download or created")
    prompts: AbsolutePath | None = Field(
        None, description="Folder of your own prompts, <tool>.txt each with one {text}"
    )
    passages: Passages = None
    phrases: Phrases = None
    workers: int = Field(4, gt=0, description="Tasks at a time (threads), or Dask workers")
    gpus: int | None = Field(
        None,
        ge=0,
        description="Dask workers on this machine with a GPU each; the others have none (default: one a GPU)",
    )
    licence: str = Field("", description="The corpus's licence, for the dataset's card")
    offline: bool = Field(False, description="Ask no tool: use what tools answered before, and stop where that lacks")


def build_command(p: BuildParameters, **changes: Any) -> str:
    """Return the command line of a build with these parameters, ready to paste; defaults but the folder are left out.

    Args:
        changes: fields that are to have another value.
    """
    parts = ["toolformer", "build"]
    given = p.model_copy(update=changes)
    for name, value in (given.model_dump(exclude_defaults=True) | {"data": p.data}).items():
        option = f"--{name.replace('_', '-')}"
        if isinstance(value, dict):
            value = ",".join(f"{key}={one:g}" for key, one in value.items())
        elif isinstance(value, list):
            value = ",".join(value)
        parts += [option] if value is True else [option, str(value)]
    return shlex.join(parts)


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
