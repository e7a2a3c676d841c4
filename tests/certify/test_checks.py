"""What a loader gives is compared row by row and token by token; a difference is named and fails the command."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from certify.__main__ import TableRow, table_of
from certify.cases import _OWN_TEMPLATES, DATASET_INFO, LOADERS
from certify.checks import Finding, check
from certify.environments import pinned
from certify.promise import Promise, Stretch
from tests.support.examples_of_c_star import BOOKS
from toolformer_core.export.pieces import segment_row

ROOT = Path(__file__).parents[2]
# Tokens are letters here: the token 1 is "a".
LETTERS = {1: b"a", 2: b"b", 3: b"c", 0: b"<pad>"}
# "ab" is masked, "c" is trained.
PROMISES = [Promise((Stretch("ab", False), Stretch("c", True)))] * 2
GOOD = {"input_ids": [1, 2, 3, 0], "attention_mask": [1, 1, 1, 0], "labels": [-100, -100, 3, -100]}


def finding(*rows: dict[str, Any], error: str = "") -> Finding:
    return check(PROMISES, {"rows": list(rows), "error": error}, lambda ids: [LETTERS[i] for i in ids], frozenset())


def test_rows_as_promised_are_counted() -> None:
    # two rows, each with one token trained and two masked; padding counts as neither
    assert finding(GOOD, GOOD) == Finding(2, 2, trained=2, masked=4)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"labels": [-100, 2, 3, -100]}, "row 1, token 1 ('b'): its label is 2, it should be masked"),
        ({"labels": [-100, -100, -100, -100]}, "row 1, token 2 ('c'): its label is -100, it should be trained"),
        ({"labels": [-100, -100, 1, -100]}, "row 1, token 2 ('c'): its label is 1, it should be trained"),
        ({"labels": [-100, -100, 3, 0]}, "row 1: padding is trained"),
        ({"attention_mask": [1, 1, 0, 0], "labels": [-100] * 4}, "row 1: 'c' should stand where there is ''"),
        ({"input_ids": [1, 3, 3, 0]}, "row 1: 'ab' should stand where there is 'acc'"),
    ],
)
def test_the_first_difference_is_told(changed: dict[str, Any], says: str) -> None:
    assert finding(GOOD, {**GOOD, **changed}).failure == says


def test_a_missing_row_and_an_error_are_failures() -> None:
    assert finding(GOOD).failure == "2 rows in, 1 read"
    assert finding(error="ValueError: no").failure == "ValueError: no"


def test_rows_are_compared_as_they_stand_and_give_the_text_back() -> None:
    row = json.loads(json.dumps(segment_row(BOOKS)))
    wanted = [row]

    def failure(*rows: Any, texts: frozenset[str] = frozenset({BOOKS.text})) -> str:
        return check(wanted, {"rows": list(rows), "error": ""}, lambda ids: [], texts).failure

    assert failure(row) == ""
    assert failure() == "1 rows in, 0 read"
    assert failure({"segments": []}).startswith("row 0: segments is '[]', should be")
    assert failure(row, texts=frozenset({"another"})) == "row 0: the text that is restored is none of the dataset's"


def test_the_turns_of_llamafactory() -> None:
    called = {"name": "QA", "arguments": {"input": "é?"}}
    said = [("human", "So"), ("function_call", json.dumps(called)), ("observation", "yes"), ("gpt", "it is.")]
    row = {"conversations": [{"from": who, "value": value} for who, value in said]}
    trained = {own: turns.promise(row).stretches for own, turns in _OWN_TEMPLATES.values()}
    assert [stretch.trained for stretch in trained["qwen"]] == [False, True, False, True]
    assert trained["qwen"][1].text == (
        '<tool_call>\n{"name": "QA", "arguments": {"input": "é?"}}\n</tool_call><|im_end|>\n'
    )
    assert trained["llama3"][1].text == '{"name": "QA", "parameters": {"input": "é?"}}<|eot_id|>'
    assert trained["mistral"][1].text == '[TOOL_CALLS] [{"name": "QA", "arguments": {"input": "é?"}}]</s>'
    assert trained["mistral"][3].text == " it is.</s>"


def test_users_of_llamafactory_are_told_what_is_certified() -> None:
    page = (ROOT / "docs" / "using.md").read_text(encoding="utf-8")
    block = next(part for part in page.split("```json\n")[1:] if '"formatting"' in part).partition("```")[0]
    assert json.loads(block) == {"cstar": DATASET_INFO}


@pytest.mark.parametrize("loader", LOADERS)
def test_every_package_of_an_environment_is_pinned(loader: str) -> None:
    assert pinned(loader, loader)
    lines = (ROOT / "certify" / "requirements" / f"{loader}.txt").read_text(encoding="utf-8").splitlines()
    assert all(name and version and ";" not in version for name, _, version in (line.partition("==") for line in lines))
    assert not [line for line in lines if "nvidia" in line or "cuda" in line or "triton" in line]


def test_the_table_has_every_number_and_reason() -> None:
    rows = [TableRow("TRL", "1.0", "tokens", "", 32, 32, 1_234, 99), TableRow("x", "2.0", result="no [such] version")]
    out = io.StringIO()
    Console(file=out, width=160).print(table_of(rows))
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.getvalue().splitlines() if "│" in line]
    assert lines[0] == ["TRL", "1.0", "tokens", "", "32", "32", "1,234", "99", "ok"]
    assert lines[1] == ["x", "2.0", "", "", "", "", "", "", "no [such] version"]
