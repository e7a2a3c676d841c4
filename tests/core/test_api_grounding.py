"""`ground`, `ground_all` and `answer` with the embedded model, and their mistakes."""

import pytest

import toolformer_core as tf
from toolformer_core.api.grounding import ranked
from toolformer_core.errors import UsageError
from toolformer_core.grounding.records import Grounding, Query, ToolScore, Weights
from toolformer_core.lm.hf.engine import TransformersLM

QUERY = "Fadroko Girkor shared 6732 shells among 34 friends, and each got"


@pytest.fixture(scope="module")
def model() -> TransformersLM:
    return tf.load_model("embedded")


def test_a_query_gets_its_tools_ranked(model: TransformersLM) -> None:
    result = tf.ground(QUERY, ["calendar", "calculator"], model, context="2024-03-01")
    assert {one.tool for one in result.tools} == {"calculator", "calendar"}
    assert result.tool == result.tools[0].tool
    assert result.tools[0].total >= result.tools[1].total
    for one in result.tools:
        assert one.total == pytest.approx(0.75 * one.semantic + 0.25 * one.pattern)
    again, _ = tf.ground_all([QUERY, "Today is"], ["calendar", "calculator"], model, context="2024-03-01")
    assert [(one.tool, one.call, one.response) for one in again.tools] == [
        (one.tool, one.call, one.response) for one in result.tools
    ]
    assert [one.total for one in again.tools] == pytest.approx([one.total for one in result.tools], abs=1e-5)


def test_an_answer_is_the_chosen_tools_response(model: TransformersLM) -> None:
    result = tf.answer(QUERY, ["calendar"], model, context="2024-03-01")
    assert (result.grounded.tool, result.grounded.reason) == ("calendar", "calendar is the only tool")
    assert (result.text, result.failure) == ("Today is Friday, March 1, 2024.", "")
    none = tf.answer(QUERY, ["calendar"], model, threshold=9.0)
    assert none.grounded.tool is None
    assert none.text == none.grounded.answer
    assert none.grounded.reason.startswith("no tool reaches 9; the best, calendar, has ")


def test_the_reason_names_what_decided() -> None:
    weights = (1.0, 1.0)
    scores = (ToolScore("a", 0.2, "", "", "", (0, 1)), ToolScore("b", 0.6, "", "", "", (0, 0)))
    grounding = Grounding(Query("q"), "4", (0, 1), scores, weights)
    # P(a) = (1 + 1) 1 / ((1 + 2) 1) = 2/3, P(b) = 0; totals with gamma 0.5: 0.1 + 1/3 and 0.3
    said = "a is 0.133 ahead of b: -0.200 for how it fits the query, +0.333 for how its response is like the answer"
    assert ranked(grounding, Weights(gamma=0.5)).reason == said
    # with gamma 0.75: 0.15 + 1/6 and 0.45
    said = "b is 0.133 ahead of a: +0.300 for how it fits the query, -0.167 for how its response is like the answer"
    assert ranked(grounding, Weights()).reason == said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"query": " "}, "not blank"),
        ({"tools": []}, "no tools to choose from"),
        ({"gamma": 2.0}, "gamma must lie"),
        ({"smoothing": -1.0}, "lambda must be"),
        ({"mock": ["qa"]}, "not in the library: qa"),
        ({"patterns": "nope"}, "nope"),
    ],
)
def test_mistakes_are_named(model: TransformersLM, options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tf.ground(**{"query": "q", "tools": ["calculator"], "model": model} | options)  # type: ignore[arg-type]


def test_a_model_must_be_loaded_and_have_hidden_states() -> None:
    with pytest.raises(UsageError, match="load it once"):
        tf.ground("q", ["calculator"], "embedded")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="queries is one text"):
        tf.ground_all("q", ["calculator"], object())  # type: ignore[arg-type]
