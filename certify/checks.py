"""What a loader gave, against what was expected: no row missing, no token more or less, every label as promised."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from certify.cases import Expected
from certify.promise import BrokenPromiseError, Promise, labels_of
from toolformer_core.errors import UsageError
from toolformer_core.export.restore import restore
from toolformer_core.export.tokens import NOT_TRAINED

Pieces = Callable[[Sequence[int]], list[bytes]]


@dataclass(frozen=True, slots=True)
class Finding:
    rows_in: int
    rows_read: int
    trained: int | None = None  # tokens; None: the rows are not tokens
    masked: int | None = None
    failure: str = ""  # the first difference; "" if there is none


def check(expected: Expected, answer: dict[str, Any], pieces: Pieces, texts: frozenset[str]) -> Finding:
    """Compare the answer of a loader's program with what was expected.

    `pieces` gives the bytes of tokens; `texts` holds x* of every example, one of which a row that promises it must be.
    """
    rows: list[dict[str, Any]] = answer["rows"]
    total = len(expected)
    if answer["error"]:
        return Finding(total, len(rows), failure=answer["error"])
    promises = [one for one in expected if isinstance(one, Promise)]
    if not promises:
        failure = _wrong_row([one for one in expected if not isinstance(one, Promise)], rows, texts)
        labels = [label for row in rows for label in row.get("labels", ())]
        if not labels:
            return Finding(total, len(rows), failure=failure)
    else:
        failure = _wrong_tokens(promises, rows, pieces)
        labels = [label for row in rows for label in _unpadded(row)["labels"]]
    trained = sum(label != NOT_TRAINED for label in labels)
    failure = failure or _other_number(total, len(rows))
    return Finding(total, len(rows), trained, len(labels) - trained, failure)


def _other_number(wanted: int, given: int) -> str:
    return "" if wanted == given else f"{wanted} rows in, {given} read"


def _wrong_row(wanted: list[dict[str, Any]], rows: list[dict[str, Any]], texts: frozenset[str]) -> str:
    for n, (want, row) in enumerate(zip(wanted, rows, strict=False)):
        if want != row:
            key = next((key for key in {**want, **row} if want.get(key) != row.get(key)), "")
            return f"row {n}: {key} is {str(row.get(key))[:60]!r}, should be {str(want.get(key))[:60]!r}"
        if ({"segments", "messages", "conversations"} & set(row) or {"text", "calls"} <= set(row)) and (
            why := _not_restored(row, texts)
        ):
            return f"row {n}: {why}"
    return _other_number(len(wanted), len(rows))


def _not_restored(row: dict[str, Any], texts: frozenset[str]) -> str:
    try:
        return "" if restore(row) in texts else "the text that is restored is none of the dataset's"
    except UsageError as exc:
        return str(exc)


def _wrong_tokens(promises: list[Promise], rows: list[dict[str, Any]], pieces: Pieces) -> str:
    for n, (promise, padded) in enumerate(zip(promises, rows, strict=False)):
        if any(
            m == 0 and label != NOT_TRAINED for m, label in zip(padded["attention_mask"], padded["labels"], strict=True)
        ):
            return f"row {n}: padding is trained"
        row = _unpadded(padded)
        try:
            wanted = labels_of(row["input_ids"], pieces(row["input_ids"]), promise)
        except BrokenPromiseError as exc:
            return f"row {n}: {exc}"
        for at, (want, label) in enumerate(zip(wanted, row["labels"], strict=True)):
            if want != label:
                token = b"".join(pieces([row["input_ids"][at]])).decode(errors="replace")
                should = "be masked" if want == NOT_TRAINED else "be trained"
                return f"row {n}, token {at} ({token!r}): its label is {label}, it should {should}"
    return _other_number(len(promises), len(rows))


def _unpadded(row: dict[str, Any]) -> dict[str, list[int]]:
    kept = [at for at, mask in enumerate(row["attention_mask"]) if mask]
    return {name: [row[name][at] for at in kept] for name in ("input_ids", "labels")}
