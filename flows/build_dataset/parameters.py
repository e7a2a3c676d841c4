"""The parameters of `build-dataset`, declared once: the form, the options of `build` and `plan`, a table of docs."""

import shlex
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import Field

from flows.forms import fields
from flows.forms.calls import Ratings, TauF, promised_rates
from toolformer_core import config

_CALLS = fields.Option("Sampling and filtering")
_CORPUS = fields.Option("Reading the corpus")

_INGEST, _PREFILTER = config.IngestConfig(), config.PrefilterConfig()
_SAMPLE, _ASSEMBLE, _CHAINS = config.SampleConfig(), config.AssembleConfig(), config.ChainConfig()

DECOYS_FOR_RATES = 3  # of a call, where a threshold is to be found by them


def _paper(figure: Callable[[str], float]) -> str:
    """Return the paper's figures in words: that of most tools, then those of the others."""
    tools: dict[float, list[str]] = {}
    for tool in config.TOOL_NAMES:
        tools.setdefault(figure(tool), []).append(tool)
    usual, *others = sorted(tools, key=lambda value: -len(tools[value]))
    return "; ".join([f"(paper: {usual:g}", *(f"{', '.join(tools[value])} {value:g}" for value in others)]) + ")"


def _sampled(name: str) -> str:
    return _paper(lambda tool: getattr(config.SampleConfig.for_tool(tool), name))


class BuildParameters(fields.ToolChoice):
    """Corpus to C*."""

    model_config = fields.FORM

    corpus: fields.Corpus = Field(
        description="File or folder: JSONL, a JSON array, Parquet, a saved Hugging Face dataset, WARC or WET, a "
        "Wikipedia dump (pages-articles.xml), CSV or TSV with a header, or .txt (one document); each but Parquet "
        "also as .gz, .zst, .bz2 or .xz; or 'embedded', the small world's texts"
    )
    data: fields.DataFolder = Field(
        "toolformer-data", description="Data folder or URL: shards, commits, catalog, snapshot"
    )
    model: fields.ModelName = Field(
        "embedded",
        description="'embedded', a folder written by save_pretrained, a GGUF file, or a hub name; "
        "remote+http://HOST/v1#MODEL for a model that a vLLM server serves and that is not loaded here "
        "(#MODEL?tokenizer=FOLDER if MODEL does not name its tokenizer), "
        "vllm+http://HOST/v1#MODEL for one that is, and whose samples the server makes",
    )
    tools: fields.Tools = Field(list(config.TOOL_NAMES), description=f"Tools to teach: {', '.join(config.TOOL_NAMES)}")
    tool: fields.References = []  # noqa: RUF012 - pydantic copies it
    dataset: fields.DatasetName = Field(
        "cstar", description="Name under which C* is kept; each different content is a new version"
    )
    limit: int | None = Field(
        None,
        gt=0,
        description="Read at most this many documents (default: all); if it is raised later, a multiple of "
        "`shard_documents` repeats no work",
    )
    tau_s: Annotated[float | None, _CALLS] = Field(
        None, ge=0, lt=1, description=f"Sampling threshold on p(' [') {_sampled('tau_s')}"
    )
    top_k: Annotated[int | None, _CALLS] = Field(
        None, gt=0, description=f"Positions per document, k {_sampled('top_k')}"
    )
    samples: Annotated[int | None, _CALLS] = Field(
        None, gt=0, description=f"Samples per position, m {_sampled('samples')}"
    )
    numbers: Annotated[Literal["any", "new"], _CALLS] = Field(
        "any",
        description="Which calls of tools that answer with numbers (calculator) are tried. any: all, as in the paper; "
        "new: those that give the number they stand before, the text's third or a later one, which it has not had yet",
    )
    draw_form: Annotated[Literal["free", "forced"], _CALLS] = Field(
        "free",
        description="free: the model draws all that follows ' [', as in the paper; forced: the tool's name and '(' are "
        "given, and it draws the rest, so that no draw is lost to other text",
    )
    candidates: Annotated[fields.AbsolutePath | None, _CALLS] = Field(
        None,
        description="Calls to execute and score in place of sampled ones: JSON lines with the url of a document and "
        "its calls, each with tool, input and position (in characters)",
    )
    tau_f: Annotated[TauF, _CALLS] = Field(
        default_factory=dict,
        description=f"Filtering threshold on L- - L+ per tool, in nats {_paper(config.tau_f_for)}; or the rate of "
        "false discoveries that it is to have at most: fdr=0.05 for all tools, qa=fdr=0.05 for one (see `decoys`)",
    )
    decoys: Annotated[int | None, _CALLS] = Field(
        None,
        ge=0,
        le=config.MAX_DECOYS,
        description="Wrong responses with which every call is scored as well, to estimate how often a wrong one would "
        f"pass; each costs as much as the call's own (default: {DECOYS_FOR_RATES} if `tau_f` promises a rate, else 0)",
    )
    keep_repeats: Annotated[bool | None, _CALLS] = Field(
        None,
        description="Keep all calls of one tool with the same input within five tokens of each other, as the paper "
        "does, or only the one with the largest gain (default: as each tool declares; calendar and mt keep all)",
    )
    ratings: Annotated[Ratings, _CALLS] = Field(
        "all",
        description="Which calls are kept, of those that pass the thresholds, by what people said of them (see "
        "`toolformer ratings`): all; not-rejected: all but the rejected; accepted: the accepted alone",
    )
    chain_depth: Annotated[int, _CALLS] = Field(
        _CHAINS.depth,
        ge=1,
        le=config.MAX_CHAIN_DEPTH,
        description="Calls of a chain at most: the second is drawn after the first one's response, at the same "
        "position, and so on (default: 1, no chains, as in the paper)",
    )
    max_examples: Annotated[int, _CALLS] = Field(
        _ASSEMBLE.max_examples, gt=0, description="Examples per tool at most (paper: 25,000)"
    )
    max_same_call: Annotated[int | None, _CALLS] = Field(
        None,
        gt=0,
        description="Texts that may keep a call of one tool, input and response; `seed` chooses them (default: all)",
    )
    stop_when_full: Annotated[bool, _CALLS] = Field(
        False,
        description="Stop a tool's stages once `max_examples` of it are certain; shards are then taken in an order "
        "that `seed` decides, and stored yields describe only the part of the corpus that was annotated",
    )
    temperature: Annotated[float, _CALLS] = Field(
        _SAMPLE.temperature, gt=0, description="Temperature of the samples; the paper samples from M as it is"
    )
    mt_chunk_words: Annotated[int, _CALLS] = Field(
        _PREFILTER.chunk_words,
        gt=0,
        description="Words a foreign passage must have for mt's prefilter to count it (paper: 10 tokens, some 4 words)",
    )
    seed: int = Field(0, description="Seed of every random choice")
    shard_documents: Annotated[fields.ShardDocuments, fields.RUNNING] = _INGEST.shard_documents
    max_chars: Annotated[int, _CORPUS] = Field(
        _INGEST.max_chars, gt=0, description="Characters of a text at most; longer texts are rejected as too_long"
    )
    columns: Annotated[fields.Columns, _CORPUS] = Field(
        default_factory=dict,
        description="Columns of the corpus, where they have other names than usual (text, raw_content; url, "
        "metadata.url; timestamp, date_download, created)",
    )
    deduplicate: Annotated[bool, _CORPUS] = Field(
        False,
        description="Drop near-duplicates of earlier documents, by MinHash of five words in a row (datatrove's "
        "defaults: 14 bands of 8 hashes)",
    )
    mask_pii: Annotated[bool, _CORPUS] = Field(
        False,
        description="Mask e-mail addresses and telephone numbers, a * for each character; `explain` shows the whole "
        "text",
    )
    decontaminate: Annotated[fields.Benchmarks, _CORPUS] = []  # noqa: RUF012 - pydantic copies it
    decontaminate_drops: Annotated[Literal["documents", "calls"], _CORPUS] = Field(
        "documents",
        description="What `decontaminate` drops. documents: those that hold an item; calls: only kept calls at the "
        "words that a text shares with it, or within five tokens before them",
    )
    ngram: Annotated[int, _CORPUS] = Field(
        config.NGRAM,
        gt=0,
        description="Words in a row by which `decontaminate` finds an item (as GPT-3 and lm-eval do); of a shorter "
        f"question all its words, if it has {config.MIN_WORDS}",
    )
    prompts: Annotated[fields.AbsolutePath | None, fields.TOOLS] = Field(
        None, description="Folder with prompts of your own: TOOL.txt, each with one {text}"
    )
    passages: Annotated[fields.Passages, fields.TOOLS] = None
    qa_reader: Annotated[fields.QAReader, fields.TOOLS] = None
    translator: Annotated[fields.TranslatorModel, fields.TOOLS] = None
    workers: Annotated[int, fields.RUNNING] = Field(4, gt=0, description="Tasks at a time (threads), or Dask workers")
    gpus: Annotated[fields.Gpus, fields.RUNNING] = None
    licence: Annotated[str, _CORPUS] = Field("", description="The corpus's licence, for the dataset's card")
    replace: Annotated[bool, fields.RUNNING] = Field(
        False, description="Let a version of another corpus, or of fewer of its rows, follow the dataset's current one"
    )
    answers: Annotated[Literal["new", "stored", "retry"], fields.TOOLS] = Field(
        "new",
        description="Which calls are run. new: those that no earlier build ran; stored: nothing, and the build stops "
        "where an answer is missing; retry: also what failed for a passing reason (timeout, crashed, unreachable, "
        "...); where nothing did, nothing is done again",
    )

    @property
    def thresholds(self) -> dict[str, float]:
        """The filtering thresholds that are given as such, in nats, by tool."""
        return {tool: float(value) for tool, value in self.tau_f.items() if not isinstance(value, str)}

    @property
    def rates(self) -> dict[str, float]:
        """The rates of false discoveries that thresholds are to be found for, by tool or `ALL`."""
        return promised_rates(self.tau_f)

    @property
    def decoys_of_a_call(self) -> int:
        """How many decoys a call gets."""
        return (DECOYS_FOR_RATES if self.rates else 0) if self.decoys is None else self.decoys


def build_command(p: BuildParameters, **changes: Any) -> str:
    """Return the command line of a build with these parameters and `changes`; defaults but the folder are left out."""
    parts = ["toolformer", "build"]
    given = p.model_copy(update=changes)
    tools = {"tools": given.tools} if given.tool else {}  # with --tool, all five are not the default
    for name, value in (given.model_dump(exclude_defaults=True) | tools | {"data": p.data}).items():
        option = f"--{name.replace('_', '-')}"
        if name in ("tool", "decontaminate"):
            parts += [word for one in value for word in (option, one)]
        elif isinstance(value, bool):
            parts.append(option if value else option.replace("--", "--no-", 1))
        elif name != "tools" or value:  # no tools but those of --tool is what --tool alone says
            parts += [option, fields.as_text(value)]
    return shlex.join(parts)
