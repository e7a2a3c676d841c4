"""Which items share words in a row with a text: by a plain definition, and by hand."""

from hypothesis import given
from hypothesis import strategies as st

from toolformer_core.config import MIN_WORDS
from toolformer_core.shared_words import SharedSpan, SharedWords

ITEM = "How many of the 24 clips did Natalia sell in May?"  # eleven words


def test_a_short_item_is_found_whole_whatever_its_case_spaces_and_marks() -> None:
    shared = SharedWords([ITEM])
    text = "Q. how many, of the 24\nCLIPS did natalia sell in may -- 12."
    assert shared.find(text) == [SharedSpan(0, 3, text.index(" --"))]
    assert shared.find("How many of the 24 clips did Natalia sell?") == []


def test_composed_and_decomposed_letters_are_the_same() -> None:
    assert SharedWords(["Où est le café de la gare"]).find("ou\u0300 est le cafe\u0301 de la gare")


@given(
    st.lists(st.lists(st.sampled_from("abc"), max_size=12), max_size=4),
    st.lists(st.sampled_from("abc"), max_size=30),
    st.integers(2, 8),
)
def test_an_item_is_found_where_its_definition_says(items: list[list[str]], text: list[str], ngram: int) -> None:
    shared = SharedWords([" ".join(item) for item in items], ngram)
    expected = set()
    for number, item in enumerate(items):
        length = min(ngram, len(item))
        runs = {tuple(item[i : i + length]) for i in range(len(item) - length + 1)}
        if length < min(MIN_WORDS, ngram):
            assert number in shared.short
            continue
        for at in range(len(text) - length + 1):
            if tuple(text[at : at + length]) in runs:
                expected |= {(number, word) for word in range(at, at + length)}
    found = {
        (one.item, word) for one in shared.find(" ".join(text)) for word in range(one.start // 2, one.end // 2 + 1)
    }
    assert found == expected
