"""From what was observed to figures and a verdict, on a scripted model: every number worked out by hand."""

import math
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import FakeTool, a_document, a_prompt, a_verdict
from tests.support.scripted_lm import ScriptedLM
from toolformer_core.config import SampleConfig
from toolformer_core.diagnose.figures import Figures, figures_of
from toolformer_core.diagnose.gold import ChosenDocuments, GoldCall
from toolformer_core.diagnose.observe import Observed, observe
from toolformer_core.diagnose.structure import Structure
from toolformer_core.diagnose.verdict import STEPS, judge
from toolformer_core.errors import ContextError, ModelError, ToolError
from toolformer_core.lm.base import ScoreRequest
from toolformer_core.records import DrawnCall

A = "We had 2 and 3 so 5 now we go on and on"
#      2   6 8   12 14 17
B = "They ate 4 and 4 so 8 in all of one day"
#        4   8 10  14 16 19
C = "Nothing is to be added up here or there"
AT_A, AT_B = 17, 19  # the spaces in front of 5 and of 8
HALF = math.log(0.5)
TOOL = {"2 + 3": "5", "3 + 2": "5", "4 + 4": "8"}


Calculator = partial(FakeTool, name="Calculator")


def starts(text: str) -> dict[int, float]:
    """p(" [") is 0.1 % at every place, and less than that at none."""
    return {m: math.log(0.001) for m in [0, *(i for i, c in enumerate(text) if c == " ")]}


def log_probs(request: ScoreRequest) -> list[float]:
    """The first token costs 4 nats; behind the right response 1, behind a wrong one 5, behind a bare call 4.5."""
    right = "-> 5]" if request.text == A else "-> 8]"
    if not request.prefix:
        first = -4.0
    elif "-> ]" in request.prefix:
        first = -4.5
    else:
        first = -1.0 if request.prefix.endswith(right) else -5.0
    return [first, 0.0, 0.0, 0.0, 0.0]


def chosen() -> ChosenDocuments:
    documents = [replace(a_document(text), doc_id=name) for name, text in (("a", A), ("b", B), ("c", C))]
    gold = (GoldCall("a", "calculator", "2 + 3", AT_A, "5"), GoldCall("b", "calculator", "4 + 4", AT_B, "8"))
    return ChosenDocuments(tuple((d, a_verdict(d)) for d in documents), gold, dropped=1)


def observed(tool: FakeTool | None = None, lm: ScriptedLM | None = None) -> Observed:
    """Two positions are drawn at in each document, twice each.

    In a, the gold one is the likeliest: "3 + 2" (as good as gold) and a draw of another tool. In b, the gold one is the
    third: nothing is drawn there. In c, a call is drawn where none is right.
    """
    scans = {
        ("calculator", A): starts(A) | {AT_A: HALF, 0: math.log(0.2)},
        ("calculator", B): starts(B) | {AT_B: math.log(0.1), 0: HALF, 4: math.log(0.2)},
        ("calculator", C): starts(C) | {0: HALF, 7: math.log(0.2)},
    }
    samples = {
        ("calculator", A, AT_A): ["Calculator(3 + 2)]", "QA(What?)]"],
        ("calculator", A, 0): ["Calculator(2 +", "Calculator]"],
        ("calculator", B, 0): ["Calculator(4 + 4)]", "Calculator(9)]"],
        ("calculator", B, 4): ["no]", "no]"],
        ("calculator", C, 0): ["Calculator(4 + 4)]", "Calculator(4 + 4)]"],
        ("calculator", C, 7): ["no]", "no]"],
    }
    lm = lm or ScriptedLM(scans, samples, log_probs)
    config = SampleConfig(tau_s=0.15, top_k=2, samples=2)
    return observe(lm, tool or Calculator(TOOL), a_prompt("calculator"), chosen(), config)


STRUCTURE = Structure(1.0, 4, 100, 1000, loss=2.0, vocabulary=1000)


def figures(tau_f: float = 0.5) -> Figures:
    return figures_of(observed(), tau_f, STRUCTURE)


def test_where_the_model_would_call() -> None:
    found = figures().position
    assert (found.gold, found.tau_s, found.top_k) == (2, 0.15, 2)
    assert found.above_tau_s == 0.5  # p is 0.5 in a, and 0.1 in b
    assert found.in_top_k == 0.5  # first in a, third in b
    assert found.reached == 0.5
    assert found.rank == 2.0  # the median of 1 and 3
    assert found.rank_for_half == 1
    assert found.tau_s_for_half == pytest.approx(0.5)
    assert found.p == pytest.approx(0.3)  # the median of 0.5 and 0.1


def test_what_the_model_writes() -> None:
    found = figures().imitation
    assert found.samples == 12  # 3 documents x 2 positions x 2
    assert found.ok == pytest.approx(5 / 12)  # 3 + 2, 4 + 4, 9, and in c 4 + 4 twice
    assert found.at_gold == 2  # only a's gold position was drawn at
    assert (found.well_formed, found.wrong_tool, found.unterminated, found.unparsable) == (0.5, 0.5, 0.0, 0.0)
    assert found.right == 0.0  # 3 + 2 is not 2 + 3 ...
    assert found.as_good == 0.5  # ... but 5 all the same
    assert found.places_right == 1.0


@pytest.mark.parametrize(
    ("response", "share"),
    [("they say 5, no less", 0.5), ("5 %", 0.5), ("50", 0.0), ("5.5", 0.0), ("0,5", 0.0), ("2 and 3", 0.0)],
)
def test_a_response_that_tells_the_value_is_as_good(response: str, share: float) -> None:
    """In a, half of the samples are 3 + 2, and what follows in the text is 5."""
    found = figures_of(observed(Calculator(TOOL | {"3 + 2": response})), 0.5, STRUCTURE).imitation
    assert (found.right, found.as_good) == (0.0, share)


@pytest.mark.parametrize(
    ("raws", "stuck"),
    [
        (["Calister()", "Ca pup()", "Caigh()", "Calculator(1)"], "Ca"),  # 3 of 4; common with Calculator: 3, 2 and 2
        (["Calister()", "Ca pup()", "Calculator(1)", "Calculator(2)"], ""),  # only half of the samples
        (["Calculators(1)", "Calculator", "QA(a)", "(2)"], ""),  # the name is written whole, or not begun
    ],
)
def test_the_part_of_a_name_behind_which_a_model_goes_astray(raws: list[str], stuck: str) -> None:
    outcomes = {"Calculator(1)": "ok", "Calculator(2)": "ok"}
    samples = tuple(
        DrawnCall("a", "calculator", AT_A, -1.0, 0, raw, outcomes.get(raw, "wrong_tool"), "", 1) for raw in raws
    )
    found = figures_of(replace(observed(), samples=samples), 0.5, STRUCTURE)
    assert found.imitation.stuck_after == stuck
    assert ("another name" in judge(found).suggestion) == bool(stuck)


def test_what_the_tool_answers() -> None:
    found = figures().use
    assert found.gold_answered == 1.0
    assert found.drawn_answered == pytest.approx(2 / 3)  # of 3 + 2, 4 + 4 and 9 the single 9 is no expression
    assert found.failures == {"no_result": 1}


def test_what_the_filter_sees() -> None:
    # first weight 5/15: L(eps) = 4/3, L(e(c, eps)) = 4.5/3, L+ = 1/3 or 5/3; L- - L+ = 1 if right, -1/3 if wrong
    found = figures().filter
    gold, wrong, other = (found.kinds[kind] for kind in ("gold", "wrong", "unrelated"))
    assert (len(gold.gains), len(wrong.gains), len(other.gains)) == (2, 2, 2)
    assert gold.mean == pytest.approx(1.0)
    assert wrong.mean == pytest.approx(-1 / 3)
    assert other.mean == pytest.approx(-1 / 3)
    assert (gold.lowers, wrong.lowers) == (1.0, 0.0)
    assert gold.plain_decides == 1.0
    assert found.over_wrong == 1.0
    assert found.reached == 1.0
    assert found.best_f1 == 1.0
    assert found.best_tau_f == found.tau_f_keeping == pytest.approx(1.0)


def test_what_is_kept() -> None:
    # all gain 1: 3 + 2 in a, 4 + 4 in b, words before its place, and 4 + 4 in c, where nothing is right
    found = figures().kept
    assert (found.calls, found.recall) == (3, 0.5)
    assert (found.precision, found.precision_anywhere) == pytest.approx((1 / 3, 2 / 3))
    assert (figures(tau_f=2.0).kept.calls, figures(tau_f=2.0).kept.precision) == (0, None)


def test_an_unrelated_call_of_a_tool_without_input_stands_elsewhere() -> None:
    lm = ScriptedLM({("calendar", A): starts(A)}, {}, lambda _: [0.0] * 5)
    document = replace(a_document(A), doc_id="a")
    gold = GoldCall("a", "calendar", "", AT_A, "5")
    pairs = ChosenDocuments(((document, a_verdict(document)),), (gold,), 0)
    for seed in range(12):
        config = SampleConfig(tau_s=0.9, top_k=1, samples=1, seed=seed)
        calendar = FakeTool({"": "Monday"}, "Calendar")
        seen = observe(lm, calendar, a_prompt("calendar"), pairs, config, occupied={"a": [AT_A, 2, 6]})
        kinds = {trial.kind: trial.scored for trial in seen.trials}
        assert set(kinds) == {"gold", "unrelated"}  # there is no other document to take a wrong response from
        assert kinds["unrelated"].position in (8, 12, 14, 19)  # blanks less those taken, and less the last five
        assert kinds["unrelated"].response == "Monday"
    assert figures_of(seen, 0.5, STRUCTURE).filter.over_wrong is None


def test_a_whole_pipeline_can_be_taught() -> None:
    verdict = judge(figures(), {"position": 0.25})
    assert (verdict.teachable, verdict.step) == (True, "")
    assert verdict.description.startswith(
        "3 calls are kept at tau_f = 0.5; 67 % of them are right (33 % at the right word, too)"
    )
    assert [check.step for check in verdict.checks] == list(STEPS)
    assert {check.step: check.reference for check in verdict.checks}["position"] == 0.25


def changed(whole: Figures, **values: float) -> Figures:
    """Figures with other values, each named by its part and field with two underscores in between."""
    for name, value in values.items():
        part, _, attribute = name.partition("__")
        whole = replace(whole, **{part: replace(getattr(whole, part), **{attribute: value})})
    return whole


def copying(whole: Figures, share: float) -> Figures:
    """Figures with another share of gold calls that responses help."""
    gold = replace(whole.filter.kinds["gold"], lowers=share)
    return replace(whole, filter=replace(whole.filter, kinds={**whole.filter.kinds, "gold": gold}))


def broken(step: str) -> Figures:
    """Figures in which one step falls just short."""
    whole = figures()
    short = judge(whole).checks[STEPS.index(step)].least - 0.01
    if step == "copying":
        return copying(whole, short)
    values = {
        "tokenizer": {"structure__place_alone": short, "position__reached": 0.49},
        "language": {"structure__loss": (1 - short) * math.log(STRUCTURE.vocabulary)},
        "prompt": {"structure__demonstrations": 0, "imitation__places_right": 0.49},
        "position": {"position__reached": short},
        "imitation": {"imitation__places_right": short},
        "tool": {"use__gold_answered": short},
        "discrimination": {"filter__over_wrong": short},
        "threshold": {"filter__reached": short},
    }
    return changed(whole, **values[step])


@pytest.mark.parametrize("step", STEPS)
def test_the_step_that_falls_short_is_named(step: str) -> None:
    verdict = judge(broken(step))
    assert (verdict.teachable, verdict.step) == (False, step)
    assert verdict.description
    assert verdict.suggestion


def test_of_several_steps_the_first_is_named_that_is_no_consequence() -> None:
    late, whole = broken("threshold"), figures()  # position 0.5, imitation 1.0: well
    for seen, step in (
        (replace(late, position=broken("position").position), "position"),
        (replace(late, use=broken("tool").use), "tool"),
        (changed(whole, structure__demonstrations=0), ""),  # only looked at, and the rest does well
        (changed(whole, structure__place_alone=0.0), ""),
        (copying(broken("imitation"), 0.04), "copying"),  # nothing is copied at all
        (copying(broken("imitation"), 0.05), "imitation"),
    ):
        assert judge(seen).step == step


def test_a_tool_that_does_not_answer_at_all() -> None:
    seen = observed(Calculator(lambda input, context: ToolError("the index is broken")))
    assert seen.faults["tool"] == "the index is broken"
    verdict = judge(figures_of(seen, 0.5, STRUCTURE))
    assert (verdict.step, verdict.description) == ("tool", "the index is broken")


def test_only_a_prompt_that_does_not_fit_is_blamed_on_the_prompt() -> None:
    class Failing(ScriptedLM):
        def scan(self, prompt, texts):
            raise error

    error: Exception = ContextError("the prompt has 900 tokens")
    seen = observed(lm=Failing(log_probs=log_probs))
    verdict = judge(figures_of(seen, 0.5, STRUCTURE))
    assert (verdict.step, verdict.description) == ("prompt", "the prompt has 900 tokens")
    assert "longer context" in verdict.suggestion
    assert len(seen.trials) == 6  # the filter needs no prompt
    error = ModelError("no server answers")
    with pytest.raises(ModelError, match="no server answers"):
        observed(lm=Failing(log_probs=log_probs))


@given(st.floats(1e-6, 1.0))
def test_a_suggested_tau_s_lets_half_of_the_gold_positions_through(p: float) -> None:
    seen = observed()
    positions = tuple(replace(position, log_p=math.log(p)) for position in seen.gold_positions)
    config = replace(seen.config, tau_s=0.999999999)
    short = figures_of(replace(seen, gold_positions=positions, config=config), 0.5, STRUCTURE)
    suggestion = judge(changed(short, position__reached=0.0, position__above_tau_s=0.0)).suggestion
    said = float(suggestion.split("--tau-s ")[1].split()[0])
    assert 0.85 * p < said < p
    assert sum(math.exp(position.log_p) > said for position in positions) * 2 >= len(positions)
