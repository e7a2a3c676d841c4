"""GEAR's tables from a result made by hand: our figures, the paper's beside them, and gaps where there are none."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from flows.ground.metrics import GroundResult, LibrarySize, MethodCost, TaskFigures
from flows.ground.tables import confusion_table, cost_table, grounding_tables, size_table
from flows.ground.tracking import draw_pictures
from toolformer_core.evaluate.statistics import Accuracy

NAN = float("nan")


def share(right: int, items: int = 4) -> Accuracy:
    return Accuracy(items, right, right / items if items else NAN, 0.1, 0.9)


BY_PAPER = {"gear": share(2), "cosine": share(0)}


def figures(task: str, gear: int, **more: object) -> TaskFigures:
    chosen = {"gear": share(gear), "cosine": share(1)}
    cost = {"ground": MethodCost(4, 24, 0, 400, 10, 2.0), "answer gear": MethodCost(4, 0, 4, 40, 4, 0.4)}
    plain = TaskFigures(task, task.upper(), "file", f"{task}-g", 4, {}, chosen, chosen, {"gear": share(2)}, cost)
    return replace(plain, **more)  # type: ignore[arg-type]


def result(*tasks: TaskFigures, **more: object) -> GroundResult:
    plain = GroundResult(
        run_id="r",
        tools=("calculator", "qa", "distractor_tide_table", "distractor_bus_fare"),
        gamma=0.75,
        smoothing=1.0,
        threshold=None,
        patterns="authors",
        tasks=tasks,
        mean={"gear": 0.625, "cosine": 0.25},
        mean_answered={"gear": 0.5},
        confusion={"gear": {"svamp": {"calculator": 2, "distractor_bus_fare": 1, "distractor_tide_table": 1}}},
        sizes=(),
        rejection=None,
        tracking="t",
        done=1,
        seconds=1.0,
    )
    return replace(plain, **more)  # type: ignore[arg-type]


def test_our_figures_stand_beside_the_papers_where_it_has_any() -> None:
    # MLQA's tool is not in the library, so that by the paper's rule there is nothing to measure
    mlqa = figures("mlqa-es", 2, by_paper={"gear": share(0, 0), "cosine": share(0, 0)})
    grounding, gpt_j, gpt_3 = grounding_tables(result(figures("svamp", 3, by_paper=BY_PAPER), mlqa))
    assert grounding.columns == ("benchmark", "gear", "paper", "gear, lenient", "cosine", "paper", "cosine, lenient")
    assert grounding.rows == (
        ("svamp", 50.0, 89.0, 75.0, 0.0, 75.7, 25.0),  # ART_cs shown SVAMP's own demonstrations
        ("mlqa-es", None, None, 50.0, None, None, 25.0),
        ("mean", 50.0, None, 62.5, 0.0, None, 25.0),
    )
    assert "gear, 95 %: svamp 10.0 to 90.0, mlqa-es -" in grounding.notes
    for table in (grounding, gpt_j, gpt_3):
        assert table.notes[0] == "gear: gamma 0.75, lambda 1, of 4 tools, patterns authors"
    # of the other five rows of the paper's table: 87.2, 81.9, 22.5, 22.4, 28.3
    assert any("svamp 22.4 to 87.2" in note for note in grounding.notes)
    trivia = grounding_tables(result(figures("triviaqa", 3)))[0]
    assert any("triviaqa 0 to 97.4" in note for note in trivia.notes)  # without its own 98.1
    assert gpt_j.rows[0] == ("svamp", 50.0, 18.6)
    assert gpt_3.rows[1] == ("mlqa-es", 50.0, 58.3)


def test_answers_that_nobody_asked_for_have_no_table() -> None:
    (table,) = grounding_tables(result(figures("svamp", 3, answered={}), mean_answered={}))
    assert table.name == "GEAR Table 4"


def test_the_confusion_matrix_counts_all_distractors_together() -> None:
    assert confusion_table(result(figures("svamp", 2))).rows == (("calculator", 2), ("distractors", 2))


def test_costs_are_per_query_over_all_benchmarks() -> None:
    table = cost_table(result(figures("svamp", 3), figures("nq", 2)))
    # 48 small calls, 800 tokens, 20 calls of tools and 4 s for 8 queries
    assert table.rows[0] == ("ground", 6.0, 0.0, 100.0, 2.5, 500.0)
    assert table.rows[1] == ("answer gear", 0.0, 1.0, 10.0, 1.0, 100.0)


def test_sizes_of_the_library() -> None:
    sizes = (LibrarySize(4, 8, {"gear": share(3), "cosine": share(0, 0)}),)
    assert size_table(result(sizes=sizes)).rows == ((4, 8, 75.0, None),)


def test_pictures_show_each_method_and_the_sizes_of_the_library() -> None:
    sizes = (LibrarySize(4, 8, {"gear": share(3)}), LibrarySize(10, 8, {"gear": share(2)}))
    drawn: dict[str, Any] = {}
    run = SimpleNamespace(figure=lambda figure, path: drawn.update({path.removeprefix("figures/"): figure}))
    draw_pictures(run, result(figures("svamp", 3), sizes=sizes))
    assert set(drawn) == {"confusion_gear.png", "grounding_gear.png", "accuracy_by_size.png"}
    (line,) = drawn["accuracy_by_size.png"].axes[0].lines
    assert line.get_xydata().tolist() == [[4, 0.75], [10, 0.5]]
    columns = drawn["confusion_gear.png"].axes[0].get_xticklabels()  # in the order of the library
    assert [one.get_text() for one in columns] == ["calculator", "distractor_tide_table", "distractor_bus_fare"]
