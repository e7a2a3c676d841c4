import pickle
from pathlib import Path

import pytest
import torch

from tests.support.tiny_checkpoints import save_t5
from toolformer_core.tools.build import choose_reader
from toolformer_core.tools.hf.batches import write_greedily
from toolformer_core.tools.qa_readers import text_to_text
from toolformer_core.tools.qa_readers.answers import answer_of, passages_text
from toolformer_core.tools.qa_readers.text_to_text import TextToTextReader
from toolformer_core.tools.search.passages import Hit, Passage

WORDS = "answer the question in a few words passages velden town mayor of is tora lind who where garrow".split()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("t5")
    save_t5(path, WORDS)
    return path


def hits(*texts: str) -> list[Hit]:
    return [Hit(Passage(n, f"Title {n}", "", text), 1.0 / (n + 1)) for n, text in enumerate(texts)]


ASKED = [
    ("Who is the mayor of Velden?", hits("The mayor of Velden is Tora Lind.", "Velden is a town.")),
    ("Where is Garrow?", hits("Garrow. " * 30)),
    ("Where?", []),
    ("Is Tora Lind the mayor?", hits("Tora Lind is the mayor.")),
    ("a" * 700, hits("a")),
]


def test_together_and_one_by_one_the_answers_are_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = choose_reader(str(folder))
    assert isinstance(reader, TextToTextReader)
    alone = [reader.read([asked])[0] for asked in ASKED]
    assert reader.read(ASKED) == alone
    assert alone[2] is None
    assert len({answer for answer in alone if answer}) > 2  # it says different things
    monkeypatch.setattr(text_to_text, "_BATCH_TOKENS", 10)
    assert reader.read(ASKED) == alone
    assert pickle.loads(pickle.dumps(reader)).read(ASKED[:1]) == alone[:1]


def test_what_is_written_is_the_most_probable_token_each_time(folder: Path) -> None:
    loaded = TextToTextReader(str(folder)).load()
    inputs = [loaded.tokenizer(text)["input_ids"] for text in ("who is the mayor", "velden is a town of the few")]
    expected = []
    for ids in inputs:
        written = [0]  # T5 starts with its padding
        while len(written) < 9 and written[-1] != 1:
            with torch.inference_mode():
                logits = loaded.model(
                    input_ids=torch.tensor([ids]), decoder_input_ids=torch.tensor([written]), use_cache=False
                ).logits
            written.append(int(logits[0, -1].argmax()))
        expected.append(written[1:])
    found = write_greedily(loaded, inputs, 8)
    assert [ids[: len(wanted)] for ids, wanted in zip(found, expected, strict=True)] == expected
    assert all(set(ids[len(wanted) :]) <= {0} for ids, wanted in zip(found, expected, strict=True))  # padding


def test_each_text_has_the_limit_it_would_have_alone(folder: Path) -> None:
    loaded = TextToTextReader(str(folder)).load()
    inputs = [loaded.tokenizer(text)["input_ids"] for text in ("who is the mayor", "velden is a town")]
    alone = [*write_greedily(loaded, inputs[:1], 3), *write_greedily(loaded, inputs[1:], 8)]
    assert write_greedily(loaded, inputs, [3, 8]) == alone
    assert [len(ids) for ids in alone] == [3, 8]
    assert write_greedily(loaded, inputs[:1], 3) != write_greedily(loaded, inputs[:1], 8)


def test_a_checkpoints_settings_for_sampling_are_not_followed(folder: Path, tmp_path: Path) -> None:
    save_t5(tmp_path, WORDS)
    (tmp_path / "generation_config.json").write_text(
        '{"do_sample": true, "temperature": 9.0, "num_beams": 3, "min_length": 20, "no_repeat_ngram_size": 1,'
        ' "decoder_start_token_id": 0, "eos_token_id": 1, "pad_token_id": 0}'
    )
    assert TextToTextReader(str(tmp_path)).read(ASKED[:1]) == TextToTextReader(str(folder)).read(ASKED[:1])


def test_question_and_instruction_stay_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = TextToTextReader(str(folder)).load()
    monkeypatch.setattr(text_to_text, "_WINDOW", 250)
    ids = text_to_text._prompt(loaded, "Who is the mayor?", hits("The mayor is Tora Lind. " * 40))
    shown = loaded.tokenizer.decode(ids, skip_special_tokens=True)
    assert len(ids) <= 250
    assert len(ids) > 230
    assert shown.startswith("Answer the question in a few words")
    assert shown.endswith("Question: Who is the mayor? Answer:")
    assert "Title 0: The mayor is Tora Lind." in shown
    long = text_to_text._prompt(loaded, "mayor " * 400, hits("Tora Lind."))
    assert loaded.tokenizer.decode(long, skip_special_tokens=True).endswith("mayor Answer:")


def test_passages_are_shown_with_their_titles() -> None:
    shown = [Hit(Passage(0, "Velden", "History", "Founded in 1348."), 2.0), *hits("Text.")]
    assert passages_text(shown) == "Velden > History: Founded in 1348.\nTitle 0: Text."


@pytest.mark.parametrize(
    ("written", "answer"),
    [
        ("Tora Lind", "Tora Lind"),
        ("  Tora Lind.\nShe is the mayor.", "Tora Lind"),
        ('Answer: "Tora Lind."', "Tora Lind"),
        ("the U.S.", "the U.S."),
        ("<think>The mayor?\nLind.</think>\n\nTora Lind", "Tora Lind"),
        ("<think>The mayor? I am not", None),  # cut before it answered
        ("", None),
        ("No. 5", "No. 5"),
    ],
)
def test_the_answer_in_what_a_model_wrote(written: str, answer: str | None) -> None:
    assert answer_of(written) == answer


def test_what_the_digest_follows(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_t5(tmp_path, WORDS, seed=2)
    before = TextToTextReader(str(folder)).digest
    assert TextToTextReader(str(tmp_path)).digest != before
    monkeypatch.setattr(text_to_text, "_HEAD", "Answer.")
    assert TextToTextReader(str(folder)).digest != before
