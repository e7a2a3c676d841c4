"""A small C* and its exports, made by the program's own means and without a network.

Most of it are documents of the embedded corpus with their gold calls, answered by the tools themselves; the others are
difficult for templates and tokenizers.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from flows.export.run import export_to
from flows.export.settings import ExportSettings
from tasks.shards.arrow import stage_table
from toolformer_core.config import TOOL_NAMES
from toolformer_core.diagnose.gold import read_gold
from toolformer_core.records import Call, Example, InsertedCall, ToolFailure
from toolformer_core.syntax import interleave, linearize
from toolformer_core.tools.base import Tool
from toolformer_core.tools.build import build_tools
from warehouse.commits import Dataset, Run, dataset_version
from warehouse.store import Store

_NAME = "certified"
_MADE = "2026-01-01T00:00:00+00:00"
# Text, and calls as (words in front of which the call stands, tool, input, response).
_DIFFICULT: tuple[tuple[str, tuple[tuple[str, str, str, str], ...]], ...] = (
    (
        'The Latin "cogito, ergo sum" is by Descartes, and "veni, vidi, vici" by Caesar.',
        (
            (" Descartes", "qa", 'Who wrote "cogito, ergo sum"?', "René Descartes"),
            (" Caesar", "qa", 'Who wrote "veni, vidi, vici"?', 'Julius Caesar ("the elder")'),
        ),
    ),
    (
        "In C a line ends with \\n, a tab is \\t.\nTogether these are 2 characters \U0001f642 in source.",
        ((" 2 characters", "calculator", "1 + 1", "2"),),
    ),
    (
        "Η λέξη 日本 ist Japanese for Japan, and café is French for coffee house.",
        ((" Japan,", "mt", "日本", "Japan"), (" coffee", "mt", "café", "coffee [house]")),
    ),
    ("A note of the clerk says that it is Friday today.", ((" Friday", "calendar", "", "Today is Friday, May 3."),)),
    ("Twice 2.5 is 5.0, a line\n  and half of it 1.25.", ((" 5.0", "calculator", "2 * 2.5", "5"),)),
    ("A call within a word, as in half-0.5, has no conversation.", (("0.5", "calculator", "1 / 2", "0.50"),)),
)


def example_of(doc_id: str, text: str, calls: Sequence[tuple[int, str, str, str]]) -> Example:
    """Return an example of a text and its calls: position, tool, input, response; positions ascend."""
    written = [(at, linearize(Call(TOOL_NAMES[tool], given), response)) for at, tool, given, response in calls]
    augmented, spans = interleave(text, written)
    inserted = (
        InsertedCall(tool, at, *span, given, response, 1.0)
        for (at, tool, given, response), span in zip(calls, spans, strict=True)
    )
    return Example(doc_id, augmented, tuple(inserted))


def _difficult() -> Iterator[Example]:
    for n, (text, calls) in enumerate(_DIFFICULT):
        placed = [(text.index(words), tool, given, response) for words, tool, given, response in calls]
        yield example_of(f"difficult-{n}", text, placed)


def _of_the_corpus(tools: Mapping[str, Tool]) -> Iterator[Example]:
    """Yield documents with gold calls: in front of the space where one stands, and one call at a position."""
    texts = read_gold()
    for document in texts.documents:
        calls: dict[int, tuple[int, str, str, str]] = {}
        for gold in texts.calls.get(document.doc_id, ()):
            if gold.tool not in tools:
                continue
            result = tools[gold.tool].run(gold.input, document.created or "")
            at = gold.position - (document.text[gold.position - 1 : gold.position] == " ")
            if not isinstance(result, ToolFailure):
                calls.setdefault(at, (at, gold.tool, gold.input, result.text))
        if calls:
            yield example_of(document.doc_id, document.text, [calls[at] for at in sorted(calls)])


def difficult_cstar(folder: Path, documents: int = 26) -> Store:
    """Write a store with a C* of the difficult texts and this many documents of the embedded corpus."""
    tools = build_tools(list(TOOL_NAMES))
    return _stored(folder, [*_difficult(), *islice(_of_the_corpus(tools), documents)], tools)


def _stored(folder: Path, examples: Sequence[Example], tools: Mapping[str, Tool]) -> Store:
    store = Store(folder)
    files = (store.write("assemble", "", "s0", "f" * 32, stage_table("assemble", examples)),)
    counts = {tool: sum(any(call.tool == tool for call in one.calls) for one in examples) for tool in tools}
    run = Run(_NAME, "build_dataset", _MADE, _MADE, "completed", {"tools": list(tools)}, "embedded", "gold")
    store.write_run(run)
    store.write_dataset(
        Dataset(
            name=_NAME,
            version=dataset_version(files),
            files=files,
            counts=counts,
            thresholds=dict.fromkeys(tools, 0.0),
            run_id=run.run_id,
            model=run.model,
            corpus=run.corpus,
            created=_MADE,
            licence="Apache-2.0",
        )
    )
    return store


# Name of a file -> how it is exported; a tokenizer is named by its folder's name.
EXPORTS: dict[str, dict[str, Any]] = {
    "text.txt": {"format": "text"},
    "jsonl.jsonl": {"format": "jsonl"},
    "hf": {"format": "hf"},
    "tokens.jsonl": {"format": "tokens", "tokenizer": "plain"},
    "segments.jsonl": {"format": "segments"},
    "openai-json.jsonl": {"format": "chat", "dialect": "openai", "arguments": "json"},
    "openai-dict.jsonl": {"format": "chat", "dialect": "openai", "arguments": "dict"},
    "sharegpt.jsonl": {"format": "chat", "dialect": "sharegpt"},
    **{
        f"rendered-{name}.jsonl": {"format": "chat", "dialect": "text", "tokenizer": name}
        for name in ("chatml", "llama3", "mistral")
    },
}


def export_all(store: Store, folder: Path, tokenizers: Path) -> None:
    """Export a C* into a folder; `tokenizers` has a folder with the tokenizer of each name."""
    for name, given in EXPORTS.items():
        tokenizer = {"tokenizer": str(tokenizers / given["tokenizer"])} if "tokenizer" in given else {}
        export_to(store, _NAME, folder / name, ExportSettings(**{**given, **tokenizer}))
