import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from tests.support.tiny_checkpoints import save_span_model
from toolformer_core.errors import ModelError
from toolformer_core.records import ToolFailure, ToolResponse
from toolformer_core.tools.build import choose_reader
from toolformer_core.tools.hf.batches import batches, padded
from toolformer_core.tools.qa import QA
from toolformer_core.tools.qa_readers import spans
from toolformer_core.tools.qa_readers.spans import SpanReader
from toolformer_core.tools.search.passages import Hit, Passage, PassageIndex

WORDS = "velden is a town in the north mayor of tora lind who where garrow capital ostmark river sella".split()
TEXTS = {
    "Velden": "Velden is a town in the north. The mayor of Velden is Tora Lind. " + "It is in the north. " * 12,
    "Garrow": "Garrow is the capital of Ostmark (the river Sella is in Garrow).",
    "Ostmark": "Ostmark.",
}
QUESTIONS = [
    "Who is the mayor of Velden?",
    "",
    "What is the capital of Ostmark, in the north of the river, where Velden is a town, and the mayor is Tora Lind?",
    "Zebra?",
    "Where is Garrow?",
    "Where is the river Sella?",
    "Who is the mayor of Velden?",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bert")
    save_span_model(path, WORDS)
    return path


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> PassageIndex:
    path = tmp_path_factory.mktemp("passages") / "passages.jsonl"
    path.write_text("\n".join(json.dumps({"title": t, "text": x}) for t, x in TEXTS.items()), encoding="utf-8")
    return PassageIndex(path)


@pytest.fixture
def any_span(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "_LEAST_MARGIN", -1e9)  # a margin that every span has


def hits(*texts: str) -> list[Hit]:
    return [Hit(Passage(n, "Title", "", text), 1.0 / (n + 1)) for n, text in enumerate(texts)]


@pytest.mark.usefixtures("any_span")
def test_batches_answer_as_one_by_one(folder: Path, index: PassageIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = QA(index, SpanReader(str(folder)))
    alone = [tool.run(question) for question in QUESTIONS]
    assert tool.run_batch([(question, "") for question in QUESTIONS]) == alone
    assert alone[1] == ToolFailure("empty_input")
    assert alone[3] == ToolFailure("no_result")
    answers = [result.text for result in alone if isinstance(result, ToolResponse)]
    assert len(answers) == 5
    assert len(set(answers)) > 1  # it says different things of different questions
    assert all(any(answer in f"{title}. {text}" for title, text in TEXTS.items()) for answer in answers)
    monkeypatch.setattr(spans, "_BATCH_TOKENS", 100)  # in several passes
    assert tool.run_batch([(question, "") for question in QUESTIONS]) == alone
    assert tool.run_batch([]) == []


@pytest.mark.usefixtures("any_span")
def test_the_answer_has_the_largest_margin_of_all_windows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compared with the plain computation: every window by itself, every pair of its tokens."""
    reader = SpanReader(str(folder))
    question, shown = "Who is the mayor?", hits(TEXTS["Velden"], TEXTS["Garrow"])
    loaded = reader.load()
    best, expected, windows = -1e18, "", 0
    for hit in shown:
        text = f"Title. {hit.passage.text}"
        for part in _parts(loaded.tokenizer, question, text):
            windows += 1
            ids = torch.tensor([part["input_ids"]])
            kinds = torch.tensor([part["token_type_ids"]])
            places = part["offset_mapping"]
            with torch.inference_mode():
                out = loaded.model(input_ids=ids, token_type_ids=kinds)
            start, end = out.start_logits[0].tolist(), out.end_logits[0].tolist()
            inside = [n for n in range(ids.shape[1]) if kinds[0, n] == 1 and ids[0, n] != 3]
            for i in inside:
                for j in inside:
                    margin = start[i] + end[j] - start[0] - end[0]
                    if i <= j < i + 30 and margin > best + 1e-4:
                        best, expected = margin, text[places[i][0] : places[j][1]]
    assert windows > 2
    assert reader.read([(question, shown)]) == [expected.strip()]
    for margin, answer in ((best - 0.01, expected.strip()), (best + 0.01, None)):
        monkeypatch.setattr(spans, "_LEAST_MARGIN", margin)
        assert reader.read([(question, shown)]) == [answer]


def _parts(tokenizer: Any, question: str, text: str) -> list[dict[str, Any]]:
    encoded = tokenizer(
        question,
        text,
        truncation="only_second",
        max_length=64,
        stride=16,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    keys = ("input_ids", "token_type_ids", "offset_mapping")
    return [{key: encoded[key][n] for key in keys} for n in range(len(encoded["input_ids"]))]


def test_an_answer_has_at_most_thirty_tokens() -> None:
    # 40 letters; the start is best at the first and the end at the last, which are 40 tokens apart
    text = "abcdefghij" * 4
    window = spans._Window(0, text, {}, [(0, 0), *((n, n + 1) for n in range(40))], 0)
    starts, ends = np.zeros(41), np.zeros(41)
    starts[1], ends[40], ends[30], ends[31] = 5.0, 5.0, 1.0, 2.0
    # from token 1 to token 30: 5 + 1; token 31 would be the thirty-first; from token 11 on to token 40: 0 + 5
    assert spans._best_span(window, starts, ends) == (6.0, text[:30])
    nowhere = spans._Window(0, text, {}, [(0, 0)] * 41, 0)
    assert spans._best_span(nowhere, starts, ends) == (-np.inf, "")


@pytest.mark.usefixtures("any_span")
def test_any_text_may_be_asked(folder: Path) -> None:
    asked = [("\ud800 ?", hits("Velden.")), ("mayor " * 500, hits("Velden.")), ("Who?", [])]
    assert [answer is None for answer in SpanReader(str(folder)).read(asked)] == [False, False, True]


@pytest.mark.usefixtures("any_span")
def test_the_model_is_loaded_once_and_travels_as_its_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = SpanReader(str(folder))
    first.load()
    monkeypatch.setattr(transformers.AutoModelForQuestionAnswering, "from_pretrained", None)  # a second would fail
    copy = pickle.loads(pickle.dumps(first))
    assert copy.digest == first.digest
    asked = [("Who?", hits(TEXTS["Velden"]))]
    assert copy.read(asked) == first.read(asked)


def test_what_the_digest_follows(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_span_model(tmp_path, WORDS, seed=2)
    digests = [SpanReader(str(folder)).digest, SpanReader(str(tmp_path)).digest]
    (tmp_path / "tokenizer_config.json").write_text("{}")
    digests.append(SpanReader(str(tmp_path)).digest)
    monkeypatch.setattr(spans, "_LEAST_MARGIN", 1.0)
    assert len({*digests, SpanReader(str(tmp_path)).digest}) == 4


@pytest.mark.parametrize(
    ("config", "wrong"),
    [
        ('{"architectures": ["LlamaForCausalLM"]}', r"\(LlamaForCausalLM\) cannot read passages for QA: give an"),
        ('["a list"]', "cannot be read as an object"),
        ("{", "cannot be read as an object"),
    ],
)
def test_the_architecture_chooses_the_reader(tmp_path: Path, config: str, wrong: str) -> None:
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(ModelError, match=wrong):
        choose_reader(str(tmp_path))


def test_a_model_that_cannot_be_used_is_an_error(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is a folder without"):
        SpanReader(str(tmp_path))
    with pytest.raises(ModelError, match="no folder"):
        SpanReader(str(tmp_path / "no such"))
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    with pytest.raises(ModelError, match="has no tokenizer"):
        SpanReader(str(tmp_path)).load()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    with pytest.raises(ModelError, match="cannot be loaded"):
        SpanReader(str(tmp_path)).load()


def test_missing_weights_are_an_error_and_not_random(folder: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    save_span_model(tmp_path, WORDS)
    weights = load_file(tmp_path / "model.safetensors")
    kept = {name: tensor for name, tensor in weights.items() if not name.startswith("qa_outputs")}
    save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lacks 2 of its weights \(e.g. qa_outputs"):
        SpanReader(str(tmp_path)).load()


def test_batches_hold_the_longest_first_and_no_more_than_they_may() -> None:
    # lengths 3, 9, 2, 4 in batches of 10 tokens: 9 alone (two would be 18), then 4 and 3 (2 x 4; 3 x 4 is 12), then 2
    assert list(batches([3, 9, 2, 4], 10)) == [[1], [3, 0], [2]]
    assert list(batches([20], 10)) == [[0]]
    assert list(batches([], 10)) == []
    assert padded([[1, 2], [3]], 7, "cpu").tolist() == [[1, 2], [3, 7]]
