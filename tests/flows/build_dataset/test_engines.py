"""A build whose QA reads and whose MT translates with models: small ones with random weights."""

import gzip
import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from flows.build_dataset.flow import run_build
from tests.support.small_builds import small_build, write_jsonl
from tests.support.tiny_checkpoints import save_nllb, save_span_model
from toolformer_core.annotate.execute import execute
from toolformer_core.config import ExecuteConfig
from toolformer_core.embedded import CORPUS
from toolformer_core.tools.build import ToolSettings, build_tools
from toolformer_core.tools.qa_readers.spans import SpanReader
from toolformer_core.tools.translators.models import M2M100Translator
from warehouse.queries import rows_of

WORDS = "who is the mayor of where was born founded when company what made".split()
TEXTS = [
    "le tisserand sans la peinture",
    "el historiador o la moneda",
    "der hund und die katze",
    "the dog and the coin",
]
FOREIGN = [
    "Le tisserand de la ville est assis sans la peinture dans la maison du boulanger",
    "El historiador de la ciudad tiene la moneda en la casa de la madre con el perro",
    "Der Hund und die Katze sind heute in dem alten Haus am Fluss bei der Stadt",
    "Il pittore della nave ha la moneta nella casa della madre con il cane e il gatto",
]
CODES = ["eng_Latn", "deu_Latn", "fra_Latn", "spa_Latn", "ita_Latn"]


@pytest.mark.slow
def test_a_build_asks_its_engines(prefect_server: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_span_model(tmp_path / "bert", WORDS, positions=300)
    save_nllb(tmp_path / "nllb", TEXTS, CODES)
    together: dict[str, list[int]] = {"qa": [], "mt": []}
    read, translate = SpanReader.read, M2M100Translator.translate

    def reading(reader: SpanReader, questions: Sequence[tuple[str, Sequence[object]]]) -> list[object]:
        together["qa"].append(len(questions))
        return read(reader, questions)  # type: ignore[arg-type, return-value]

    def translating(translator: M2M100Translator, texts: Sequence[tuple[str, Sequence[str]]]) -> list[str | None]:
        together["mt"].append(len(texts))
        return translate(translator, texts)

    monkeypatch.setattr(SpanReader, "read", reading)
    monkeypatch.setattr(M2M100Translator, "translate", translating)
    with gzip.open(CORPUS, "rt", encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in itertools.islice(lines, 16)]
    texts += [
        f"The sign in the village says: {words}. Nobody in the town knew what the sign says." for words in FOREIGN
    ]
    corpus = write_jsonl(tmp_path / "corpus.jsonl", texts)
    engines = {"qa_reader": str(tmp_path / "bert"), "translator": str(tmp_path / "nllb")}
    asked = {"tools": ["qa", "mt"], "shard_documents": 20, "top_k": 3, "draws": 2}
    result = run_build(small_build(corpus, tmp_path / "data", **asked, **engines))
    rows = rows_of(result.snapshot, "SELECT tool, input, context, response, failure FROM executed ORDER BY ALL")
    tools = build_tools(["qa", "mt"], ToolSettings(**engines))  # type: ignore[arg-type]
    for key, tool in tools.items():
        found = [row for row in rows if row["tool"] == key]
        questions = [(row["input"], row["context"]) for row in found]
        alone = [execute(tool, [question], ExecuteConfig())[0] for question in questions]
        assert [(row["response"], row["failure"]) for row in found] == [(one.response, one.failure) for one in alone]
        assert sum(bool(row["response"]) for row in found) > 1
        assert max(together[key]) > 1
    again = run_build(small_build(corpus, tmp_path / "data", **asked, **engines))
    assert again.done == 0  # the same engines: nothing is left to do
