import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolformer_core.tools.search.sections import passages_of, sentences_of


def sentence(words: int, first: str = "Word") -> str:
    return " ".join([first, *["word"] * (words - 1)]) + "."


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One two. Three four! Five?", ["One two.", "Three four!", "Five?"]),
        ("He met Dr. Lind at No. 7. Then he left.", ["He met Dr. Lind at No. 7.", "Then he left."]),
        ("J. R. Lind wrote it. She read it.", ["J. R. Lind wrote it.", "She read it."]),
        ("It cost approx. 3 crowns, e.g. in spring.", ["It cost approx. 3 crowns, e.g. in spring."]),
        ('"Is it true?" he asked. "It is." She left.', ['"Is it true?" he asked.', '"It is."', "She left."]),
        ("A list:\nHeron\nReed\nand water", ["A list:", "Heron", "Reed and water"]),  # a small letter goes on
        ("  One.\n\n  Two \t three.  ", ["One.", "Two three."]),
        ("", []),
        (" \n ", []),
    ],
)
def test_sentences(text: str, sentences: list[str]) -> None:
    assert sentences_of(text) == sentences


@pytest.mark.parametrize(
    ("lengths", "passages"),
    [
        ([], []),
        ([10], [10]),
        ([60, 89], [149]),  # 149 words: 100 are reached only with the second sentence
        ([100, 49], [149]),  # a rest of 49 words goes to the passage before
        ([100, 50], [100, 50]),  # one of 50 is a passage
        ([60, 60, 60, 60], [120, 120]),
        ([40] * 6, [120, 120]),
        ([40] * 7, [120, 160]),  # 120 and 120, and a rest of 40
        ([300, 20], [320]),  # a long sentence stays whole
    ],
)
def test_the_rule_of_100_words(lengths: list[int], passages: list[int]) -> None:
    text = " ".join(sentence(n) for n in lengths)
    assert [len(passage.split()) for passage in passages_of(text)] == passages


WORDS = st.lists(
    st.sampled_from(["Heron", "reed", "water.", "Dr.", "Sella!", "mill,", "\n", "1901.", '"Yes."']), max_size=600
)


@given(WORDS)
def test_no_word_is_lost_and_no_passage_starts_within_a_sentence(words: list[str]) -> None:
    text = " ".join(words)
    passages = passages_of(text)
    assert " ".join(passages).split() == text.split()
    sentences = sentences_of(text)
    for passage in passages:
        taken = []
        while " ".join(taken) != passage:  # each is a run of whole sentences
            taken.append(sentences.pop(0))
    assert not sentences
    assert all(len(passage.split()) >= 50 for passage in passages[1:])
