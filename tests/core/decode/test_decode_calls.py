"""When a call is one, whatever the tokenizer merges, and what becomes of those that are none."""

import itertools
import re
from functools import cache, partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders
from transformers import PreTrainedTokenizerFast
from writers import after, merging, speaks, writing_lm

from tests.fakes import FakeTool
from tests.strategies import any_texts
from tests.tiny import sentencepiece, tokenizer
from toolformer_core.decode.calls import arrow_end, may_be_call, may_name_a_tool, response_tokens
from toolformer_core.decode.records import Generation, GenerationSettings, TextDelta
from toolformer_core.decode.toolformer import Toolformer
from toolformer_core.errors import ToolError
from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.records import ToolFailure
from toolformer_core.syntax import find_calls, find_close
from toolformer_core.tools.responses import response_line

T = partial(FakeTool, name="T")


@pytest.mark.parametrize(
    ("body", "end"),
    [
        ("T(7) ->", 7),
        ("T(7)->", 6),
        ("T(7)  → 49]", 7),
        ("T(7)] ->", None),  # closed before
        ("T(a -> b) ->", 12),  # the first stands in the input
        ("T(f(x) -> y) ->", 9),  # behind a ")": the tool's turn, as nobody knows what comes
        ("T((1 + 2) ->", 12),
        ("T ->", 4),  # no input at all: a call that does not parse
        ("T([1] [2]) ->", 13),
    ],
)
def test_where_the_arrow_ends(body: str, end: int | None) -> None:
    assert arrow_end(body) == end


def plain_arrow_end(body: str) -> int | None:
    """The same by its definition."""
    for arrow in re.finditer("->|→", body):
        before = body[: arrow.start()]
        if before.rstrip().endswith(")") or before.count("(") <= before.count(")"):
            return arrow.end() if find_close(before) is None else None
    return None


@given(st.text("[]()->→ a\n\x1f\u2003", max_size=40))
def test_the_arrow_is_found_as_by_its_definition(body: str) -> None:
    assert arrow_end(body) == plain_arrow_end(body)


class Counted(str):
    """A text that counts how many of its characters are copied or counted, in pieces."""

    work = 0

    def __getitem__(self, at: Any) -> str:
        piece = Counted(super().__getitem__(at))
        Counted.work += len(piece)
        return piece


@pytest.mark.parametrize("body", ["(->" * 5_000, "A(" * 5_000 + "->", "T(" + "[A(x -> " * 3_000], ids=lambda b: b[:6])
def test_looking_for_the_arrow_copies_no_text_again_and_again(body: str) -> None:
    Counted.work = 0
    assert arrow_end(Counted(body)) is None
    assert Counted.work <= len(body)


def test_what_may_become_a_call() -> None:
    names = ["Calculator", "T"]
    assert all(may_be_call(b, names) for b in ["", " ", "Foo", "Foo (", "Foo(a b", "Calc", "Calculator 1 + 1"])
    assert not any(may_be_call(b, names) for b in ["1", "citation needed", "see Foo(", "(", "-"])
    assert all(may_name_a_tool(b, names) for b in ["", "Calc", "Calculator(1", " T"])
    assert not any(may_name_a_tool(b, names) for b in ["Foo", "calc", "1"])


def test_a_long_response_is_cut_at_a_word() -> None:
    coded = tokenizer()
    ids, text = response_tokens(coded, "", "aa bb (cc) dd ee ff", 100)
    assert (ids, text) == (after(coded, " aa bb (cc) dd ee ff]"), " aa bb (cc) dd ee ff]")
    for limit in range(4, len(ids)):
        fewer, shown = response_tokens(coded, "", "aa bb (cc) dd ee ff", limit)
        assert len(fewer) <= limit
        assert coded.decode(fewer) == shown
        words = shown[1:-1].split()
        assert words == "aa bb (cc) dd ee ff".split()[: len(words)]
    assert response_tokens(coded, "", "aa bb", 1)[1] == " ]"


@given(any_texts, st.integers(1, 60))
def test_no_response_opens_or_closes_a_call(text: str, limit: int) -> None:
    _, closing = response_tokens(tokenizer(), "", response_line(text, 40), limit)
    body = f"T(x) ->{closing}"
    assert find_close(body) == len(body) - 1  # the bracket that decoding adds
    assert arrow_end(body) == len("T(x) ->")
    (call,) = find_calls(f"so [{body} and on")
    assert call.end == len(f"so [{body}")


ONE = GenerationSettings(max_new_tokens=4, top_k=1)


def said(lm: TransformersLM, tool: FakeTool, settings: GenerationSettings = ONE) -> Generation:
    (g,) = Toolformer(lm, [tool]).generate(["So!"], settings)
    return g


_MERGED = ["->", " ->", ") ->", ")->", "7)", "-> ", ") -> ", "->4", ") -> 4", " 49]", "T(7) ->"]


@pytest.mark.parametrize("words", [(), *((word,) for word in _MERGED)], ids=repr)
@pytest.mark.parametrize("arrow", [" -> 4", "->4", " → 4"])
def test_the_arrow_is_found_whatever_is_merged(words: tuple[str, ...], arrow: str) -> None:
    coded = merging(*words)
    written = after(coded, f"T(7){arrow}")
    if len(set(written)) < len(written):  # " " before the arrow and behind it: leave what follows the arrow out
        arrow = arrow.removesuffix(" 4")
    tool = T({"7": "49"})
    g = said(speaks(coded, f"T(7){arrow}"), tool)
    assert tool.asked == [("7", "")]
    (call,) = g.calls
    assert (call.tool, call.input, call.response, call.failure) == ("T", "7", "49", None)
    assert g.text[: call.end] == f" [T(7){arrow.removesuffix('4').rstrip()} 49]"
    assert call.start == 0
    assert coded.decode(g.ids).startswith(g.text[: call.end])  # what the model has seen is what is shown
    assert g.new_tokens == 4


@cache
def stripping() -> PreTrainedTokenizerFast:
    """A tokenizer of the older Llama kind whose decoder drops the space in front of a text."""
    pieces = Tokenizer.from_str(sentencepiece().backend_tokenizer.to_str())
    pieces.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=pieces, bos_token="<end>", eos_token="<end>")


@pytest.mark.parametrize("coded", [sentencepiece(), stripping()], ids=["kept", "stripped"])
def test_words_keep_their_spaces_with_such_a_tokenizer(coded: PreTrainedTokenizerFast) -> None:
    (bang,), words = after(coded, "!"), after(coded, " x y")
    lm = writing_lm("llama", coded, [([a], [b]) for a, b in itertools.pairwise([bang, *words, 0])])
    deltas = [e.text for e in Toolformer(lm, []).stream("So!", GenerationSettings()) if isinstance(e, TextDelta)]
    assert "".join(deltas) == " x y"
    g = said(speaks(coded, "T(7) ->", then=" x y"), T({"7": "49"}))
    assert g.text.startswith(" [T(7) -> 49] x y")


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (ToolFailure("no_result", "nothing there"), "no_result"),
        (RuntimeError("broken"), "crashed"),
        (SystemExit(3), "crashed"),
        (ToolError("no data"), "unavailable"),
        (" \n ", "empty"),
        (7, "crashed"),
    ],
)
def test_a_failing_tool_leaves_an_empty_response(answer: object, failure: str) -> None:
    g = said(speaks(tokenizer(), "T(7) ->"), T(lambda input, context: answer))
    (call,) = g.calls
    assert (call.response, call.failure) == ("", failure)
    assert g.text.startswith(" [T(7) -> ]")
    assert g.new_tokens == 4  # and decoding went on


@pytest.mark.parametrize(
    ("written", "tools", "failure", "name"),
    [
        ("QA(7) ->", None, "not_enabled", "QA"),  # a tool of the paper's that is not given
        ("T(7) ->", (), "not_enabled", "T"),
        ("T->", None, "bad_syntax", ""),
    ],
)
def test_calls_that_no_tool_answers(written: str, tools: tuple[str, ...] | None, failure: str, name: str) -> None:
    tool = T({"7": "49"})
    g = said(speaks(merging("->"), written), tool, GenerationSettings(max_new_tokens=12, top_k=1, tools=tools))
    (call,) = g.calls
    assert (call.tool, call.failure, call.response) == (name, failure, "")
    assert g.text.startswith(f" [{written} ]")
    assert not tool.asked
    assert g.new_tokens == 12


@pytest.mark.parametrize("written", ["U(7) ->", "To->", "U ->4", "->"])
def test_a_bracket_that_names_no_tool_is_text(written: str) -> None:
    tool = T({"7": "49"})
    g = said(speaks(merging("->"), written), tool, GenerationSettings(max_new_tokens=12, top_k=1))
    assert g.text.startswith(f" [{written}")
    assert (g.calls, g.taken_back, g.clean, g.new_tokens, tool.asked) == ((), 0, g.text, 12, [])


def test_the_context_reaches_the_tool() -> None:
    tool = T(lambda input, context: context)
    lm = speaks(tokenizer(), "T(7) ->")
    days = [GenerationSettings(max_new_tokens=2, top_k=1, context=day) for day in ("2023-01-30", "2024-02-29")]
    found = Toolformer(lm, [tool]).generate(["So!"] * 2, days)
    assert [g.calls[0].response for g in found] == ["2023-01-30", "2024-02-29"]


@pytest.mark.parametrize("written", ["T(7)]", "T(7"], ids=["closed", "cut off"])
def test_a_call_without_an_arrow_is_taken_back(written: str) -> None:
    tool, lm = T({"7": "49"}), speaks(tokenizer(), written)
    g = said(lm, tool, GenerationSettings(max_new_tokens=4, top_k=1, max_call_tokens=6))
    disabled = said(lm, tool, GenerationSettings(max_new_tokens=4, top_k=0))
    assert (g.taken_back, g.calls, tool.asked) == (1, (), [])
    assert g.ids == disabled.ids  # " [" was the first token: as if it had been forbidden
    assert g.text == g.clean == disabled.text


@pytest.mark.parametrize(
    ("family", "written", "tokens", "calls"),
    [("gpt2", "", 20, 3), ("llama", " [U(7) ->", 6, 1)],
    ids=["none", "no tool"],
)
def test_a_bracket_that_the_model_did_not_choose_leaves_no_trace(
    family: str, written: str, tokens: int, calls: int
) -> None:
    coded = tokenizer()
    lm = writing_lm(family, coded, [([a], [b]) for a, b in itertools.pairwise(after(coded, written))])
    (plain,) = Toolformer(lm, []).generate(["So!"], GenerationSettings(max_new_tokens=tokens, top_k=0))
    wide = GenerationSettings(max_new_tokens=tokens, top_k=len(coded), max_calls=calls, max_call_tokens=9)
    (g,) = Toolformer(lm, [T({"7": "49"})]).generate(["So!"], wide)
    assert (g.taken_back, g.calls, g.text, g.ids) == (calls, (), plain.text, plain.ids)


@pytest.mark.parametrize("calls", [0, 1, 2, 5])
def test_a_chain_ends_with_the_calls_that_are_allowed(calls: int) -> None:
    """The model calls again behind every response, and the tool answers what would close its call and open another."""
    number = itertools.count()
    tool = T(lambda input, context: f"{next(number)}] [T(")
    lm = speaks(tokenizer(), "T(7) ->", then=" [")
    g = said(lm, tool, GenerationSettings(max_new_tokens=5, top_k=1, max_calls=calls))
    made = min(calls, 3)  # the same call three times in a row is a loop
    assert [call.repeated for call in g.calls] == [False, True, True][:made]
    assert " [T" not in g.clean
    assert g.text.startswith(" [T(7) -> 0) (T(]" * made)  # the same call is run once
    assert (len(list(find_calls(g.text, ["T"]))), len(tool.asked)) == (made, min(made, 1))


def test_stop_strings_end_the_text_before_them() -> None:
    lm = speaks(tokenizer(), "T(7) ->", then=" xyz?.")
    inside_a_call = ("49", "T(")  # none of the text
    whole, cut, same = (
        said(lm, T({"7": "49"}), GenerationSettings(max_new_tokens=6, top_k=1, stop=stop))
        for stop in ((), ("nothing", "z?"), inside_a_call)
    )
    assert whole.clean.startswith(" xyz?.")
    assert (cut.text, cut.clean, cut.finish) == (" [T(7) -> 49] xy", " xy", "stop")
    assert same.text == whole.text


def test_a_call_cut_off_by_the_context_is_not_shown() -> None:
    prompt = "x" * 10 + "!"
    room = 16 - 1 - len(tokenizer()(prompt)["input_ids"])
    assert 0 < room < 9  # " [", T, (, 7, ), the arrow and an empty response take more
    lm = speaks(tokenizer(), "T(7) ->", context=16)
    (g,) = Toolformer(lm, [T({"7": "49"})]).generate([prompt], GenerationSettings(top_k=1))
    assert (g.calls, g.finish) == ((), "length")
    assert "[" not in g.text
