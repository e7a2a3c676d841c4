"""Figures of groundings against hand-made ones."""

from __future__ import annotations

import math

from toolformer_core.evaluate.grounding_figures import (
    NO_TOOL,
    accuracy_by_paper,
    confusion,
    grounding_accuracy,
    is_right_choice,
    rejection,
)


def test_right_choices() -> None:
    assert is_right_choice("qa", ("qa", "wikisearch"))
    assert not is_right_choice(None, ("qa",))
    assert is_right_choice(None, ())  # no tool is right, and none was chosen
    assert not is_right_choice("qa", ())
    found = grounding_accuracy(["qa", "mt", None, "qa"], [("qa", "wikisearch"), ("qa",), (), ("mt", "qa")])
    assert (found.right, found.items, found.value) == (3, 4, 0.75)
    assert 0 < found.low < 0.75 < found.high <= 1


def test_confusion_counts_choices_by_label() -> None:
    assert confusion(["qa", None, "mt", "qa"], ["nq", "nq", "mlqa", "nq"]) == {
        "nq": {NO_TOOL: 1, "qa": 2},
        "mlqa": {"mt": 1},
    }


def test_rejection_by_hand() -> None:
    choices, right = ["a", "a", None, None], [("a",), (), ("a",), ()]
    found = rejection(choices, right, 0.3)
    # rejected: 3 and 4, of which 4 rightly: precision 1/2; unfit: 2 and 4, of which 4 was rejected: recall 1/2
    assert (found.precision, found.recall, found.accuracy.value) == (0.5, 0.5, 0.5)
    none = rejection(["a"], [("a",)], 0.05)
    assert math.isnan(none.precision)
    assert math.isnan(none.recall)


def test_by_the_papers_rule_one_tool_is_right_for_questions() -> None:
    either, library = [("qa", "wikisearch")] * 3, ("calculator", "qa", "wikisearch", "mt")
    chosen = ["qa", "wikisearch", "calculator"]
    assert grounding_accuracy(chosen, either).right == 2
    ours, without = accuracy_by_paper("nq", chosen, either, library), accuracy_by_paper("nq", chosen, either, ["qa"])
    assert ((ours.items, ours.right), without.items) == ((3, 1), 0)
    assert accuracy_by_paper("mlqa-de", ["mt"], [("mt",)], library).items == 0
    mlqa = accuracy_by_paper("mlqa-de", ["mt", "multilingual_qa"], [("mt",)] * 2, (*library, "multilingual_qa"))
    assert (mlqa.items, mlqa.right) == (2, 1)
    # elsewhere the rule is ours: also where the library lacks the right tool, and where none is right
    other = accuracy_by_paper("queries", ["qa", None], [("units",), ()], library)
    assert (other.items, other.right) == (2, 1)
