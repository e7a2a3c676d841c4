import re
from collections.abc import Iterable, Iterator
from itertools import accumulate

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from toolformer_core import syntax
from toolformer_core.errors import CallSyntaxError
from toolformer_core.records import Call
from toolformer_core.syntax import FoundCall, escape, find_calls, find_close, interleave, linearize, parse, strip

# Any code point, lone surrogates too, and often those that the syntax itself is made of.
ANY_TEXT = st.text(
    st.one_of(st.characters(exclude_categories=()), st.sampled_from("[]()->→ \"'\n\0\u202e\u05d0\U0001f600\ud800")),
    max_size=40,
)
NAMES = st.sampled_from(["Calculator", "QA", "WikiSearch", "MT", "Größe_2"])


def balanced(text: str, pair: str) -> bool:
    depths = list(accumulate((char == pair[0]) - (char == pair[1]) for char in text))
    return min(depths, default=0) >= 0 and sum(depths[-1:]) == 0


@st.composite
def interleavings(draw: st.DrawFn) -> tuple[str, list[tuple[int, str]]]:
    text = draw(ANY_TEXT)
    return text, draw(st.lists(st.tuples(st.integers(0, len(text)), ANY_TEXT), max_size=6))


@given(interleavings())
def test_strip_undoes_interleave_for_any_text(case: tuple[str, list[tuple[int, str]]]) -> None:
    text, pieces = case
    augmented, spans = interleave(text, pieces)
    assert strip(augmented, spans) == text
    assert sorted(augmented[start:end] for start, end in spans) == sorted(piece for _, piece in pieces)


def calls_in(name: str, text: str) -> Call:
    """A call of this tool, if its input is one that is parsed back."""
    call = Call(name, text.strip())
    assume(balanced(call.input, "()"))
    assume(not (len(call.input) > 1 and call.input[0] + call.input[-1] in ('""', "''")))  # those would be dropped
    return call


# The second kind: where arrows and parentheses crowd.
@given(NAMES, ANY_TEXT | st.text("(f) ->x", max_size=14), st.none() | ANY_TEXT | st.text(") ->x(", max_size=14))
def test_parse_undoes_linearize(name: str, text: str, response: str | None) -> None:
    call = calls_in(name, text)
    response = None if response is None else escape(response.strip())
    assert parse(linearize(call, response)[2:-1]) == (call, response)


# Pieces of calls, so that whole ones, halves and nested ones are often drawn.
CALL_LIKE = st.lists(
    st.sampled_from(["[", "]", " [", "(", ")", ") ->", "->", "→", "QA(", "Calculator(1+1)", "-> 2]", " ", "[QA(", "x"]),
    max_size=30,
).map("".join)


@given(NAMES, ANY_TEXT | CALL_LIKE, ANY_TEXT | CALL_LIKE, st.text(st.characters(exclude_characters="[]"), max_size=9))
def test_a_response_neither_opens_nor_closes_a_call(name: str, text: str, response: str, around: str) -> None:
    call = calls_in(name, text)
    assume(balanced(call.input, "[]"))
    at = len(around) // 2
    augmented, spans = interleave(around, [(at, linearize(call, response))])
    (found,) = find_calls(augmented)
    assert (found.call, found.response) == (call, escape(response).strip())
    assert (found.start, found.end) == spans[0]
    assert strip(augmented, spans) == around


@given(ANY_TEXT | CALL_LIKE)
def test_an_escaped_response_holds_no_square_bracket_and_is_else_the_same(response: str) -> None:
    escaped = escape(response)
    assert escape(escaped) == escaped
    assert not set("[]") & set(escaped)
    assert escaped.replace("(", "[").replace(")", "]") == response.replace("(", "[").replace(")", "]")
    assert escaped == response or set("[]") & set(response)


def test_the_name_with_which_a_call_begins() -> None:
    begun = ["Calculator(", " QA (who", "Calculator2(1"]
    assert [syntax.name_begun(start) for start in begun] == ["Calculator", "QA", "Calculator2"]
    assert {syntax.name_begun(start) for start in ("", " \n", "Calc", "Calculator", "Calculator ")} == {
        ""
    }  # it may follow
    assert {syntax.name_begun(start) for start in ("the cat", "3 + 4", "(3", "QA]")} == {
        None
    }  # "(" alone follows a name


@given(NAMES, ANY_TEXT, st.integers(0, 60))
def test_every_start_of_a_call_begins_with_its_name_or_may_yet(name: str, text: str, length: int) -> None:
    body = linearize(Call(name, text))[2:-1]
    assert syntax.name_begun(body[:length]) in ("", name)


@given(ANY_TEXT, ANY_TEXT)
def test_what_cannot_become_a_call_is_none_however_it_goes_on(start: str, rest: str) -> None:
    begun = syntax.name_begun(start)
    try:
        call, _ = parse(start + rest)
    except CallSyntaxError:
        return
    assert begun in ("", call.tool)
    assert re.fullmatch(r"[^\W\d]\w*", call.tool)


def test_the_names_a_tool_may_have_are_identifiers_whose_calls_are_read() -> None:
    assert all(map(syntax.is_tool_name, ("QA", "Größe_2", "検索", "_")))
    # the last: identifiers with marks or a point, whose calls would not be read; and no identifier, though it would be
    refused = ("", "2nd", "two words", "a-b", *("हिन्दी", "Cafe\u0301", "a·b"), "²x")
    assert not any(map(syntax.is_tool_name, refused))


@given(st.text(min_size=1, max_size=6) | NAMES)
def test_calls_of_a_tool_with_an_allowed_name_are_read(name: str) -> None:
    if syntax.is_tool_name(name):
        assert parse(f"{name}(x)") == (Call(name, "x"), None)
        assert [found.call for found in find_calls(f"[{name}(x)]")] == [Call(name, "x")]


def test_the_written_form() -> None:
    call = Call("Calculator", "400 / 1400")
    assert linearize(call) == " [Calculator(400 / 1400)]"
    assert linearize(call, "0.29") == " [Calculator(400 / 1400) -> 0.29]"
    assert linearize(call, "") == " [Calculator(400 / 1400) -> ]"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("QA(Who?)", ("QA", "Who?", None)),
        ("QA(“Who?”)", ("QA", "Who?", None)),
        ('QA("a" or "b")', ("QA", '"a" or "b"', None)),  # two pairs, not one around all
        (" Calendar ( ) ", ("Calendar", "", None)),
        ("Calculator(1 + 2) → 3", ("Calculator", "1 + 2", "3")),
        ("Calculator(1 + 2)->", ("Calculator", "1 + 2", "")),
        ("QA(f(x) -> y)", ("QA", "f(x) -> y", None)),  # the first `)` leaves "f(x" open
        ("QA(f(x) -> y) -> z) -> w", ("QA", "f(x) -> y", "z) -> w")),
        ("MT(so :))", ("MT", "so :)", None)),  # unbalanced, but only its last `)` is followed by nothing
        ("MT(a(b) -> c) d( e) -> f", ("MT", "a(b", "c) d( e) -> f")),  # as many ( as ), but not balanced
        ("MT((a) -> b", ("MT", "(a", "b")),  # never balanced: the first `)` that an arrow follows
    ],
)
def test_parse_by_hand(body: str, expected: tuple[str, str, str | None]) -> None:
    call, response = parse(body)
    assert (call.tool, call.input, response) == expected


@pytest.mark.parametrize("body", ["", "QA", "QA(", "QA Who?)", "2x(3)", "(3)", "QA(Who?) because", "see note"])
def test_what_is_not_a_call(body: str) -> None:
    with pytest.raises(CallSyntaxError):
        parse(body)


def test_a_call_closes_at_the_bracket_that_closes_it() -> None:
    #       0123456789
    text = "QA(a[0]b)]x]"
    assert (find_close(text), find_close(text, 10), find_close("QA(a[0)")) == (9, 11, None)


HOSTILE = [
    "[" * 200_000,
    "[QA(" + ")->" * 60_000 + "]",
    "[QA(a" * 40_000,
    "[QA(a" * 9_000 + ")" + "]" * 9_000,
    "[A(x) y" * 1_000 + "]" * 1_000,
    "[A(" * 2_000 + " " * 100 + "]" * 2_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:8])
def test_of_a_hostile_text_no_character_is_parsed_twice(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    monkeypatch.setattr(syntax, "parse", lambda body: parsed.append(body) or parse(body))
    list(find_calls(text))
    assert sum(map(len, parsed)) <= len(text)


def plainly_found(text: str, names: Iterable[str] | None = None) -> Iterator[FoundCall]:
    """The same by its definition: try every bracket, the outermost first."""
    at = 0
    while (open_ := text.find("[", at)) >= 0:
        at = open_ + 1
        close = find_close(text, at)
        if close is None or close - at > syntax.MAX_CALL_CHARS:
            continue
        try:
            call, response = parse(text[at:close])
        except CallSyntaxError:
            continue
        if names is not None and call.tool not in names:
            continue
        yield FoundCall(call, response, open_ - re.search(" ?$", text[:open_])[0].count(" "), close + 1)
        at = close + 1


@given(ANY_TEXT | CALL_LIKE, st.none() | st.lists(NAMES, max_size=2))
def test_calls_are_found_as_by_their_definition(text: str, names: list[str] | None) -> None:
    assert list(find_calls(text, names)) == list(plainly_found(text, names))


def test_interleave_by_hand_and_what_cannot_be_is_refused() -> None:
    # "ab" + "<1>" before b, "<0>" before a; two at one place keep their order
    assert interleave("ab", [(1, "<1>"), (0, "<0>"), (1, "<2>")]) == ("<0>a<1><2>b", [(0, 3), (4, 7), (7, 10)])
    for spans in ([(0, 2), (1, 3)], [(0, 9)], [(-1, 1)], [(2, 1)]):
        with pytest.raises(ValueError, match="span"):
            strip("abc", spans)
    for position in (-1, 3):
        with pytest.raises(ValueError, match="outside"):
            interleave("ab", [(position, "x")])
