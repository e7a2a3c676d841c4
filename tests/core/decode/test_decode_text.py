"""Text while it comes: whole characters, nothing that must be taken back, and in the end all of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tiny import TEXTS, sentencepiece, tokenizer
from toolformer_core.decode.transcript import TextStream


def streamed(coded: object, ids: list[int], stop: tuple[str, ...] = ()) -> tuple[list[str], bool]:
    stream = TextStream(coded, stop)
    out = []
    for token in ids:
        out.append(stream.push(token))
        if stream.stopped:
            return out, True
    return [*out, stream.flush()], stream.stopped


@given(st.text())
def test_what_is_streamed_is_the_text(text: str) -> None:
    coded = tokenizer()
    ids = coded(text)["input_ids"]
    deltas, _ = streamed(coded, ids)
    assert "".join(deltas) == coded.backend_tokenizer.decode(ids)
    if "\ufffd" not in text:
        assert not any("\ufffd" in d for d in deltas)  # no half characters


@given(st.lists(st.integers(1, 399), max_size=60))
def test_any_bytes_come_out_in_the_end(ids: list[int]) -> None:
    coded = tokenizer()
    deltas, _ = streamed(coded, ids)
    whole = coded.backend_tokenizer.decode(ids)
    # where bytes are no text, the number of replacement characters may differ: held bytes are shown in pieces
    assert "".join(deltas).replace("\ufffd", "") == whole.replace("\ufffd", "")


@pytest.mark.parametrize("text", [*TEXTS, "日本語 and 🙂🙂 again 語"])
def test_a_tokenizer_with_bytes_and_spaces_as_letters(text: str) -> None:
    coded = sentencepiece()
    ids = coded(text)["input_ids"]
    deltas, _ = streamed(coded, ids)
    assert "".join(deltas) == coded.backend_tokenizer.decode(ids)
    for cut in range(1, len(ids)):  # begun in the middle of the text, even of a character
        stream = TextStream(coded)
        stream.follow(ids[:cut])
        rest = "".join([*(stream.push(t) for t in ids[cut:]), stream.flush()])
        before = coded.backend_tokenizer.decode(ids[:cut])
        if "\ufffd" not in before:
            assert before + rest == coded.backend_tokenizer.decode(ids)


@given(st.text("abc ", max_size=40), st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=3))
def test_a_stop_string_ends_the_text_before_it(text: str, stop: list[str]) -> None:
    coded = tokenizer()
    deltas, stopped = streamed(coded, coded(text)["input_ids"], tuple(stop))
    got = "".join(deltas)
    assert stopped == any(s in text for s in stop)
    assert text.startswith(got)
    assert not any(s in got for s in stop)
    if stopped:
        assert any(text[len(got) :].startswith(s) for s in stop)
    else:
        assert got == text


def test_what_may_be_a_stop_string_is_held_back() -> None:
    coded = tokenizer()
    stream = TextStream(coded, ("xyz",))
    ids = [t for c in "qxyxyz" for t in coded(c)["input_ids"]]
    # q is certain; x and xy may begin it; with the second x the first two are out; xyz ends it
    assert [stream.push(t) for t in ids] == ["q", "", "", "xy", "", ""]
    assert stream.stopped
    assert stream.flush() == ""
