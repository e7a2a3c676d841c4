"""Examples as the rows of each format, and what writes rows to a file or folder, one after the other."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from flows.export.settings import ExportSettings
from toolformer_core.errors import UsageError
from toolformer_core.export.conversation import LeftOut, conversation_of
from toolformer_core.export.dialects import check_template, openai_row, rendered, sharegpt_row, special_tokens_in
from toolformer_core.export.pieces import segment_row
from toolformer_core.export.schemas import ToolSchema
from toolformer_core.export.tokens import token_rows
from toolformer_core.lm.load import LoadedTokenizer
from toolformer_core.records import Example, digest_of
from toolformer_core.tools.arguments.form import BadInput
from warehouse.commits import Dataset

ARGUMENTS = "arguments"  # the reason of a text with a call that the tool, as it is here, would refuse
SPECIAL = "special"  # the reason of a text that holds a special token of the tokenizer whose template renders it
_HF_ROWS = 10_000  # per Arrow batch
_HF_DATA = "data-00000-of-00001.arrow"
_HF_SCHEMA = pa.schema([("doc_id", pa.string()), ("text", pa.string())])


@dataclass(frozen=True, slots=True)
class Row:
    content: Any  # lines of text, or the columns of an Arrow row
    counts: Mapping[str, int] = field(default_factory=dict)  # what is trained and what is masked of it


Maker = Callable[[Sequence[Example]], list[Row | LeftOut]]  # why an example has no row: `LeftOut`
Sink = Callable[[Any], object]  # writes the content of a row


def maker_of(settings: ExportSettings, tokenizer: LoadedTokenizer | None, schemas: Mapping[str, ToolSchema]) -> Maker:
    """Return what makes the rows of a format; `schemas` are those of the dataset's tools, by their names in calls."""
    if settings.format == "tokens":
        assert tokenizer is not None  # the settings have checked it
        return lambda examples: _tokens(tokenizer, examples)
    if settings.spoken == "text":
        assert tokenizer is not None
        check_template(tokenizer.tokenizer, settings.argument_form or "dict")
    makers: dict[str, Callable[[Example], Row | LeftOut]] = {
        "text": lambda example: _text(example, settings.ending),
        "jsonl": _jsonl,
        "hf": lambda example: Row({"doc_id": example.doc_id, "text": example.text}),
        "segments": _segments,
        "chat": lambda example: _chat(example, settings, tokenizer, schemas),
    }
    make = makers[settings.format]
    return lambda examples: [make(example) for example in examples]


def _line(row: Any, counts: Mapping[str, int] | None = None) -> Row:
    return Row(json.dumps(row, ensure_ascii=False) + "\n", counts or {})


def _text(example: Example, separator: str) -> Row:
    end = f"\n{separator}\n"
    if end in f"\n{example.text}\n":
        raise UsageError(
            f"document {example.doc_id} holds a line {separator!r} itself: choose another --separator, "
            "or --format jsonl"
        )
    return Row(example.text + end)


def _jsonl(example: Example) -> Row:
    calls = [{name: getattr(call, name) for name in call.__slots__} for call in example.calls]
    return _line({"doc_id": example.doc_id, "text": example.text, "calls": calls})


def _segments(example: Example) -> Row:
    row = segment_row(example)
    trained = sum(len(segment["text"]) for segment in row["segments"] if segment["label"])
    total = len(example.text)
    return _line(row, {"characters": total, "trained": trained, "masked": total - trained})


def _tokens(tokenizer: LoadedTokenizer, examples: Sequence[Example]) -> list[Row | LeftOut]:
    def row_of(one: Any) -> Row:
        total = len(one.input_ids)
        return _line(one.row(), {"tokens": total, "trained": one.trained, "masked": total - one.trained})

    return [row_of(one) for one in token_rows(tokenizer.tokenizer, examples, start=tokenizer.start, end=tokenizer.end)]


def _chat(
    example: Example, settings: ExportSettings, tokenizer: LoadedTokenizer | None, schemas: Mapping[str, ToolSchema]
) -> Row | LeftOut:
    conversation = conversation_of(example, settings.requests)
    if isinstance(conversation, LeftOut):
        return conversation
    counts = {"turns": len(conversation), "calls": len(example.calls)}
    try:
        if settings.spoken == "sharegpt":
            return _line(sharegpt_row(conversation, schemas, settings.requests), counts)
        if settings.spoken == "openai":
            return _line(openai_row(conversation, schemas, settings.argument_form or "json"), counts)
        assert tokenizer is not None
        said = [text for turn in conversation for text in (turn.content, turn.call.input if turn.call else "")]
        if special_tokens_in(tokenizer.tokenizer, said):
            return LeftOut(SPECIAL)
        text = rendered(tokenizer.tokenizer, conversation, schemas, settings.argument_form or "dict")
    except BadInput:
        return LeftOut(ARGUMENTS)
    return _line({"text": text}, counts)


def sink_of(settings: ExportSettings, path: Path, dataset: Dataset, split: str) -> AbstractContextManager[Sink]:
    """Return what writes the rows of a split to a path."""
    if settings.format != "hf":
        return _lines(path)
    # by its fingerprint `datasets` tells contents apart
    parts = [split, f"{settings.dev:g}", str(settings.seed)]
    return _hf_folder(path, dataset, digest_of(dataset.version, *parts)[:16] if settings.dev else dataset.version)


@contextmanager
def _lines(path: Path) -> Iterator[Sink]:
    with path.open("w", encoding="utf-8", newline="\n") as stream:
        yield stream.write


@contextmanager
def _hf_folder(folder: Path, dataset: Dataset, fingerprint: str) -> Iterator[Sink]:
    folder.mkdir(parents=True)
    batch: list[dict[str, str]] = []
    with pa.OSFile(str(folder / _HF_DATA), "wb") as file, pa.ipc.new_stream(file, _HF_SCHEMA) as stream:

        def write_batch() -> None:
            if batch:
                stream.write_batch(pa.RecordBatch.from_pylist(batch, _HF_SCHEMA))
                batch.clear()

        def write(row: dict[str, str]) -> None:
            batch.append(row)
            if len(batch) == _HF_ROWS:
                write_batch()

        yield write
        write_batch()
    text = {"dtype": "string", "_type": "Value"}
    info = {
        "citation": "",
        "description": f"C* {dataset.name}@{dataset.version}, annotated by {dataset.model}",
        "features": {"doc_id": text, "text": text},
        "homepage": "",
        "license": dataset.licence,
    }
    state: dict[str, Any] = {
        "_data_files": [{"filename": _HF_DATA}],
        "_fingerprint": fingerprint,
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": None,
    }
    (folder / "dataset_info.json").write_text(json.dumps(info, indent=2), encoding="utf-8")
    (folder / "state.json").write_text(json.dumps(state, indent=2), encoding="utf-8")
