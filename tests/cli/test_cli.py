"""The command line: through `main`, in this process, as a user meets it: output, one line of error, exit code."""

import json
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

from cli import main as cli
from cli.commands.recipe import verdict
from flows.evaluate.metrics import ArmFigures
from tests.support.commands import Run, Said
from tests.support.small_builds import Built
from toolformer_core.config import TOOL_NAMES
from toolformer_core.tools.library import LIBRARY
from warehouse.queries import rows_of


def commands() -> list[list[str]]:
    """Every command there is, by its path."""
    paths: list[list[str]] = []

    def visit(command: object, path: list[str]) -> None:
        inner = getattr(command, "commands", None)
        if inner is None:
            paths.append(path)
        else:
            for name, sub in inner.items():
                visit(sub, [*path, name])

    visit(typer.main.get_command(cli.app), [])
    return paths


@pytest.mark.parametrize("path", commands(), ids=" ".join)
def test_every_help_holds_an_example_of_the_command_itself(path: list[str]) -> None:
    said = CliRunner().invoke(cli.app, [*path, "--help"])
    assert said.exit_code == 0
    assert "Example: toolformer " + " ".join(path) in said.output


# Tools.


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["calculator", "27 + 4 * 2"], "35"),
        (["calculator", "-3 + 4"], "1"),  # a minus in front is no option
        (["Calculator", "400 / 1400"], "0.29"),
        (["calendar", "--context", "2023-01-30"], "Today is Monday, January 30, 2023."),
    ],
)
def test_a_tool_answers(run: Run, arguments: list[str], answer: str) -> None:
    assert run("tools", "test", *arguments) == Said(0, answer + "\n", "")


def test_a_tool_that_gives_nothing_says_why(run: Run) -> None:
    said = run("tools", "test", "calculator", "1 / 0")
    assert (said.code, said.out) == (1, "")
    assert said.err == "Calculator(1 / 0) gave nothing: division_by_zero\n"


def test_tools_are_listed(run: Run) -> None:
    listed = json.loads(run("tools", "list", "--json").out)
    origins = [(key, "built in") for key in TOOL_NAMES] + [(key, "library") for key in LIBRARY]
    assert [(t["key"], t["origin"]) for t in listed] == origins
    assert {t["key"]: t["name"] for t in listed}.items() >= {**TOOL_NAMES, "time_zone": "TimeZone"}.items()
    assert all(t["description"] for t in listed)
    table = run("tools", "list").out
    assert all(t["description"].split()[0] in table for t in listed)


@pytest.mark.parametrize(
    "arguments",
    [
        *(["stats"], ["explain", "3f"], ["what-if"], ["export", "out"], ["datasets"], ["reconcile"], ["tables"]),
        *(["finetune"], ["finetune", "--dry-run"]),
    ],
)
def test_a_folder_in_which_nothing_was_built(run: Run, tmp_path: Path, arguments: list[str]) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        said = run(*arguments, "--data", folder)
        assert (said.code, said.out) == (2, "")
        assert said.err == (f"error: nothing was built in {folder} yet; run toolformer build, or name another --data\n")
    assert list(tmp_path.iterdir()) == []


# On a small build.


def test_stats(run: Run, built: Built) -> None:
    _, data, _ = built
    said = run("stats", "--data", data, "--json")
    found = json.loads(said.out)
    assert (said.code, said.err, found["conserved"]) == (0, "", True)
    assert {(y["tool"], y["tau_f"]) for y in found["yield"]} == {
        (tool, tau) for tool in ("calculator", "calendar") for tau in (0.5, 1.0, 2.0)
    }
    table = run("stats", "--data", data).out
    assert "broken_json 1, duplicate 1, no_text 1" in " ".join(table.replace("│", " ").split())
    assert "tau_f 2.0" in table


def test_explain_says_why_every_call_was_kept_or_not(run: Run, built: Built) -> None:
    result, data, _ = built
    seen: dict[str, int] = {}
    for row in rows_of(result.snapshot, "SELECT doc_id FROM documents"):
        found = json.loads(run("explain", row["doc_id"][:12], "--data", data, "--json").out)
        held = {(c["tool"], c["position"]) for example in found["examples"] for c in example["calls"]}
        assert {(c["tool"], c["position"]) for c in found["calls"] if c["outcome"] == "kept"} == held
        for call in found["calls"]:
            seen[call["outcome"]] = seen.get(call["outcome"], 0) + 1
            below = call["gain"] < found["thresholds"][call["tool"]]
            assert below == (call["outcome"] == "below_threshold")
        for place in found["positions"]:
            assert 0 < place["p"] <= 1
            assert place["samples"] == 2  # as the build asked for
        assert [d["name"] for d in found["datasets"]].count("cstar") >= bool(held)
    # as many of each as the stage itself counted
    sql = "SELECT reason, rows FROM drops WHERE stage = 'assemble' AND unit = 'calls' AND rows > 0"
    dropped = {row["reason"]: row["rows"] for row in rows_of(result.snapshot, sql)}
    (kept,) = rows_of(result.snapshot, "SELECT count(*) AS kept FROM kept_calls")
    assert seen == dropped | kept


def test_datasets(run: Run, built: Built) -> None:
    result, data, _ = built
    cards = json.loads(run("datasets", "--data", data, "--json").out)
    (card,) = (c for c in cards if (c["version"], c["made"]) == (result.version, result.made))
    assert (card["name"], card["model"]) == ("cstar", "embedded")
    assert card["thresholds"] == {"calculator": 0.5, "calendar": 0.2}  # the paper's, and the one asked for
    assert card["counts"] == result.counts
    assert "cstar@" in run("datasets", "--data", data).out
    assert card["gone"] == []
    shown = run("datasets", f"cstar@{result.version}", "--data", data).out
    written = (data / "datasets" / "cstar" / f"{result.version}.md").read_text(encoding="utf-8")
    assert sorted(shown.splitlines()) == sorted(written.splitlines())  # the way that is meant stands first
    assert f"| calendar | 0.2 | {result.counts['calendar']:,} |" in shown
    assert "| few.jsonl | 16 |" in shown
    assert "Did you mean 'cstar'" in run("datasets", "cstra", "--data", data).err


def test_plan(run: Run, built: Built, few_documents: Path) -> None:
    _, data, _ = built
    options = ["--corpus", few_documents, "--tools", "calculator,calendar", "--top-k", "3", "--samples", "2"]
    asked = ["plan", "--data", data, "--shard-documents", "6", *options]
    # the calculator's threshold is the paper's 0.5, which the build did not name; the calendar's was given as 0.2
    shown = run(*asked, "--tau-f", "calendar=0.2,calculator=0.5")
    assert (shown.code, shown.err) == (0, "")
    assert "Nothing is left to do" in shown.out
    found = json.loads(run(*asked, "--tau-f", "calculator=1.2", "--json").out)
    (own,) = (own for own in found["stages"] if own["to_do"])
    # calendar goes back to the paper's 1.0
    assert own["because"] == {"tau_f.calculator: 0.5 -> 1.2": 3, "tau_f.calendar: 0.2 -> 1.0": 3}
    assert run(*asked, "--runner", "ray").code == 2


def test_what_if(run: Run, built: Built) -> None:
    result, data, _ = built
    found = json.loads(run("what-if", "--tau", "calendar=0.5", "--data", data, "--json").out)
    by_tool = {change["after"]["tool"]: change for change in found["changes"]}
    assert {tool: change["before"]["examples"] for tool, change in by_tool.items()} == result.counts
    sql = "SELECT tool, examples, calls FROM yield_by_threshold WHERE tau_f = 0.5 AND tool = 'calculator'"
    (row,) = rows_of(result.snapshot, sql)
    assert {name: by_tool["calculator"]["before"][name] for name in row} == row
    assert all(0.2 <= one["gain"] < 0.5 for one in found["goes"])
    shown = run("what-if", "--tau", "calendar=0.5", "--top-k", "9", "--data", data)
    assert shown.code == 0
    assert "0.2 -> 0.5" in shown.out
    assert "calendar was sampled with k = 3" in shown.out
    for options, says in (
        (["--tau", "calender=1"], "Did you mean 'calendar'?"),
        (["--tau", "calendar"], "--tau: 'calendar' is not tool=number"),
        (["--top-k", "9"], "cannot be known from the stored scores; toolformer build --top-k 9 finds out"),
        (["--tau", "qa=1"], "unknown tool 'qa'"),
    ):
        said = run("what-if", *options, "--data", data)
        assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
        assert says in said.err


def test_export_goes_on_after_one_that_was_killed(run: Run, built: Built, tmp_path: Path) -> None:
    _, data, _ = built
    (tmp_path / "out.partial").write_text("cut o", encoding="utf-8")
    assert run("export", "--data", data, "--format", "hf", tmp_path / "out").code == 0
    (tmp_path / "text.partial").mkdir()
    assert run("export", "--data", data, "--format", "text", tmp_path / "text").code == 0
    names = [f"{out}{part}" for out in ("out", "text") for part in ("", ".card.md", ".manifest.json")]
    assert sorted(p.name for p in tmp_path.iterdir()) == names


def test_an_export_that_cannot_be_made_leaves_nothing(run: Run, built: Built, tmp_path: Path) -> None:
    _, data, _ = built
    (tmp_path / "file").write_text("", encoding="utf-8")
    for dataset, out, says in (
        ("cstra", "out", "unknown dataset 'cstra'. Did you mean 'cstar'? Valid: cstar."),
        ("cstar@zzz", "out", "dataset 'cstar' has no version 'zzz'; it has: "),
        ("cstar", "file/out.jsonl", f"error: {tmp_path}/file/out.jsonl cannot be written: "),
    ):
        said = run("export", "--data", data, "--dataset", dataset, tmp_path / out)
        assert (said.code, said.out) == (2, "")
        assert says in said.err
        assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_bad_passage_at_once(run: Run, few_documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.runtime.server.start_server", lambda: pytest.fail("a server was started"))
    passages = tmp_path / "passages.jsonl"
    passages.write_text('{"title": "a", "text": "b"}\n' * 20 + '{"title": "c"}\n', encoding="utf-8")
    data = tmp_path / "data"
    common = ["--data", data, "--passages", passages]
    for words in (["build", "--corpus", few_documents], ["evaluate", "--task", "small-world", "--arms", "base+tools"]):
        said = run(*words, *common)
        assert (said.code, said.out) == (2, "")
        assert said.err.startswith(f"error: {passages}: line 21 is not a passage")
        assert said.err.count("\n") == 1
    assert not data.exists()


@pytest.mark.parametrize(
    ("source", "code", "says"),
    [
        ("raise SystemExit(0)", 2, "error: {file} cannot be imported: SystemExit: 0\n"),
        ("import os; os._exit(3)", 2, "error: {file} cannot be imported: SystemExit: it called os._exit(3)\n"),
        (
            "import os\ndef ends(text): os._exit(3)",
            1,
            "Ends(x) gave nothing: crashed SystemExit: it called os._exit(3)\n",
        ),
    ],
)
def test_a_file_or_call_that_ends_the_program(run: Run, tmp_path: Path, source: str, code: int, says: str) -> None:
    file = tmp_path / "ends.py"
    file.write_text(f"{source}\n", encoding="utf-8")
    assert run("tools", "test", f"{file}:ends", "x") == Said(code, "", says.format(file=file))


def test_tools_new_overwrites_nothing(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "miles.txt").symlink_to(tmp_path / "elsewhere.txt")  # leads to nothing
    assert run("tools", "new", "miles") == Said(
        2, "", "error: miles.txt exist already; choose another name or folder\n"
    )
    assert not (tmp_path / "elsewhere.txt").exists()
    assert not (tmp_path / "miles.py").exists()


ITEMS = [
    {"item_id": "a", "prompt": "Adding the 12 nuts to the 30 already here gives us", "answers": ["42"]},
    {"item_id": "b", "prompt": "Twice 8 is", "answers": ["16", "sixteen"], "tool": "calculator", "group": "product"},
    {"item_id": "c", "prompt": " ", "answers": ["nothing was asked"]},
]


def test_evaluate_and_tables_as_json_and_in_print(prefect_server: None, run: Run, tmp_path: Path) -> None:
    items = tmp_path / "items.jsonl"
    items.write_text("".join(json.dumps(row) + "\n" for row in ITEMS), encoding="utf-8")
    asked = ["--path", items, "--data", tmp_path / "d", *"--tools calculator --k 1,0 --max-new-tokens 5".split()]
    asked = ["evaluate", "--task", "small-world", *asked]
    code, out, _ = run(*asked, "--json")
    told = json.loads(out)
    assert [(a["arm"], a["k"], a["items"]) for a in told["arms"]] == [("base", 0, 2), ("base+tools", 1, 2)]
    assert (code, told["rejected"], "NaN" in out) == (0, {"no_prompt": 1}, False)
    code, out, _ = run(*asked)
    assert code == 0
    for line in ("percent right of 2 items", "base+tools, k=1", "0 shards worked on, 3 found done", "no_prompt 1"):
        assert line in out
    code, out, _ = run("tables", "--data", tmp_path / "d", "--json")
    assert (code, [t["name"] for t in json.loads(out)][5:8]) == (0, ["Table 7", "§4.2", "Table 8"])
    code, out, _ = run("tables", "--data", tmp_path / "d")
    assert (code, "- / 29.4" in out) == (0, True)
    assert "toolformer evaluate --task svamp --path PATH --model embedded" in out
    code, _, err = run("tables", "--data", tmp_path / "d", "--model", "another")
    assert (code, "nothing has been evaluated for the base model 'another'" in err) == (1, True)


def arm(name: str, k: int, right: int) -> ArmFigures:
    return ArmFigures("e", name, k, "m", 1, 150, right, right / 150, 0.0, 1.0, 0.0, 0.0, 0.0)


def test_the_verdict_sets_the_finetuned_model_with_tools_against_itself_without() -> None:
    arms = [arm("base", 0, 7), arm("toolformer", 10, 93), arm("toolformer", 1, 80), arm("toolformer-disabled", 0, 0)]
    assert verdict(arms) == "With tools 93 of 150 right, without 0."


@pytest.mark.slow  # two trainings, and evaluations of two models
def test_a_limit_leaves_no_step_out(run: Run, prefect_server: None, tmp_path: Path) -> None:
    ended = run("demo", "--data", tmp_path, "--limit", "10", "--json")
    assert ended.code == 0, ended.err
    result = json.loads(ended.out)
    with_tools = [(row["arm"], row["k"]) for row in result["table"] if row["k"]]
    assert with_tools == [(arm, k) for arm in ("base+tools", "toolformer") for k in (1, 10)]
    assert [training["steps"] for training in result["trainings"]] == [10, 10]
