"""Hypothesis strategies, all of them in one place."""

import os
from fractions import Fraction

from hypothesis import strategies as st

from toolformer_core.annotate.arithmetic import NumberToken
from toolformer_core.records import (
    Call,
    Document,
    DrawnCall,
    Example,
    Execution,
    InsertedCall,
    PrefilterResult,
    ScoredCall,
)
from toolformer_core.syntax import interleave, linearize

# Every character but lone surrogates, which no UTF-8 text holds; brackets, arrows and spaces are drawn often.
encodable_texts = st.text(
    st.one_of(st.sampled_from("[]()-> \n\x00→"), st.characters(exclude_categories=["Cs"])), max_size=40
)

# What a folder may be called: pieces that mean something to a shell, a URL, SQL or a pattern; bytes that are not UTF-8.
_PIECES = """a b Z 0 . .. - -- -data ~ % %20 %3F %s ? # [ ] * ' " ; $ $HOME & | < > ( ) { } {{x}} ! ^ ` \\ \\d @ : = , +
    s3: file: :memory: .tmp .lock \xe9 e\u0301 \u4e2d \U0001f642 \u202e \udcff""".split()
folder_names = st.one_of(
    st.lists(st.sampled_from([*_PIECES, " ", "\t", "\n"]), min_size=1, max_size=6).map("".join),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1, max_size=60),
    st.sampled_from("a%[ ").map(lambda letter: letter * 250),
).filter(lambda name: name not in (".", "..") and len(os.fsencode(name)) <= 255)

# Whatever a tool may answer: lone surrogates as well.
any_texts = st.text(st.one_of(st.sampled_from("[]()-> \n\x00\udcff→\u2028"), st.characters()), max_size=40)

# Texts that may stand in a call as they are: no brackets or quotes, no space at the ends.
balanced_texts = st.text(st.sampled_from("abc 12+*?é漢"), max_size=12).map(lambda s: " ".join(s.split()))


@st.composite
def texts_and_positions(draw: st.DrawFn) -> tuple[str, list[int]]:
    """A text, and distinct positions in it in any order."""
    text = draw(encodable_texts)
    positions = draw(st.lists(st.integers(0, len(text)), unique=True, max_size=6))
    return text, positions


@st.composite
def examples_with_calls(draw: st.DrawFn) -> Example:
    """A document with one to four calls or chains, many before a space; inputs and responses are anything."""
    words = draw(st.lists(encodable_texts.filter(bool) | st.sampled_from(["so", "58", "9."]), min_size=1, max_size=6))
    text = " ".join(words)
    spaces = [at for at, character in enumerate(text) if character == " "]
    places = st.integers(0, len(text)) | st.sampled_from(spaces) if spaces else st.integers(0, len(text))
    places_drawn = sorted(draw(st.lists(places, unique=True, min_size=1, max_size=4)))
    positions = [at for at in places_drawn for _ in range(draw(st.sampled_from([1, 1, 2, 3])))]
    tools = {"calculator": "Calculator", "calendar": "Calendar", "qa": "QA"}
    drawn = [(draw(st.sampled_from(list(tools))), draw(encodable_texts), draw(encodable_texts)) for _ in positions]
    written = [linearize(Call(tools[tool], input_), response) for tool, input_, response in drawn]
    augmented, spans = interleave(text, zip(positions, written, strict=True))
    calls = (
        InsertedCall(tool, position, *span, input_, response, 1.0)
        for (tool, input_, response), position, span in zip(drawn, positions, spans, strict=True)
    )
    return Example("d", augmented, tuple(calls))


@st.composite
def number_lists(draw: st.DrawFn) -> list[NumberToken]:
    """Numbers of small mantissas at increasing tokens, so that relations are neither rare nor the rule."""
    out, token = [], 0
    for _ in range(draw(st.integers(0, 7))):
        token += draw(st.integers(1, 5))
        decimals = draw(st.sampled_from([0, 0, 1, 2, 2, 3]))
        out.append(NumberToken(Fraction(draw(st.integers(0, 400)), 10**decimals), decimals, token))
    return out


_words = st.sampled_from(["", "ok", "calculator", "no_url_date", "2023-01-30"])
_offsets = st.integers(0, 2**40)
_nats = st.floats(-1e6, 1e6)
_perhaps = st.none() | encodable_texts
_spans = st.lists(st.tuples(_offsets, _offsets), max_size=3).map(tuple)
_inserted = st.builds(InsertedCall, _words, *(_offsets,) * 3, encodable_texts, encodable_texts, _nats)

# The records that each stage writes, by its name; any of their values may be anything of its type.
records: dict[str, st.SearchStrategy[object]] = {
    "ingest": st.builds(Document, _words, encodable_texts, _perhaps, _perhaps, encodable_texts, _offsets),
    "prefilter": st.builds(PrefilterResult, _words, _words, st.booleans(), _words, encodable_texts, _spans),
    "sample": st.builds(
        DrawnCall,
        *(_words, _words, _offsets, _nats, _offsets, encodable_texts, _words, encodable_texts, _offsets),
        *(st.none() | _offsets, st.none() | _nats),
    ),
    "execute": st.builds(
        Execution, _words, *(encodable_texts,) * 3, _words, encodable_texts, st.none() | st.booleans()
    ),
    "score": st.builds(
        ScoredCall,
        *(_words, _words, _offsets, encodable_texts, encodable_texts, _nats, _offsets),
        *(_nats, _nats, _nats, st.booleans(), st.booleans()),
    ),
    "assemble": st.builds(Example, _words, encodable_texts, st.lists(_inserted, max_size=3).map(tuple)),
}
