from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import a_prompt
from tests.support.scripted_lm import ScriptedLM, ScriptError, token_starts
from toolformer_core.lm.base import Draw, DrawRequest, LanguageModel, ScoreRequest

SCANS = {("calculator", "a bc"): {1: -0.5}, ("calculator", "d"): {0: -1.0}}
DRAWS = {("calculator", "a bc", 1): ["Calculator(1)] and on", "Calculator([1)]"]}


def test_it_is_a_language_model():
    lm: LanguageModel = ScriptedLM(SCANS, DRAWS, name="small")
    assert lm.name == "small"


@given(st.text(st.sampled_from("ab \n\t"), max_size=12))
def test_tokens_cover_the_text_from_its_beginning(text):
    starts = token_starts(text)
    pieces = [text[a:b] for a, b in zip(starts, [*starts[1:], len(text)], strict=True)] if text else []
    assert "".join(pieces) == text
    assert all(pieces)


def test_a_scan_holds_every_token_start_and_minus_infinity_where_nothing_is_said():
    (scan,) = ScriptedLM(SCANS).scan(a_prompt(), ["d", "a bc"])
    assert list(scan.texts) == [0, 1]
    assert [p.tolist() for p in scan.positions] == [[0], [0, 1]]
    assert [p.tolist() for p in scan.log_probs] == [[-1.0], [-np.inf, -0.5]]


def test_batches_and_their_order():
    scans = ScriptedLM(SCANS, batch_size=1, reverse=True).scan(a_prompt(), ["d", "a bc"])
    assert [list(scan.texts) for scan in scans] == [[1], [0]]


def test_the_nth_draw_at_a_place_is_the_nth_text_cut_where_it_closes():
    scan = next(ScriptedLM(SCANS, DRAWS).scan(a_prompt(), ["a bc"]))
    drawn = scan.draw([DrawRequest(0, 1, 1), DrawRequest(0, 1, 2)], max_tokens=9, temperature=1.0)
    assert drawn == [Draw("Calculator(1)", True), Draw("Calculator([1)]", False)]


def test_a_scan_ends_when_the_next_is_asked_for():
    scans = ScriptedLM(SCANS, DRAWS, batch_size=1).scan(a_prompt(), ["a bc", "d"])
    first = next(scans)
    next(scans)
    with pytest.raises(ScriptError, match="no longer valid"):
        first.draw([DrawRequest(0, 1, 1)], max_tokens=9, temperature=1.0)


def test_what_the_script_does_not_hold_is_named():
    lm = ScriptedLM(SCANS, DRAWS)
    with pytest.raises(ScriptError, match="no scan is scripted for tool 'qa' and text 'd'"):
        list(lm.scan(a_prompt("qa"), ["d"]))
    scan = next(lm.scan(a_prompt(), ["d"]))
    with pytest.raises(ScriptError, match="draw 1 for tool 'calculator' at position 0 of text 'd': the script has 0"):
        scan.draw([DrawRequest(0, 0, 1)], max_tokens=9, temperature=1.0)
    with pytest.raises(ScriptError, match=r"text 1 is not in this scan, which holds \[0\]"):
        scan.draw([DrawRequest(1, 0, 1)], max_tokens=9, temperature=1.0)
    with pytest.raises(ScriptError, match="for prefix 'z', position 2 of text 'a bc'"):
        lm.log_probs([ScoreRequest("z", "a bc", 2, 5)])


@pytest.mark.parametrize("script", [({("t", "a bc"): {2: -1.0}}, {}), ({}, {("t", "a bc", 2): ["x]"]})])
def test_a_script_that_names_no_token_start_is_refused(script):
    with pytest.raises(ScriptError, match="names position 2, where no token of 'a bc' starts"):
        ScriptedLM(*script)


def test_log_probs_are_cut_to_the_tokens_asked_for():
    lm = ScriptedLM(log_probs={("", "a bc", 0): [-1.0, -2.0]})
    assert [p.tolist() for p in lm.log_probs([ScoreRequest("", "a bc", 0, n) for n in (1, 5)])] == [
        [-1.0],
        [-1.0, -2.0],
    ]


def test_the_digest_is_of_the_script():
    same = ScriptedLM(dict(reversed(SCANS.items())), DRAWS)
    assert ScriptedLM(SCANS, DRAWS).digest == same.digest
    digests = {ScriptedLM(SCANS).digest, same.digest, ScriptedLM(log_probs={("", "a", 0): [0.0]}).digest}
    assert len(digests) == 3


def test_a_draw_that_is_given_its_beginning_must_begin_so():
    scan = next(ScriptedLM(SCANS, DRAWS).scan(a_prompt(), ["a bc"]))
    asked = [DrawRequest(0, 1, 1)]
    assert scan.draw(asked, max_tokens=9, temperature=1.0, begin="Calculator(") == [Draw("Calculator(1)", True, 0.0)]
    with pytest.raises(ScriptError, match=r"the draw 'Calculator\(1\)] and on' does not begin with 'QA\('"):
        scan.draw(asked, max_tokens=9, temperature=1.0, begin="QA(")
