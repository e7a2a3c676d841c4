"""Small made-up files in every benchmark's published format (`published_files`), and the items expected from each."""

import gzip
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from toolformer_core.evaluate.items import Item, RejectedRow

Rejected = list[tuple[int, str]]


@dataclass(frozen=True, slots=True)
class Format:
    """A file of a benchmark."""

    task: str
    name: str
    answers: list[tuple[str, ...]]  # of the items, in order
    rejected: Rejected = field(default_factory=list)  # line and reason
    prompts: list[str] = field(default_factory=list)  # ends of the items' prompts, where they are to be looked at
    dates: list[str | None] = field(default_factory=list)

    @property
    def file(self) -> Path:
        (key,) = [key for key, form in FORMATS.items() if form is self]
        return Path(__file__).with_name("published_files") / key / self.name

    def write(self, folder: Path) -> Path:
        path = folder / self.name
        path.parent.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(self.file, path))


def lines(*rows: object) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def packed(path: Path, how: str) -> Path:
    """Write a packed copy of a file of JSON lines."""
    data = path.read_bytes()
    if how == "parquet":
        out = path.with_suffix(".parquet")
        rows = [json.loads(line) for line in data.decode().splitlines()]
        names = dict.fromkeys(name for row in rows for name in row)
        pq.write_table(pa.table({name: [row.get(name) for row in rows] for name in names}), out)
        return out
    out = path.with_name(f"{path.name}.{how}")
    pack: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "zst": zstandard.ZstdCompressor().compress}
    out.write_bytes(pack[how](data))
    return out


def split(stream) -> tuple[list[Item], list[RejectedRow]]:
    every = list(stream)
    return [x for x in every if isinstance(x, Item)], [x for x in every if isinstance(x, RejectedRow)]


_MASK = "mask_not_last"
_WHO = ["Answer the following question: who built the mill?"]
FORMATS = {
    "lama-squad": Format(
        "lama-squad",
        "Squad/test.jsonl",
        [("Ulric",)],
        [(2, _MASK), (3, _MASK), (4, _MASK), (5, "no_obj_label")],
        ["factually correct: The old mill was built by"],
    ),
    "lama-google-re": Format(
        "lama-google-re",
        "Google_RE/place_of_birth_test.jsonl",
        [("Tarn", "Tarnby")],
        [(2, _MASK)],
        ["Ulric Vane is a miller . He was born in"],
    ),
    "lama-trex": Format(  # the second row is a triple: the relation is the file's
        "lama-trex",
        "TREx/P19.jsonl",
        [("France", "French"), ("Tarn",), ("Tarn",)],
        [(4, _MASK), (5, "same_fact"), (6, "no_statement")],
        ["Ulric Vane is", "The birthplace of Ona Reed is", "Ona came from"],
    ),
    "templama": Format(
        "templama",
        "test.json",
        [("Tarn United", "FC Reed"), ("FC Reed",)],
        [(2, _MASK), (3, "no_date"), (4, "no_answer")],
        ["Ulric Vane plays for", "Ona plays for"],
        ["2012-07-01", "2014-05-02"],
    ),
    "asdiv": Format(
        "asdiv",
        "ASDiv.xml",
        [("8",), ("1/4",)],
        [(11, "not_one_number"), (17, "broken_xml"), (24, "no_question")],
        ["Ana has six nuts & two figs. How many things has Ana? The answer is"],
    ),
    "asdiv-hub": Format("asdiv", "asdiv.jsonl", [("3",)], [(2, "not_one_number")]),
    "svamp": Format(
        "svamp",
        "SVAMP.json",
        [("44",), ("3.333333",), ("1",)],
        [(10, "no_question"), (15, "not_an_object"), (17, "not_one_number"), (18, "broken_json")],
        ["Each box costs 64 coins. If 20 coins are taken off How much is a box? The answer is"],
    ),
    "mawps": Format(
        "mawps",
        "SingleOp.json",
        [("7",), ("11",)],
        [(12, "not_one_number"), (24, "no_squestion")],
        ["Two and 5 ? The answer is"],
    ),
    "mawps-hub": Format(
        "mawps",
        "mawps.jsonl",
        [("7",), ("10",), ("2.5",)],
        [(3, "no_number")],
        ["Two and 5? The answer is", "8 and 2 ? The answer is"],
    ),
    "mawps-fold": Format(
        "mawps",
        "mawps_fold0_test.orig.jsonl",
        [("7",)],
        [(2, "not_one_number"), (3, "no_squestion")],
        ["Two and 5 ? The answer is"],
    ),
    "gsm8k": Format(
        "gsm8k",
        "test.jsonl",
        [("5",), ("1234",), ("-3",)],
        [(4, "no_answer"), (5, "not_one_number"), (6, "broken_json"), (7, "not_an_object")],
        ["Two and three? The answer is"],
    ),
    "webqs": Format(
        "webqs",
        "webquestions.test.json",
        [("Tarn", "Reed")],
        [(3, "no_answer"), (4, "no_question")],
        ["Answer the following question: where is the mill?"],
    ),
    "webqs-stanford": Format("webqs", "webquestions.examples.test.json", [('Ona "O" Reed', "Tarn", "St. R")]),
    "nq": Format(
        "nq",
        "NQ-open.dev.jsonl",
        [("Ulric Vane", "Ulric"), ("a cross",), ("Ulric Vane", "Ulric")],
        [(2, "no_answer"), (4, "no_question")],
        _WHO,
    ),
    "nq-tsv": Format(
        "nq",
        "nq-test.qa.tsv",
        [("Ulric Vane", "Ulric's son"), ("Tarn",), ("Ona 'O' Reed",), ("a house",), ("Tarn",)],
        [(6, "wrong_columns"), (7, "no_answer")],
        _WHO,
    ),
    "triviaqa": Format(
        "triviaqa",
        "unfiltered-web-dev.json",
        [("Ulric", "Ulric Vane", "The Miller", "ulric", "ulric vane", "miller")],
        [(24, "no_answer")],
    ),
    "triviaqa-hub": Format("triviaqa", "trivia.jsonl", [("Ulric", "Vane", "vane")]),
    "mlqa-es": Format(
        "mlqa-es",
        "dev/dev-context-en-question-es.json",
        [("1850",), ("by the water",)],
        [(4, "no_answer"), (4, "no_context"), (4, "no_question")],
        ["the question that follows: ¿Cuándo se construyó?"],
    ),
    "mlqa-hub": Format("mlqa-zh", "rows.jsonl", [("Tarn",)], [], ["磨坊在哪里？"]),
    "small-world": Format(
        "small-world",
        "heldout.jsonl",
        [("42",), ("Monday",)],
        [(3, "unknown_tool"), (4, "no_date"), (5, "no_answer"), (6, "no_prompt")],
        ["Adding 12 to 30 gives", "Today is"],
        [None, "2020-03-16"],
    ),
}
