"""Annotating and generating in memory: worked by hand, and compared with the stages one by one."""

import math
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

import toolformer_core as tf
from tests.core.decode.writers import speaks
from tests.fakes import FakeTool
from tests.support.scripted_lm import ScriptedLM, ScriptError
from tests.tiny import tokenizer
from toolformer_core.config import PrefilterConfig
from toolformer_core.lm.base import ScoreRequest

TEXT = "18 + 12 x 3 = 54 as said before"
# A token carries the space in front of it; behind " =" stand " 54", " as", " said", " before".
EQUALS, SAID = TEXT.index(" ="), TEXT.index(" said")


Fake = partial(FakeTool, name="Fake")


PROMPTS = {"fake": "Add calls.\n\nInput: {text}\nOutput:"}


def losses(told: dict[str, float], otherwise: float = -3.0) -> Any:
    """Log-probabilities of the first token, by what stands in front of the text; of the later ones, 0."""

    def log_probs(request: ScoreRequest) -> Sequence[float]:
        return [told.get(request.prefix, otherwise), 0.0, 0.0, 0.0, 0.0]

    return log_probs


def scripted(places: dict[int, dict[str, list[str]]], told: dict[str, float]) -> ScriptedLM:
    """A model that draws these calls in `TEXT`, by position and tool."""
    keys = {key for drawn in places.values() for key in drawn}
    return ScriptedLM(
        scans={(key, TEXT): {at: -1.0 for at, drawn in places.items() if key in drawn} for key in keys},
        samples={(key, TEXT, at): drawn[key] for at, drawn in places.items() for key in drawn},
        log_probs=losses(told),
    )


def test_gains_and_reasons_worked_by_hand() -> None:
    lm = scripted(
        {
            EQUALS: {
                "calculator": ["Calculator(18 + 12 * 3)]", "Calculator(18 + 12 * 3) -> 9]", "Calculator(12 * 3)]"],
                "fake": ["Fake(a)]", "Fake(b)]", "Fake(c"],
            },
            SAID: {"calculator": ["Calculator(x)]", "Calculator(x)]", "QA(x)]"], "fake": ["Fake(a)]"] * 3},
        },
        {
            " [Calculator(18 + 12 * 3) -> ]": -2.7,
            " [Calculator(18 + 12 * 3) -> 54]": -0.6,
            " [Calculator(12 * 3) -> 36]": -2.4,
            " [Fake(a) -> A]": -1.2,
            " [Fake(b) -> B]": -4.5,
        },
    )
    tool = Fake({"a": "A", "b": "B"})
    [found] = tf.annotate_texts([TEXT], lm, ["calculator", tool], prompts=PROMPTS, top_k=5, samples=3)
    assert tool.asked == [("a", ""), ("b", "")]  # each input once, and nothing that is no call
    assert found.text == TEXT
    assert found.annotated == "18 + 12 x 3 [Calculator(18 + 12 * 3) -> 54] = 54 as said before"
    # The first of five tokens weighs 5/15. Without a call it costs 3, so L(eps) = 3/3 = 1; so does every call without
    # its response, but for the first: 2.7/3 = 0.9. The calculator's tau_f is 0.5, a tool of one's own has 1.
    assert [(c.tool, c.input, c.response, c.position, c.count, c.tau_f, c.reason) for c in found.calls] == [
        ("calculator", "18 + 12 * 3", "54", EQUALS, 2, 0.5, ""),
        ("fake", "a", "A", EQUALS, 1, 1.0, "below_threshold"),
        ("calculator", "12 * 3", "36", EQUALS, 1, 0.5, "below_threshold"),
        ("fake", "b", "B", EQUALS, 1, 1.0, "below_threshold"),
        ("fake", "a", "A", SAID, 3, 1.0, "below_threshold"),
    ]
    gains = [0.9 - 0.6 / 3, 1 - 1.2 / 3, 1 - 2.4 / 3, 1 - 4.5 / 3, 1 - 1.2 / 3]  # 0.7, 0.6, 0.2, -0.5, 0.6
    assert [call.gain for call in found.calls] == pytest.approx(gains)
    best = found.calls[0]
    assert (best.loss_plain, best.loss_call, best.loss_response) == pytest.approx((1.0, 0.9, 0.2))
    assert (best.log_p, best.kept, found.kept) == (-1.0, True, (best,))
    assert best.span is not None
    assert found.annotated[slice(*best.span)] == " [Calculator(18 + 12 * 3) -> 54]"
    assert {call.span for call in found.calls[1:]} == {None}
    # "x" is no expression; the QA call is another tool's, and "Fake(c" was never closed
    [failed] = found.unanswered
    at = (failed.tool, failed.input, failed.position, failed.count, failed.failure)
    assert at == ("calculator", "x", SAID, 2, "not_an_expression")
    calculator, fake = found.tools.values()
    assert calculator == tf.ToolOutcome("calculator", "sampled", "equation", {"ok": 5, "wrong_tool": 1})
    assert fake == tf.ToolOutcome("fake", "sampled", "no_heuristic", {"ok": 5, "unterminated": 1})


def test_thresholds_for_all_tools_and_by_key() -> None:
    lm = scripted(
        {EQUALS: {"calculator": ["Calculator(18 + 36)]"], "fake": ["Fake(a)]"]}, SAID: {"fake": ["Fake(b)]"]}},
        {" [Calculator(18 + 36) -> 54]": -1.8, " [Fake(a) -> A]": -1.5, " [Fake(b) -> B]": -1.5},
    )
    tools = ["calculator", Fake({"a": "A", "b": "B"})]

    def reasons(tau_f: Any) -> list[str]:
        [found] = tf.annotate_texts([TEXT], lm, tools, prompts=PROMPTS, samples=1, tau_f=tau_f)
        assert [(c.tool, c.position) for c in found.calls] == [("fake", EQUALS), ("calculator", EQUALS), ("fake", SAID)]
        return [call.reason for call in found.calls]

    # gains 1 - 1.5/3 = 0.5 (fake, twice) and 1 - 1.8/3 = 0.4
    assert reasons(None) == ["below_threshold"] * 3
    assert reasons(0.45) == ["", "below_threshold", ""]
    assert reasons(0.3) == ["", "lower_gain", ""]  # one call to a position
    assert reasons({"calculator": 0.3}) == ["below_threshold", "", "below_threshold"]
    assert reasons({"fake": 0.3, "calculator": 0.6}) == ["", "below_threshold", ""]


def test_repeats_within_five_tokens_and_the_paper_s_rule() -> None:
    lm = scripted({EQUALS: {"fake": ["Fake(a)]"]}, SAID: {"fake": ["Fake(a)]"]}}, {" [Fake(a) -> A]": 0.0})
    # " said" is the fourth of the five tokens by which the first call is judged, and both gain 1 - 0/3
    [found] = tf.annotate_texts([TEXT], lm, [Fake({"a": "A"})], prompts=PROMPTS, samples=1)
    assert [call.reason for call in found.calls] == ["", "repeated_nearby"]
    [found] = tf.annotate_texts([TEXT], lm, [Fake({"a": "A"})], prompts=PROMPTS, samples=1, keep_repeats=True)
    assert found.annotated == "18 + 12 x 3 [Fake(a) -> A] = 54 as [Fake(a) -> A] said before"


def test_a_gain_that_is_no_number_is_dropped_and_stands_last() -> None:
    lm = scripted({EQUALS: {"fake": ["Fake(a)]", "Fake(b)]"]}}, {" [Fake(a) -> A]": math.nan, " [Fake(b) -> B]": -2.0})
    [found] = tf.annotate_texts([TEXT], lm, [Fake({"a": "A", "b": "B"})], prompts=PROMPTS, samples=2)
    assert [(call.input, call.reason) for call in found.calls] == [("b", "below_threshold"), ("a", "below_threshold")]


def test_a_text_without_calls_says_why() -> None:
    plain, unlikely, talk = "no number at all", "1 + 1 = 2", "2 + 2 = 4"
    lm = ScriptedLM(
        scans={("calculator", unlikely): {}, ("calculator", talk): {1: -1.0}},
        samples={("calculator", talk, 1): ["what?]"]},
    )
    found = tf.annotate_texts([plain, unlikely, talk], lm, "calculator", samples=1)
    assert [(one.annotated, one.calls, one.kept, one.unanswered) for one in found] == [
        (text, (), (), ()) for text in (plain, unlikely, talk)
    ]
    outcomes = [one.tools["calculator"] for one in found]
    assert [one.outcome for one in outcomes] == ["filtered_out", "no_position", "no_call"]
    assert [one.prefilter for one in outcomes] == ["few_numbers", "equation", "equation"]
    assert [one.samples for one in outcomes] == [{}, {}, {"unparsable": 1}]


def test_without_the_prefilter_every_text_is_tried_whole_with_its_date() -> None:
    text = "Today is a day. Das ist gut."
    lm = ScriptedLM(
        scans={(key, text): {5: -1.0} for key in ("calendar", "mt")},
        samples={("calendar", text, 5): ["Calendar()]"], ("mt", text, 5): ["MT(Das ist gut)]"]},
        log_probs=losses({}),
    )
    tool = FakeTool({"Das ist gut": "That is good"})
    tool.key, tool.name = "mt", "MT"
    urls = ["https://a.example/2023/01/30/x"]
    [found] = tf.annotate_texts([text], lm, ["calendar", tool], urls=urls, samples=1, prefilter=False)
    assert {one.prefilter for one in found.tools.values()} == {"not_filtered"}
    assert [call.response for call in found.calls] == ["Today is Monday, January 30, 2023.", "That is good"]
    # no URL, no date: the tool says so
    [found] = tf.annotate_texts([text], lm, ["calendar"], samples=1, prefilter=False)
    assert [call.failure for call in found.unanswered] == ["no_date"]
    [found] = tf.annotate_texts([text], lm, ["calendar"], urls=[None])
    assert found.tools["calendar"].prefilter == "no_url_date"


def test_a_config_of_the_prefilter_is_used() -> None:
    # 1 + 2 = 3, but they stand further apart than two tokens: three numbers without a relation, kept at random
    text = "1 a b c d 2 e f g h 3"
    lm = ScriptedLM(scans={("calculator", text): {}})

    def reason(config: PrefilterConfig) -> str:
        return tf.annotate_texts([text], lm, ["calculator"], prefilter=config)[0].tools["calculator"].prefilter

    assert reason(PrefilterConfig(few_numbers_share=1.0, number_window=2)) == "random_share"
    assert reason(PrefilterConfig(few_numbers_share=0.0, number_window=2)) == "unrelated_numbers"


def test_a_text_given_twice_is_asked_once_and_answered_twice() -> None:
    lm = scripted({EQUALS: {"fake": ["Fake(a)]"]}}, {})
    tool = Fake({"a": "A"})
    told: list[tuple[str, int, int]] = []
    first, second = tf.annotate_texts(
        [TEXT, TEXT], lm, [tool], prompts=PROMPTS, samples=1, on_progress=lambda *args: told.append(args)
    )
    assert first == second
    assert tool.asked == [("a", "")]
    assert told == [("fake", 1, 1)]
    lm = scripted({EQUALS: {"fake": ["QA(x)]"]}}, {})
    with pytest.raises(ScriptError, match=r"'QA\(x\)\]' does not begin with 'Fake\('"):
        tf.annotate_texts([TEXT], lm, [tool], prompts=PROMPTS, samples=1, draw_form="forced")


def test_a_tool_is_asked_several_calls_at_once_where_that_is_wanted() -> None:
    both = threading.Barrier(2, timeout=20)

    def answer(input: str, context: str) -> str:
        both.wait()  # each answer needs the other one's question
        return input.upper()

    lm = scripted({EQUALS: {"fake": ["Fake(a)]", "Fake(b)]"]}}, {})
    [found] = tf.annotate_texts([TEXT], lm, [Fake(answer)], prompts=PROMPTS, samples=2, tool_workers=2)
    assert [(call.input, call.response) for call in found.calls] == [("a", "A"), ("b", "B")]


def test_progress_goes_by_batches_of_the_model_and_by_shards() -> None:
    texts = [f"{i} + 0 = {i}" for i in range(258)]
    lm = ScriptedLM(scans={("calculator", text): {} for text in texts}, batch_size=200)
    told: list[tuple[str, int, int]] = []
    found = tf.annotate_texts(texts, lm, ["calculator"], on_progress=lambda *args: told.append(args))
    assert [one.text for one in found] == texts
    # a shard holds 256 documents: one scan of 200 and one of 56, then one of 2
    assert told == [("calculator", done, 258) for done in (200, 256, 258)]
    assert tf.annotate_texts([], ScriptedLM(), ["calculator"]) == []


def test_generating_asks_the_tool_gives_back_what_it_was_given_and_leaves_no_thread_behind() -> None:
    lm = speaks(tokenizer(), "T(7) ->")
    settings = tf.GenerationSettings(max_new_tokens=4, top_k=1)
    tool = FakeTool({"7": "49"}, name="T")
    one = tf.generate("So!", lm, [tool], settings)
    assert (one.calls[0].tool, one.calls[0].input, one.calls[0].response) == ("T", "7", "49")
    assert one.text.startswith(" [T(7) -> 49]")
    assert (tool.asked, tool.loads) == ([("7", "")], 1)
    # each its own settings: the second may not call
    both = tf.generate(("So!", "So!"), lm, [tool], [settings, tf.GenerationSettings(max_new_tokens=4, top_k=0)])
    assert [len(written.calls) for written in both] == [1, 0]
    assert tf.generate("So!", lm).calls == ()
    assert tf.generate([], lm) == []
    for thread in threading.enumerate():
        if thread.name == "decode-T":
            thread.join(timeout=10)
    assert "decode-T" not in {thread.name for thread in threading.enumerate()}
