"""Where the tokens of a text lie: characters of several tokens, and what stands behind them."""

from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from toolformer_core.embedded import MODEL
from toolformer_core.lm.tokens import tokenize

TOKENIZER = AutoTokenizer.from_pretrained(MODEL)


def starts(text: str) -> list[int]:
    (tokens,) = tokenize(TOKENIZER, [text])
    return tokens.cuts[tokens.starts_character].tolist()


def test_a_token_starts_behind_a_character_of_several() -> None:
    # three bytes and as many tokens for each Chinese character, one for the x between them
    assert starts("他说x今") == [0, 1, 2, 3]
    (tokens,) = tokenize(TOKENIZER, ["他说x今"])
    assert tokens.cuts.tolist() == [0, 1, 1, 1, 2, 2, 2, 3, 4, 4]
    assert [tokens.token_at(position) for position in range(5)] == [0, 3, 6, 7, 10]


@given(st.text(st.sampled_from("a b😀é他ﷺ\n"), min_size=1))
def test_no_two_tokens_start_at_one_place(text: str) -> None:
    found = starts(text)
    assert found[0] == 0
    assert found == sorted(set(found))
