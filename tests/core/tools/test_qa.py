import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolformer_core.records import ToolFailure, ToolResponse
from toolformer_core.tools.qa import QA
from toolformer_core.tools.qa_readers import embedded
from toolformer_core.tools.qa_readers.embedded import Evidence, ExtractiveReader, confidence
from toolformer_core.tools.search.passages import Hit, Passage, PassageIndex

QUESTION_WORDS = "who where when how many what is was Velden Mira Holt mayor founded of 's \" [ ( , ."
ANY_TEXT = st.text(st.characters(exclude_categories=())) | st.lists(st.sampled_from(QUESTION_WORDS.split())).map(
    " ".join
)

PASSAGES = {
    "Velden": "Velden is a town in the north of Ostmark. The mayor of Velden is Tora Lind. "
    "Velden has 4,200 inhabitants. It was founded in 1348.",
    "Mira Holt": "Mira Holt was a painter. She was born in Orrin on March 3, 1921. "
    "Mira Holt painted the Red Mill in 1950.",
    "Ostmark": "The capital of Ostmark is Garrow. The river Sella flows through Garrow. "
    "The bridge of Garrow was built by Anton Reese in 1888.",
    "Bakers of Orrin": "The bakers of Orrin make almond bread. Their oven is 12 metres wide.",
    "Glass": "Garrow is known for blue glass.",
    "Mottoes": "The motto of Tamm is never let the old red mill stand still tomorrow.",
}


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> PassageIndex:
    path = tmp_path_factory.mktemp("qa") / "passages.jsonl"
    path.write_text("\n".join(json.dumps({"title": t, "text": x}) for t, x in PASSAGES.items()), encoding="utf-8")
    return PassageIndex(path)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Where was Mira Holt born?", "Orrin"),
        ("When was Mira Holt born?", "March 3, 1921"),
        ("What is the capital of Ostmark?", "Garrow"),
        ("Who is the mayor of Velden?", "Tora Lind"),
        ("How many inhabitants does Velden have?", "4,200"),
        ("What do the bakers of Orrin make?", "almond bread"),
        ("Which river flows through Garrow?", "Sella"),
        ("What is the motto of Tamm?", "never let the old red mill stand still"),  # eight words, then cut
    ],
)
def test_plain_questions_on_plain_sentences(index: PassageIndex, question: str, answer: str) -> None:
    assert QA(index).run(question) == ToolResponse(answer)


@pytest.mark.parametrize(
    ("question", "reason"),
    [("", "empty_input"), ("???", "empty_input"), ("Zebra?", "no_result"), ("When is glass?", "no_answer")],
)
def test_failures_are_typed(index: PassageIndex, question: str, reason: str) -> None:
    assert QA(index, passages=1).run(question) == ToolFailure(reason)


@pytest.mark.parametrize(
    ("question", "result"),
    [
        # "founded", "mayor" and "built" stand in passages of others
        ("Who founded Microsoft?", ToolFailure("no_answer")),
        ("Who is the mayor of Norrby?", ToolFailure("no_answer")),
        ("Who built Norrby or Garrow?", ToolResponse("Anton Reese")),  # one of the names is enough
        # of half of what these ask, the passages say nothing: whose mayor, which capital
        ("Which Ostmarkian river flows through the capital?", ToolFailure("no_answer")),
        ("Who is the mayor of the UK?", ToolFailure("no_answer")),
        ("Tell: who is its mayor?", ToolFailure("no_answer")),
    ],
)
def test_unknown_names_have_no_answer(index: PassageIndex, question: str, result: ToolResponse | ToolFailure) -> None:
    assert QA(index).run(question) == result


@pytest.mark.parametrize(
    ("question", "text", "best"),
    [
        # Ostmarkian begins as Ostmark does; one of all capitals, or the first word, is no name that a passage must have
        ("Which Ostmarkian river flows through the capital?", "", "Sella"),
        ("Who is the mayor of the UK?", "", "Tora Lind"),
        ("Tell: who is its mayor?", "", "Tora Lind"),
        # discourse words are capitalised where a sentence begins, and are no names
        ("Who founded the mill?", "Moreover, the mill was founded in 1801.", None),
        ("Who founded the mill?", "Although Tora Lind founded the mill, it stands still.", "Tora Lind"),
        # what is asked answers nothing
        ("When did the peace of 1763 end?", "The peace of 1763 did end in 1775.", "1775"),
    ],
)
def test_the_best_span_however_improbable(index: PassageIndex, question: str, text: str, best: str | None) -> None:
    hits = [Hit(Passage(0, "Mill", "", text), 1.0)] if text else QA(index).hits(question)
    answer = ExtractiveReader().best(question, hits)
    assert (answer[0] if answer else None) == best


def test_an_answer_less_probable_than_the_threshold_is_not_given(index: PassageIndex) -> None:
    asked = "Who is the mayor of the UK?", QA(index).hits("Who is the mayor of the UK?")
    answer = ExtractiveReader().best(*asked)
    assert answer is not None
    for least, said in ((confidence(answer[1]), "Tora Lind"), (confidence(answer[1]) + 1e-9, None)):
        assert ExtractiveReader(least_confidence=least).read([asked]) == [said]


def test_what_speaks_for_an_answer(index: PassageIndex) -> None:
    # "The mayor of Velden is Tora Lind." of the passage Velden: sentence and title hold mayor and Velden, the whole
    # title is asked about, and of mayor, Velden, Tora and Lind all are the question's or the answer's. No other name
    # stands in the sentences with a word of the question but Ostmark.
    (_, found), (_, other) = (
        ExtractiveReader().best(question, QA(index).hits(question)) or ("", EVIDENCE)
        for question in ("Who is the mayor of Velden?", "Who is the mayor of the UK?")
    )
    assert (found.covered, found.named, found.direct) == (1.0, 1.0, 1.0)
    assert (found.rank, found.fit) == (0, pytest.approx(0.6 + 0.3))  # a name of two words
    # "mayor" alone of mayor and UK, a name, would be 1 / 2.5; it stands in the sentence
    assert (other.covered, other.named) == (pytest.approx(0.4), pytest.approx(0.4))
    assert other.direct == pytest.approx(3 / 4)  # mayor, Tora and Lind; not Velden


@given(ANY_TEXT)
def test_any_text_gets_a_short_answer_or_is_refused(index: PassageIndex, text: str) -> None:
    result = QA(index).run(text)
    if isinstance(result, ToolResponse):
        assert 1 <= len(result.text.split()) <= 8
    else:
        assert result.reason


def test_what_the_fingerprint_follows(index: PassageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "p.jsonl").write_text('{"title": "a", "text": "b"}', encoding="utf-8")
    tools = [QA(index), QA(PassageIndex(tmp_path / "p.jsonl")), QA(index, ExtractiveReader(least_confidence=0.9))]
    prints = {tool.fingerprint for tool in tools}
    monkeypatch.setattr(embedded, "WEIGHTS", (0.0,) * 6)
    assert len({*prints, QA(index).fingerprint}) == 4


EVIDENCE = Evidence(fit=1.0, margin=0.5, covered=0.5, named=0.0, direct=0.25, rank=1)


def test_confidence_is_a_logistic_regression() -> None:
    # 2 * 1 + 1 * 0.5 + 2 * 0.5 + 3 * 0 + 4 * 0.25 - 0.5 * 1 - 4 = 0, and half of what the odds 1 : 1 have
    assert confidence(EVIDENCE, (2.0, 1.0, 2.0, 3.0, 4.0, -0.5), -4.0) == 0.5
    # one more for the title: log odds of 3
    more = confidence(replace(EVIDENCE, named=1.0), (2.0, 1.0, 2.0, 3.0, 4.0, -0.5), -4.0)
    assert more == pytest.approx(math.exp(3) / (1 + math.exp(3)))
    # a margin over no other answer is a large one
    assert confidence(replace(EVIDENCE, margin=math.inf)) == confidence(replace(EVIDENCE, margin=1.5))


@given(
    st.builds(Evidence, *(st.floats(0, 2) for _ in range(5)), rank=st.integers(0, 9)),
    st.sampled_from(["fit", "margin", "covered", "named", "direct"]),
    st.floats(0, 1),
)
def test_more_evidence_never_makes_an_answer_less_probable(evidence: Evidence, measure: str, more: float) -> None:
    better = replace(evidence, **{measure: getattr(evidence, measure) + more})
    assert 0 < confidence(evidence) <= confidence(better) < 1
    assert confidence(replace(evidence, rank=evidence.rank + 1)) <= confidence(evidence)
