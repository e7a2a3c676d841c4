"""Grounding with scripted models: every number by hand, every call counted."""

import math
from typing import Any

import pytest
from fakes import FakeTool

from tests.support.scripted_grounding import ScriptedEncoder, ScriptedSmallLM
from toolformer_core.errors import UsageError
from toolformer_core.grounding.baselines import chosen_by_lm, few_shot_prompt
from toolformer_core.grounding.ground import NO_CALL, Grounder, GroundingSettings
from toolformer_core.grounding.library import library_of
from toolformer_core.grounding.patterns import AUTHORS_PATTERNS, Pattern, PatternSet
from toolformer_core.grounding.records import Query, Weights
from toolformer_core.lm.base import Draw
from toolformer_core.records import ToolFailure
from toolformer_core.tools.declaration import ToolDeclaration

_LN2 = math.log(2)
PATTERNS = PatternSet("two", (Pattern("letters", "[a-z]+", 0.5), Pattern("digits", "[0-9]+", 0.125)))
SUM, CITY = "What is 2 plus 3?", "Where is Lima?"


class DeclaredTool(FakeTool):
    """A fake with a name, a description and demonstrations of its own."""

    def __init__(self, name: str, description: str, answers: dict[str, object], mock_response: str = "") -> None:
        super().__init__(answers)
        self.name = name
        self.key = name.lower()
        self.description = description
        self.declaration = ToolDeclaration(examples=((f"Ask {name}?", "something"),), mock_response=mock_response)


def the_tools() -> tuple[DeclaredTool, DeclaredTool]:
    return (
        DeclaredTool("Adder", "adds", {"2 + 3": "5"}, mock_response="7"),
        DeclaredTool("Finder", "finds", {"Lima": "in peru", "5": "none"}),
    )


def the_lm() -> ScriptedSmallLM:
    return ScriptedSmallLM(
        {f"Q: {SUM}\nA:": "\n 6\nQ: more", f"Q: {CITY}\nA:": " in chile "},
        {
            ("adder", f"{SUM}\nCall:"): "Adder(2 + 3)] and more",
            ("adder", f"{CITY}\nCall:"): "Adder(where",  # it never ends
            ("finder", f"{SUM}\nCall:"): "Finder(nothing)]",
            ("finder", f"{CITY}\nCall:"): "Finder(Lima)]",
        },
    )


def the_encoder() -> ScriptedEncoder:
    # cosine of the sum with "adds": 3/5, with "finds": 4/5; of the city: 0 and 1
    return ScriptedEncoder({"adds": (1, 0), "finds": (0, 1), SUM: (3, 4), CITY: (0, 2)})


def test_every_score_by_hand() -> None:
    adder, finder = the_tools()
    lm, encoder = the_lm(), the_encoder()
    grounder = Grounder(library_of([adder, finder]), lm, encoder, patterns=PATTERNS)
    about_sum, about_city = grounder.ground([Query(SUM), Query(CITY)])

    assert (about_sum.answer, about_sum.counts) == ("6", (0, 1))  # the first line that is not blank
    assert (about_city.answer, about_city.counts) == ("in chile", (2, 0))
    first, second = about_sum.scores
    assert (first.call, first.response, first.failure, first.counts) == ("2 + 3", "5", "", (0, 1))
    assert (second.call, second.response, second.failure) == ("nothing", "", "no_result")
    assert [score.semantic for score in about_sum.scores] == pytest.approx([0.6, 0.8])
    # P(6, 5), lambda 1: (1 + 1) 1 3 ln 2 / ((1 + 2) 1) = 2 ln 2; an empty response scores 0
    assert [about_sum.pattern(score, 1.0) for score in about_sum.scores] == pytest.approx([2 * _LN2, 0.0])
    assert dict(about_sum.totals(Weights())) == pytest.approx(
        {"adder": 0.75 * 0.6 + 0.25 * 2 * _LN2, "finder": 0.75 * 0.8}
    )
    assert about_sum.choice(Weights()) == "adder"  # 0.797 against 0.6
    assert about_sum.choice(Weights(gamma=1)) == "finder"  # the cosine alone
    assert about_sum.choice(Weights(threshold=0.8)) is None

    unended, found = about_city.scores
    assert (unended.call, unended.response, unended.failure, unended.counts) == ("", "", NO_CALL, (0, 0))
    # P("in chile", "in peru"): (2 + 1) 2 ln 2 / ((2 + 2) 2) = 0.75 ln 2
    assert about_city.pattern(found, 1.0) == pytest.approx(0.75 * _LN2)
    assert [score.tool for score, _ in about_city.ranking(Weights())] == ["finder", "adder"]


def test_the_authors_rule_reads_answer_and_responses() -> None:
    tools = DeclaredTool("Calculator", "adds", {"2 + 3": "5.0"}), DeclaredTool("Finder", "finds", {"sum": "Unknown"})
    calls = {("calculator", f"{SUM}\nCall:"): "Calculator(2 + 3)]", ("finder", f"{SUM}\nCall:"): "Finder(sum)]"}
    lm = ScriptedSmallLM({SUM: " That is\ntwenty five, Sir. More"}, calls)
    settings = GroundingSettings(answer_prompt="{query}")
    grounder = Grounder(library_of(tools), lm, the_encoder(), patterns=AUTHORS_PATTERNS, settings=settings)
    (grounding,) = grounder.ground([Query(SUM)])
    assert grounding.answer == "That is twenty five, Sir."  # up to the first full stop
    names = AUTHORS_PATTERNS.names
    assert dict(zip(names, grounding.counts, strict=True)) == dict.fromkeys(names, 0) | {"number": 1, "english": 3}
    first, second = grounding.scores
    # four patterns in the answer, of seven classes; the calculator's full stop does not count:
    # (1 + 1) 1 ln 50 / ((4 + 7) 1)
    assert grounding.pattern(first, 1.0) == pytest.approx(2 / 11 * math.log(50))
    assert grounding.pattern(second, 1.0) == 0.0


def test_only_the_small_lms_calls_are_sampled() -> None:
    class Sampled(ScriptedSmallLM):
        asked_at: list[float | None] = []  # noqa: RUF012

        def calls(self, *args: Any, top_p: float | None = None, **options: Any) -> list[Draw | None]:
            self.asked_at.append(top_p)
            return super().calls(*args, **options)

    lm = Sampled({f"Q: {SUM}\nA:": "6"}, {("adder", f"{SUM}\nCall:"): "Adder(2 + 3)]"})
    settings = GroundingSettings(call_top_p=0.9)
    grounder = Grounder(library_of(the_tools()[:1]), lm, the_encoder(), patterns=PATTERNS, settings=settings)
    (grounding,) = grounder.ground([Query(SUM)])
    grounder.answer_all([Query(SUM)], [grounding.choice(Weights())], lm)
    assert lm.asked_at == [0.9, None]
    with pytest.raises(UsageError, match="call_top_p must lie in"):
        GroundingSettings(call_top_p=0.0)


def test_a_query_takes_n_plus_1_small_calls_and_one_large_call() -> None:
    lm, encoder = the_lm(), the_encoder()
    grounder = Grounder(library_of(the_tools()), lm, encoder, patterns=PATTERNS)
    queries = [Query(SUM), Query(CITY)]
    groundings = grounder.ground(queries)
    assert lm.asked == grounder.cost.small_calls == 2 * (2 + 1)
    assert (grounder.cost.large_calls, grounder.cost.tool_calls) == (0, 3)  # one call was never ended
    assert grounder.cost.tokens == lm.tokens

    large = the_lm()
    choices = [grounding.choice(Weights()) for grounding in groundings]
    answers = grounder.answer_all(queries, choices, large)
    assert large.asked == grounder.cost.large_calls == 2
    assert [(a.tool, a.call, a.text, a.failure) for a in answers] == [
        ("adder", "2 + 3", "5", ""),
        ("finder", "Lima", "in peru", ""),
    ]
    assert lm.asked == 6


def test_without_a_tool_the_large_lm_answers_itself() -> None:
    grounder = Grounder(library_of(the_tools()), the_lm(), the_encoder(), patterns=PATTERNS)
    (answer,) = grounder.answer_all([Query(SUM)], [None], the_lm())
    assert (answer.tool, answer.text, answer.failure) == (None, "6", "")
    assert grounder.ground([]) == []


def test_what_failed_is_recorded() -> None:
    adder = DeclaredTool("Adder", "adds", {"2 + 3": ToolFailure("broken", "why")})
    grounder = Grounder(library_of([adder]), the_lm(), the_encoder(), patterns=PATTERNS)
    (grounding,) = grounder.ground([Query(SUM)])
    assert (grounding.scores[0].call, grounding.scores[0].failure) == ("2 + 3", "broken")
    answers = grounder.answer_all([Query(SUM), Query(CITY)], ["adder", "adder"], the_lm())  # no call is written for one
    assert [(a.tool, a.text, a.failure) for a in answers] == [("adder", "", "broken"), ("adder", "", NO_CALL)]


def test_a_mock_response_stands_for_the_tool() -> None:
    adder, finder = the_tools()
    lm = the_lm()
    grounder = Grounder(library_of([adder, finder], mock=["adder"]), lm, the_encoder(), patterns=PATTERNS)
    (grounding,) = grounder.ground([Query(SUM)])
    assert (lm.asked, adder.asked, adder.loads) == (2, [], 0)  # the answer, and one call: the adder is not asked
    score = grounding.scores[0]
    assert (score.call, score.response, score.mock, score.counts) == ("", "7", True, (0, 1))
    (answer,) = grounder.answer_all([Query(SUM)], ["adder"], the_lm())
    assert (answer.text, adder.asked) == ("5", [("2 + 3", "")])  # chosen, it is asked


def test_equal_calls_are_asked_once_and_the_context_reaches_the_tool() -> None:
    adder = DeclaredTool("Adder", "adds", {"2 + 3": "5"})
    lm = the_lm()
    grounder = Grounder(library_of([adder]), lm, the_encoder(), patterns=PATTERNS)
    grounder.ground([Query(SUM), Query(SUM), Query(SUM, "2024-01-02")])
    assert sorted(adder.asked) == [("2 + 3", ""), ("2 + 3", "2024-01-02")]
    assert (lm.asked, grounder.cost.tool_calls) == (6, 2)


def test_descriptions_are_embedded_once() -> None:
    encoder, shared = the_encoder(), {}  # type: ignore[var-annotated]
    for _ in range(2):
        grounder = Grounder(library_of(the_tools()), the_lm(), encoder, patterns=PATTERNS, embeddings=shared)
        grounder.ground([Query(SUM)])
        grounder.ground([Query(CITY)])
    assert sorted(encoder.asked) == sorted(["adds", "finds", SUM, CITY, SUM, CITY])


def test_libraries_that_make_no_sense_are_refused() -> None:
    adder, finder = the_tools()
    bare = FakeTool({})
    for tools, options, message in (
        ([], {}, "no tools"),
        ([adder, finder], {"mock": ["finder"]}, "no mock response"),
        ([adder], {"mock": ["finder"]}, "not in the library: finder"),
        ([bare], {}, "without demonstrations"),
    ):
        with pytest.raises(UsageError, match=message):
            library_of(tools, **options)  # type: ignore[arg-type]
    assert [one.mocked for one in library_of([adder, finder], mock=True)] == [True, False]
    with pytest.raises(UsageError, match="needs one"):
        GroundingSettings(answer_prompt="no place")


def test_the_lm_chooses_among_the_names_and_sees_examples() -> None:
    assert few_shot_prompt([("a?", "b")], "c?", "Q: {query}\nA:") == "Q: a?\nA: b\n\nQ: c?\nA:"
    library = library_of(the_tools())
    head = "Choose the tool that helps most with the question.\n\nAdder: adds\nFinder: finds\n\n"
    lm = ScriptedSmallLM({f"{head}Question: {SUM}\nTool:": " Adder", f"{head}Question: {CITY}\nTool:": "no room"})
    assert chosen_by_lm(library, lm, [SUM, CITY]) == ["adder", None]
    assert lm.asked == 2
