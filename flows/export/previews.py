"""Some examples of an export, with what is trained and what is not: by tokens, segments, or turns of a chat."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, islice

from flows.export.find import find_dataset
from flows.export.formats import Row
from flows.export.run import batches_of, prepare
from flows.export.settings import ExportSettings
from toolformer_core.errors import UsageError
from toolformer_core.export.conversation import LeftOut, conversation_of
from toolformer_core.export.pieces import segment_row
from toolformer_core.export.tokens import NOT_TRAINED, token_rows
from toolformer_core.lm.load import LoadedTokenizer
from toolformer_core.records import Example
from toolformer_core.syntax import linearize
from warehouse.store import Store

PREVIEWED = 10


@dataclass(frozen=True, slots=True)
class Preview:
    """An example as a trainer will have it."""

    doc_id: str
    parts: tuple[tuple[str, bool], ...]  # (text, whether it is trained); no two neighbours are alike


def preview(store: Store, name: str, settings: ExportSettings, count: int = PREVIEWED) -> list[Preview]:
    """Return the first examples of an export that have a row; a UsageError: nothing is masked; see also `export_to`."""
    if settings.format not in ("tokens", "segments", "chat"):
        raise UsageError(
            f"--preview: the texts of --format {settings.format} are whole, and nothing in them is masked; it shows "
            "--format tokens, segments or chat"
        )
    dataset = find_dataset(store, name)
    prepared = prepare(store, dataset, settings)
    examples = (example for batch in batches_of(store, dataset) for example in batch)
    with_row = (example for example in examples if isinstance(prepared.make([example])[0], Row))
    return [
        Preview(example.doc_id, tuple(_merged(_parts(example, settings, prepared.tokenizer))))
        for example in islice(with_row, count)
    ]


def _parts(example: Example, settings: ExportSettings, tokenizer: LoadedTokenizer | None) -> Iterator[tuple[str, bool]]:
    if settings.format == "segments":
        yield from ((segment["text"], segment["label"]) for segment in segment_row(example)["segments"])
    elif settings.format == "tokens":
        assert tokenizer is not None  # the settings have checked it
        (row,) = token_rows(tokenizer.tokenizer, [example], start=tokenizer.start, end=tokenizer.end)
        yield from ((text, label != NOT_TRAINED) for text, label in zip(row.texts, row.labels, strict=True))
    elif not isinstance(found := conversation_of(example, settings.requests), LeftOut):
        for turn in found:
            call = turn.call if turn.role == "assistant" else None
            yield f"{turn.role}: ", False
            yield turn.content + (linearize(call) if call else ""), turn.role == "assistant"
            yield "\n", False


def _merged(parts: Iterable[tuple[str, bool]]) -> Iterator[tuple[str, bool]]:
    for trained, group in groupby((part for part in parts if part[0]), key=lambda part: part[1]):
        yield "".join(text for text, _ in group), trained
