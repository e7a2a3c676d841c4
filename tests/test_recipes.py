"""The programs beside the recipes: GSM8K's marks become gold calls, at their places; Tatoeba's pairs become texts."""

import json
import sys
from pathlib import Path

import pytest

from recipes import gsm8k
from recipes.tatoeba import texts
from toolformer_core.diagnose.gold import read_gold

QUESTION = "Ada bakes 6 trays of 8 rolls and sells 19 of them at $2 each. What does she earn, and what is left?"
SOLUTION = "She bakes 6*8=<<6*8=48>>48 rolls.\nShe earns 19 * 2 = $<<19*2=38>>38, and <<48-19=29>>29 are left.\n#### 29"


@pytest.mark.parametrize(
    ("sums", "solution"),
    [
        (False, "She bakes 48 rolls.\nShe earns $38, and 29 are left."),
        (True, "She bakes 6*8=48 rolls.\nShe earns 19 * 2 = $38, and 29 are left."),
    ],
)
def test_marks_become_calls_in_front_of_their_numbers(sums: bool, solution: str) -> None:
    text, calls = gsm8k.with_gold(QUESTION, SOLUTION, sums=sums)
    assert text == f"{QUESTION}\n{solution}"
    assert [(one["input"], one["value"]) for one in calls] == [("6 * 8", "48"), ("19 * 2", "38"), ("48 - 19", "29")]
    places = [text[one["position"] :][:5] for one in calls]
    assert places == (["48 ro", " $38,", " 29 a"] if sums else [" 48 r", " $38,", " 29 a"])


def test_the_folder_is_read_as_gold_without_texts_that_share_eight_words_with_a_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copied = "Bo has one two three four five six seven eight nine apples."
    rows = [{"question": QUESTION, "answer": SOLUTION}, {"question": copied, "answer": "<<1+1=2>>2\n#### 2"}]
    problems, benchmark = tmp_path / "problems.jsonl", tmp_path / "benchmark.json"
    problems.write_text("".join(json.dumps(row) + "\n" for row in rows))
    benchmark.write_text(json.dumps([{"Body": "ONE, two three four five six seven eight!"}]))
    arguments = [str(problems), "--out", str(tmp_path / "out"), "--without", str(benchmark)]
    monkeypatch.setattr(sys, "argv", ["gsm8k.py", *arguments])
    gsm8k.main()
    assert capsys.readouterr().out == "1 texts, 3 gold calls; 1 texts left out: 8 words of a benchmark\n"
    gold = read_gold(tmp_path / "out")
    (document,) = gold.documents
    assert [call.input for call in gold.of(document, "calculator")] == ["6 * 8", "19 * 2", "48 - 19"]


@pytest.mark.parametrize(
    ("solution", "expression"),
    [
        ("She bakes <<6*8=48>>48.\n#### 48", "6 * 8"),
        ("Of <<6*8=48>>48 rolls <<48-19=29>>29 are left.\n#### 29", "(6 * 8) - 19"),
        ("<<6*8=48>>48 and <<19*2=38>>38.\n#### 38", None),  # two sums side by side
        ("<<6*8=48>>48, <<48-19=29>>29, <<29-1=28>>28.\n#### 28", None),  # three
        ("<<+6+8=14>>14.\n#### 14", None),  # no expression of the calculator
        ("<<6*8=48>>48.\n#### 47", None),  # the answer is another number
    ],
)
def test_an_answer_is_asked_at_once_where_two_sums_give_it(solution: str, expression: str | None) -> None:
    answered = gsm8k.with_answer(QUESTION, solution)
    if expression is None:
        assert answered is None
        return
    text, (call,) = answered
    answer = solution.rpartition(" ")[2]
    assert text == f"{QUESTION} The answer is {answer}."
    assert (call["input"], call["value"], text[call["position"] :]) == (expression, answer, f" {answer}.")


def test_tatoebas_pairs_become_texts_of_the_languages_in_turn(tmp_path: Path) -> None:
    for code, foreign in (("cmn", "早"), ("deu", "Guten Morgen."), ("fra", "Bonjour."), ("spa", "Buenos días.")):
        (tmp_path / f"tatoeba.{code}-eng.{code}").write_text(f"{foreign}\n{code} 2\n", "utf-8")
        (tmp_path / f"tatoeba.{code}-eng.eng").write_text("Good morning.\nTwo.\n", "utf-8")
    made = texts(tmp_path)
    assert [row["url"] for row in made] == [
        *(f"tatoeba:{code}:0" for code in ("cmn", "deu", "fra", "spa")),
        *(f"tatoeba:{code}:1" for code in ("cmn", "deu", "fra", "spa")),
    ]
    german = "This is a sentence in German, and then the same in English. Guten Morgen. It means: Good morning."
    assert made[1]["text"] == german
    (tmp_path / "tatoeba.spa-eng.eng").write_text("Good morning.\n", "utf-8")  # a line is missing
    with pytest.raises(ValueError, match="shorter"):
        texts(tmp_path)
