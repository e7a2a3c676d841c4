"""The case study on ten documents and the embedded model: its recipe as it ships but for sizes, and its page."""

import json
import re
import sys
from pathlib import Path

import pytest

from flows.recipe.flow import run_recipe
from flows.recipe.parameters import SHIPPED, RecipeParameters
from recipes import case_study, gsm8k
from tests.support.small_builds import write_jsonl

pytestmark = pytest.mark.slow


def problems(number: int) -> list[dict[str, str]]:
    """Return problems of one sum, with the sum marked in the solution."""
    rows = []
    for n in range(number):
        a, b = 300 + 37 * n, 120 + 11 * n
        question = f"A library has {a} books, and {b} of them are lent out. How many are on the shelf?"
        answer = (
            f"Of the {a} books, {b} are lent out and only <<{a}-{b}={a - b}>>{a - b} are on the shelf.\n#### {a - b}"
        )
        rows.append({"question": question, "answer": answer})
    return rows


def test_the_study_runs(
    prefect_server: None, tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    study = Path("case-study")
    (study / "texts" / "math").mkdir(parents=True)
    train = write_jsonl(study / "texts" / "math" / "gsm8k.train.jsonl", problems(10))
    monkeypatch.setattr(sys, "argv", ["gsm8k.py", str(train), "--out", str(study / "gsm8k")])
    gsm8k.main()
    svamp = [{"ID": "1", "Body": "A box holds 7 pens.", "Question": "How many are in 3 boxes?", "Answer": 21}]
    (study / "texts" / "math" / "SVAMP.json").write_text(json.dumps(svamp))
    (study / "data").mkdir()
    (study / "data" / "mlflow.db").write_bytes(empty_database.read_bytes())

    text = (SHIPPED / "smollm2-quick.yaml").read_text(encoding="utf-8")
    for pattern, small in (
        (r"case-study/smollm2", "embedded"),
        (r"limit: [24]00", "limit: 10"),
        (r"limit: 300", "limit: 1"),
    ):
        text, found = re.subn(pattern, small, text)
        assert found
    text = re.sub(r"(steps|evaluate_every): [24]0", r"\1: 2", text)
    text = text.replace("batch: 8", "batch: 2").replace("sequence_length: 384", "sequence_length: 128")
    recipe = study / "quick.yaml"
    recipe.write_text(text, encoding="utf-8")
    result = run_recipe(RecipeParameters(recipe=str(recipe), data=str(study / "data")))
    assert set(result.results) >= {"build.marks", "build", "finetune.toolformer", "finetune.cc", "evaluate.svamp"}

    page = case_study.page(recipe, study / "data", study / "gsm8k")
    assert page.count("\n## ") == 6
    marks = result.results["build.marks"]
    assert marks.examples > 0
    # ten gold calls, all in texts that were read; what the model drew itself gives its number, by the option `new`
    table = page.partition("## Calls against GSM8K's own")[2].partition("## Kept")[0]
    assert all(line.rstrip(" |").endswith("10") for line in table.splitlines() if re.match(r"\| 0", line))
    assert re.search(r"^- \+\d\.\d\d ….* `\[Calculator\(", page, re.MULTILINE)
