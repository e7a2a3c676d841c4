"""A build with a tool of the user's own: what it resolves to, and all of it, from the corpus to other thresholds."""

import json
import shlex
import sys
from collections import OrderedDict
from pathlib import Path

import pytest

from flows.build_dataset.parameters import BuildParameters, build_command
from flows.build_dataset.resolve import resolve
from tasks.specs.build_spec import tool_of
from tests.support import mcp_by_hand
from tests.support.commands import Run
from tests.support.small_builds import write_jsonl
from toolformer_core.config import SampleConfig
from toolformer_core.errors import PromptError, ToolError, UnknownNameError, UsageError
from toolformer_core.tools.custom import python_tool as custom
from toolformer_core.tools.custom.scaffold import new_python_tool
from warehouse.queries import rows_of

BY_HAND = shlex.join([sys.executable, "-I", "-S", str(mcp_by_hand.__file__)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the tool `miles`, and texts of which all but one name a distance."""
    for name, text in new_python_tool("miles").items():
        (tmp_path / name).write_text(text, "utf-8")
    roads = [
        f"The road from the mill to the town is {n} miles long, that is {n * 1.609344:.1f} km, and was built in stages."
        for n in (34, 118, 261)
    ]
    write_jsonl(tmp_path / "roads.jsonl", [*roads, "Nothing here is far away."])
    return tmp_path


def parameters(folder: Path, **changes: object) -> BuildParameters:
    given = {"corpus": str(folder / "roads.jsonl"), "data": str(folder / "data"), "tool": [f"{folder}/miles.py:miles"]}
    return BuildParameters.model_validate({**given, **changes})


def test_a_tool_of_ones_own_stands_alone_unless_others_are_named(folder: Path) -> None:
    assert parameters(folder).tools == []
    assert parameters(folder, tools=["calculator"]).tools == ["calculator"]
    assert parameters(folder, tool=[]).tools == ["calculator", "calendar", "wikisearch", "qa", "mt"]
    command = build_command(parameters(folder, tools=["qa"], tool=["Km=/a b/m.py:f", "x.yaml"]))
    assert command.endswith("--tools qa --tool 'Km=/a b/m.py:f' --tool x.yaml")
    assert "--tools" not in build_command(parameters(folder))


def test_what_a_tool_declares_is_what_the_build_uses(folder: Path) -> None:
    spec = resolve(parameters(folder, tools=["calculator"]))
    assert spec.tool_names == {"calculator": "Calculator", "miles": "Miles"}
    assert spec.sample["miles"] == SampleConfig(tau_s=0.0, top_k=10, samples=10)
    assert spec.assemble.tau_f == {"miles": 0.5}
    assert spec.filters["miles"].keywords == ("mile", "miles")
    assert "calculator" not in spec.filters
    assert "[Miles(26.2 miles)]" in spec.prompts["miles"].head
    assert tool_of(spec, "miles").fingerprint == spec.tool_digests["miles"]
    # what the user says comes before what the tool declares
    spec = resolve(parameters(folder, top_k=3, tau_f={"miles": 0.1}))
    assert (spec.sample["miles"].top_k, spec.sample["miles"].samples, spec.assemble.tau_f) == (3, 10, {"miles": 0.1})


def test_a_folder_of_prompts_comes_before_the_tools_own(folder: Path) -> None:
    prompts = folder / "prompts"
    prompts.mkdir()
    assert "Add calls to a converter" in resolve(parameters(folder, prompts=str(prompts))).prompts["miles"].head
    (prompts / "miles.txt").write_text("[Miles(1)] {text}", "utf-8")
    assert resolve(parameters(folder, prompts=str(prompts))).prompts["miles"].head == "[Miles(1)] "


def test_mistakes_are_found_before_anything_runs(folder: Path) -> None:
    with pytest.raises(UsageError, match="a tool cannot be named 'all', which stands for every tool"):
        resolve(parameters(folder, tool=[f"All={folder}/miles.py:miles"]))
    with pytest.raises(UnknownNameError, match="Did you mean 'miles'"):
        resolve(parameters(folder, tau_f={"mile": 0.1}))
    (folder / "miles.txt").unlink()
    with pytest.raises(PromptError, match="the tool Miles has no annotation prompt"):
        resolve(parameters(folder))


def test_a_worker_refuses_a_tool_that_changed_meanwhile(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = resolve(parameters(folder))
    code = folder / "miles.py"
    code.write_text(code.read_text("utf-8").replace("1.609344", "1.6"), "utf-8")
    monkeypatch.setattr("tasks.specs.build_spec._tools", OrderedDict())  # a worker is another process
    with pytest.raises(ToolError, match="miles is not the one that this run was started with"):
        tool_of(spec, "miles")


def test_tools_are_built_once(prefect_server: None, folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    load = custom.load_tool
    monkeypatch.setattr(custom, "load_tool", lambda reference: built.append(reference.target) or load(reference))
    starts = folder / "starts"
    start = f"echo started >> {shlex.quote(str(starts))}; exec {BY_HAND}"
    echo = f"mcp+stdio:{shlex.join(['sh', '-c', start])}#echo"
    miles = f"{folder}/miles.py:miles"
    calls = [{"tool": tool, "input": text, "position": 4} for tool, text in (("miles", "34 miles"), ("echo", "a road"))]
    row = {"url": "http://roads", "text": "The road from the mill to the town is 34 miles long."}
    corpus = write_jsonl(folder / "corpus.jsonl", [row])
    candidates = write_jsonl(folder / "calls.jsonl", [{"url": row["url"], "calls": calls}])
    words = ["--corpus", str(corpus), "--candidates", str(candidates), "--prompts", str(folder), "--tool", miles]
    (folder / "echo.txt").write_text("[Echo(1)] {text}", "utf-8")
    said = run("build", *words, "--tool", echo, "--data", str(folder / "data"), "--json")
    assert said.code == 0, said.err
    answered = rows_of(json.loads(said.out)["snapshot"], "SELECT response FROM executed ORDER BY tool")
    assert [row["response"] for row in answered] == ["a road", "54.7 km"]
    assert len(built) == 2
    assert starts.read_text("utf-8") == "started\n"
