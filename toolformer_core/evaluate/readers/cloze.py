"""LAMA and TempLAMA: statements that end in a mask.

    | release               | statement                                         | answers                              |
    |-----------------------|---------------------------------------------------|--------------------------------------|
    | SQuAD, Google-RE      | `masked_sentences`, joined                        | `obj_label`, `obj_aliases`           |
    | T-REx, by evidences   | the first `evidences[].masked_sentence` that fits | `obj_label`, that evidence's surface |
    | the hub's             | `masked_sentence`                                 | `obj_label`, `obj_aliases`, surface  |
    | any with a `template` | the template, if there is no sentence             | `obj_label`                          |
    | T-REx triples         | our phrase for the relation                       | `obj_label`                          |
    | TempLAMA              | `query`                                           | `answer[].name`, `answer[].aliases`  |

A statement is used if it holds one mask, followed only by punctuation (§4.2.1); any other row is `mask_not_last`. There
is one example per fact. TempLAMA only gives a year; the date is set to July 1, the middle of the year.
"""

import re
import tomllib
from collections.abc import Iterator
from datetime import date
from functools import cache
from pathlib import Path, PurePath

from toolformer_core.evaluate.items import BadRowError, BenchmarkRow, Item, item_of
from toolformer_core.evaluate.prompts import completion
from toolformer_core.evaluate.readers.rows import optional, text_of, texts_in

_CLOSING = r"[\s.,;:!?\"'”’»)\]…]*"
_MASK, _BLANK = "[MASK]", "_X_"


@cache
def relations() -> dict[str, str]:
    """Return our phrase for each relation of T-REx, by its Wikidata property (`relations.toml`)."""
    return tomllib.loads(Path(__file__).with_name("relations.toml").read_text("utf-8"))


def lama(task: str, row: BenchmarkRow, source: str) -> Item:
    label = text_of(row, "obj_label")
    aliases = texts_in(optional(row, "obj_aliases"))
    predicate, of_file = optional(row, "predicate_id"), re.match(r"P\d+", PurePath(source).name)
    relation = predicate if isinstance(predicate, str) else of_file[0] if of_file else ""
    statements = list(_statements(row, relation))
    if not statements:
        raise BadRowError("no_statement", "no masked sentence, no template, and no relation that is known")
    for statement, surfaces in statements:
        if (prefix := _before(statement, _MASK)) is not None:
            return item_of(
                task,
                completion(prefix),
                [label, *aliases, *surfaces],
                item_id=optional(row, "uuid", "id"),
                group=relation or str(optional(row, "pred") or ""),
            )
    raise BadRowError("mask_not_last", f"{_MASK} must stand once, at the end: {statements[0][0][-100:]}")


def templama(task: str, row: BenchmarkRow, source: str) -> Item:
    query = text_of(row, "query").strip()
    if (prefix := _before(query, _BLANK)) is None:
        raise BadRowError("mask_not_last", f"{_BLANK} must stand once, at the end: {query[-100:]}")
    answers: list[str] = []
    value = optional(row, "answer", "answers")
    for answer in value if isinstance(value, list) else [value]:
        given = [answer.get("name"), answer.get("aliases")] if isinstance(answer, dict) else [answer]
        answers += [text for one in given for text in texts_in(one)]
    item_id = optional(row, "id")
    relation = re.search(r"P\d+", str(optional(row, "relation") or item_id or ""))
    return item_of(
        task,
        completion(prefix),
        answers,
        item_id=item_id,
        date=_day(row.get("date")),
        group=relation[0] if relation else "",
    )


def _statements(row: BenchmarkRow, relation: str) -> Iterator[tuple[str, list[str]]]:
    """Yield a row's statements with their additional answers; a template is only used if there is no sentence."""
    sentences = texts_in(optional(row, "masked_sentences")) or texts_in(optional(row, "masked_sentence"))
    if sentences:
        yield " ".join(s.strip() for s in sentences), texts_in(optional(row, "obj_surface"))
    evidences = optional(row, "evidences")
    for evidence in evidences if isinstance(evidences, list) else []:
        if isinstance(evidence, dict) and isinstance(sentence := evidence.get("masked_sentence"), str):
            sentences.append(sentence)
            yield sentence, texts_in(evidence.get("obj_surface"))
    template, subject = optional(row, "template"), optional(row, "sub_label")
    if sentences or not isinstance(subject, str) or not subject.strip():
        return
    if isinstance(template, str) and "[X]" in template:
        yield template.replace("[X]", subject.strip()).replace("[Y]", _MASK), []
    elif phrase := relations().get(relation):
        yield f"{phrase.format(x=subject.strip())} {_MASK}", []


def _before(statement: str, mask: str) -> str | None:
    """Return the text before the mask; None unless there is some, and the only mask is at the end."""
    before, separator, after = statement.partition(mask)
    return before.rstrip() if separator and before.strip() and re.fullmatch(_CLOSING, after) else None


def _day(value: object) -> str:
    text = value.isoformat() if isinstance(value, date) else str(value if value is not None else "").strip()
    try:
        if re.fullmatch(r"\d{4}", text):
            return date(int(text), 7, 1).isoformat()
        return date.fromisoformat(text[:10]).isoformat()
    except ValueError as exc:
        raise BadRowError("no_date", f"{text[:40]!r} is neither a year nor an ISO date") from exc
