"""The viewer's parts: what a response did to each token, their texts, a chart, the pieces of a document."""

from importlib.resources import files
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.viewer.conftest import BEST
from toolformer_core.annotate.score import loss, weights
from toolformer_core.config import TOOL_NAMES
from toolformer_core.embedded import MODEL
from viewer.charts import funnel_chart, gain_chart
from viewer.next_tokens import next_tokens, token_texts
from viewer.pages.document import pieces_of
from viewer.query import Query, WrongQueryError, document_link, link
from viewer.rendering import tool_class
from warehouse.indexed_calls import CallKey
from warehouse.queries.calls import GainBin

LOG_PROBS = st.lists(st.floats(-20, 0, width=32), min_size=5, max_size=5)


def test_the_helps_of_tokens_by_hand() -> None:
    tokens = next_tokens(BEST, list("abcde"))
    assert [one.text for one in tokens] == list("abcde")
    # 23.5/15 < 25/15: the reference is the text with the call alone
    assert [one.help for one in tokens] == pytest.approx([5 / 15 * 2.4, 0, 0, 0, -1 / 15])
    assert [one.level for one in tokens] == [3, 0, 0, 0, -2]  # 0.8; -0.067
    assert sum(one.help for one in tokens) == pytest.approx(11 / 15)
    assert next_tokens({"loss_plain": 1.0, "loss_call": 1.0, "log_p_plain": None}, None) == []  # of earlier versions


@given(LOG_PROBS, LOG_PROBS | st.none(), LOG_PROBS, st.integers(1, 5))
def test_helps_add_up_to_the_gain(plain: list[float], call: list[float] | None, response: list[float], n: int) -> None:
    """Also near the end of a text, where there are fewer than five, and where a loss was not computed."""
    row: dict[str, Any] = {"loss_call": None}
    for name, values in (("plain", plain), ("call", call), ("response", response)):
        if values is not None:
            row[f"log_p_{name}"] = values[:n]
            row[f"loss_{name}"] = loss(np.asarray(values[:n], dtype=np.float32), weights())
    least = min(value for value in (row["loss_plain"], row["loss_call"]) if value is not None)
    helps = [one.help for one in next_tokens(row, None)]
    assert len(helps) == n
    assert sum(helps) == pytest.approx(least - row["loss_response"], abs=1e-5)


def test_the_texts_of_tokens_end_where_the_window_does() -> None:
    text = "The sum of 27 and 4 is 31 in all."
    for count in range(1, 6):
        row = {"position": 22, "log_p_plain": [0.0] * count}
        ends = [end for end in range(23, len(text) + 1) if token_texts("embedded", text, {**row, "window_end": end})]
        assert len(ends) == 1  # no other window has so many tokens
        texts = token_texts(str(MODEL), text, {**row, "window_end": ends[0]})
        assert texts is not None
        assert len(texts) == count
        assert "".join(texts) == text[22 : ends[0]]
    assert token_texts("no/such-model", text, {**row, "window_end": ends[0]}) is None
    assert token_texts("embedded", text, {**row, "window_end": None}) is None


def test_a_chart_says_in_words_what_it_shows() -> None:
    bins = [GainBin("<a>", None, 0.0, 3), GainBin("<a>", 0.0, 0.5, 6), GainBin("<a>", 0.5, None, 0)]
    chart = gain_chart("<a>", bins, {"now": 0.25, "then": 9.0}, "tool-3")
    assert 'role="img" ' in chart
    assert "Gains of 9 scored calls of &lt;a&gt;, in nats; threshold now 0.25, threshold then 9" in chart
    assert '<rect class="bar tool-3" x="0" y="32.0" width="22" height="32.0">' in chart  # 3 of 6, of 64 pixels
    assert 'x="26" y="0.0" width="22" height="64.0"' in chart
    # 0.25 lies half a bin behind the first one: (1 + 0.5) * 26 - 2; 9 is beyond the chart: (1 + 1.5) * 26 - 2
    assert 'class="threshold now" x1="37.0"' in chart
    assert 'class="threshold then" x1="63.0"' in chart
    assert "then" not in gain_chart("a", bins, {"now": 0.5, "then": 0.5}, "")


def test_a_funnel_has_a_bar_for_each_stage() -> None:
    chart = funnel_chart("<a>", {"documents": 40, "scored": 1_600, "kept": 0}, "tool-3")
    assert 'aria-label="&lt;a&gt;: documents 40, scored 1,600, kept 0"' in chart
    # the longest bar has 216 pixels; 40 of 1,600 are 216 / 40 = 5.4; a line is 20 pixels high
    assert '<rect class="bar tool-3" x="80" y="2" width="5.4" height="16"/><text x="89.4" y="14">40</text>' in chart
    assert ' y="22" width="216.0" height="16"/><text x="300" y="34">1,600</text>' in chart
    assert '<rect class="bar tool-3" x="80" y="42" width="0.0" height="16"/>' in chart


def test_a_tool_has_its_colour_whatever_other_tools_there_are() -> None:
    assert [tool_class(tool) for tool in TOOL_NAMES] == ["tool-0", "tool-1", "tool-2", "tool-3", "tool-4"]
    assert tool_class("weather") == "tool-7"  # 5 + crc32 % 3
    style = files("viewer").joinpath("static/viewer.css").read_text(encoding="utf-8")
    assert all(f".{tool_class(f'own{number}')} " in style for number in range(20))


@given(st.text(max_size=40), st.lists(st.tuples(st.integers(0, 40), st.text(max_size=5)), max_size=5))
def test_the_pieces_of_a_document_without_its_calls_are_its_text(text: str, calls: list[tuple[int, str]]) -> None:
    rows = [
        {"tool": "qa", "position": min(at, len(text)), "input": said, "response": said, "outcome": "kept"}
        for at, said in calls
    ]
    pieces = pieces_of(text, rows, rows[0] if rows else None, {"qa": "QA"}, "d")
    assert "".join(piece.text for piece in pieces if not piece.tool) == text
    assert sum(piece.chosen for piece in pieces) == min(len(rows), 1)


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 2**64 - 1), st.integers(0, 2**31 - 1))
def test_places_in_lists_are_read_back(gain: float, doc: int, position: int) -> None:
    key = CallKey(gain, 7, doc, position)
    further = parse_qsl(urlsplit(Query([]).further("/calls", "after", key) or "").query)
    assert Query(further).place("after", CallKey) == key


def test_links() -> None:
    assert link("/calls", tool="qa", low=None, outcome="") == "/calls?tool=qa"
    assert document_link("a/b?c") == "/documents/a%2Fb%3Fc"
    assert document_link("d", {"tool": "qa", "position": 3}) == "/documents/d?call=qa%3A3%3A0#call"
    query = Query([("a", "1"), ("a", "2"), ("b", " ")])
    assert query.to("/x", c=3) == "/x?a=2&c=3"
    assert query.to("/x", a=None) == "/x"
    with pytest.raises(WrongQueryError, match=r"a is a number from 3 to 4, not '2'"):
        query.number("a", 3, 4)
    with pytest.raises(WrongQueryError, match="at most 10,000 characters"):
        Query([("q", "x" * 10_001)]).text("q")
