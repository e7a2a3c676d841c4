"""Tools of a user's own: references, decorated functions, and what tools declare."""

import os
import pickle
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolformer_core import tool
from toolformer_core.annotate.prefilter import prefilter
from toolformer_core.annotate.tool_prompt import prompt_for
from toolformer_core.config import PrefilterConfig
from toolformer_core.errors import PromptError, UnknownNameError, UsageError
from toolformer_core.records import Call, Document, ToolFailure, ToolResponse, ToolResult
from toolformer_core.syntax import find_calls, linearize
from toolformer_core.tools.base import limits_of
from toolformer_core.tools.build import ToolSettings, build_tools
from toolformer_core.tools.custom.python_tool import entry_point_names
from toolformer_core.tools.custom.reference import ToolReference, camel_case, key_of, parse_reference
from toolformer_core.tools.custom.scaffold import new_mcp_tool, new_python_tool
from toolformer_core.tools.declaration import DocumentFilter, ToolDeclaration, declaration_of
from toolformer_core.tools.responses import run_guarded

SOURCE = """
from toolformer_core import tool

@tool(keywords=["dozen"], tau_s=0.0, top_k=7, tau_f=0.25)
def dozens(text):
    "Counts dozens."
    return str(12 * int(text))

def shout(text, context):
    return f"{text.upper()} {context}"

class Backwards:
    key, name, description, fingerprint = "backwards", "Backwards", "Turns a text round.", "1"
    def load(self): pass
    def run(self, input, context=""):
        from toolformer_core import ToolResponse
        return ToolResponse(input[::-1])

backwards = Backwards()
"""
PROMPT = "Add calls [Dozens(n)].\nInput: 2 dozen, 24\nOutput: 2 dozen, [Dozens(2)] 24\nInput: {text}\nOutput:\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SOURCE, "utf-8")
    (tmp_path / "dozens.txt").write_text(PROMPT, "utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("calculator", ToolReference("name", "calculator")),
        ("my_tools.py:convert", ToolReference("file", "my_tools.py", "convert")),
        ("Km=a/b c.py:miles", ToolReference("file", "a/b c.py", "miles", "Km")),
        ("package.module:tool", ToolReference("module", "package.module", "tool")),
        ("mcp+stdio:run --a=b,c#get", ToolReference("mcp", "mcp+stdio:run --a=b,c#get")),
        ("Clock=mcp+https://h/p?x=1#t", ToolReference("mcp", "mcp+https://h/p?x=1#t", name="Clock")),
    ],
)
def test_every_form_of_a_reference(text: str, parsed: ToolReference) -> None:
    assert parse_reference(text) == parsed
    assert parse_reference(str(parsed)) == parsed


@pytest.mark.parametrize("text", ["", "miles.py", "a b", "x.py:", ":f", "Km="])
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_reference(text)


def test_names_in_calls_and_keys() -> None:
    written = {"get_current_time": "GetCurrentTime", "get-time.v2": "GetTimeV2", "getTime": "GetTime", "3d": "Tool3d"}
    assert {name: camel_case(name) for name in written} == written  # a call's name begins with a letter
    assert (key_of("GetCurrentTime"), key_of("HTTPTool")) == ("get_current_time", "http_tool")


@given(st.from_regex(r"[a-z]{2,}(_[a-z]{2,})*", fullmatch=True))  # a_b would be AB
def test_a_functions_name_comes_back_from_its_name_in_calls(name: str) -> None:
    assert key_of(camel_case(name)) == name


def test_a_decorated_function_in_a_file(folder: Path) -> None:
    dozens = build_tools([f"{folder}/shop.py:dozens"])["dozens"]
    assert (dozens.name, dozens.description) == ("Dozens", "Counts dozens.")
    assert dozens.run("2") == ToolResponse("24")
    failure = dozens.run("two")  # int("two") raises ValueError: the input is to blame
    assert isinstance(failure, ToolFailure)
    assert (failure.reason, failure.retryable) == ("invalid_input", False)
    declared = declaration_of(dozens)
    assert declared.sampling() == {"tau_s": 0.0, "top_k": 7}
    assert declared.tau_f == 0.25
    assert declared.origin == f"{folder}/shop.py:dozens"
    assert prompt_for(dozens).head.startswith("Add calls [Dozens(n)].")


def test_a_plain_function_is_told_the_context_and_an_object_names_itself(folder: Path) -> None:
    tools = build_tools([f"{folder}/shop.py:shout", f"Flip={folder}/shop.py:dozens", f"{folder}/shop.py:backwards"])
    assert list(tools) == ["shout", "flip", "backwards"]
    assert tools["shout"].run("hey", "2020-01-01") == ToolResponse("HEY 2020-01-01")
    assert tools["flip"].name == "Flip"
    assert tools["backwards"].run("abc") == ToolResponse("cba")


def test_another_process_makes_the_same_tool_again(folder: Path) -> None:
    dozens = build_tools([f"Twelve={folder}/shop.py:dozens"])["twelve"]
    again = pickle.loads(pickle.dumps(dozens))  # what a worker receives
    assert (again.name, again.fingerprint, again.run("3")) == ("Twelve", dozens.fingerprint, ToolResponse("36"))
    settings = ToolSettings(references=(("twelve", f"Twelve={folder}/shop.py:dozens"),))
    assert build_tools(["twelve"], settings)["twelve"].fingerprint == dozens.fingerprint


def test_the_fingerprint_is_that_of_the_code_and_the_version(folder: Path) -> None:
    before = build_tools([f"{folder}/shop.py:dozens"])["dozens"].fingerprint
    (folder / "shop.py").write_text(SOURCE.replace("12 *", "13 *"), "utf-8")
    after = build_tools([f"{folder}/shop.py:dozens"])["dozens"]
    assert after.fingerprint != before
    assert after.run("2") == ToolResponse("26")  # the edited file is imported anew

    def one(text: str) -> str:
        return text

    assert tool(version="1")(one).fingerprint != tool(version="2")(one).fingerprint


def test_what_a_function_raises_becomes_a_failure() -> None:
    def failing(error: BaseException) -> ToolResult:
        def f(text: str) -> str:
            raise error

        return tool(f).run("x")

    assert failing(ZeroDivisionError("x")) == ToolFailure("invalid_input", "ZeroDivisionError: x")
    assert failing(KeyError("x")) == ToolFailure("invalid_input", "KeyError: 'x'")
    assert failing(ConnectionRefusedError()) == ToolFailure("unreachable", "ConnectionRefusedError: ", retryable=True)
    with pytest.raises(RuntimeError):  # left to `run_guarded`, which says `crashed`
        failing(RuntimeError("bug"))
    assert tool(lambda text: None).run("x") == ToolFailure("no_result")
    number = tool(lambda text: 7)  # type: ignore[arg-type,return-value]
    assert number.run("x") == ToolFailure("crashed", "<lambda> returned int, not a text")
    assert limits_of(number).at_once == 32


def test_an_entry_point_of_an_installed_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = folder / "corner_shop-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: corner-shop\nVersion: 1.0\n", "utf-8")
    points = "[toolformer.tools]\neggs = corner_shop:dozens\nunits = corner_shop:shout\n"
    (info / "entry_points.txt").write_text(points, "utf-8")
    (folder / "corner_shop.py").write_text(SOURCE, "utf-8")
    monkeypatch.syspath_prepend(folder)
    assert entry_point_names() == ["eggs", "units"]
    eggs = build_tools(["eggs"])["dozens"]  # the function's own name in calls
    assert (eggs.name, eggs.run("4")) == ("Dozens", ToolResponse("48"))
    assert build_tools(["Eggs=eggs"])["eggs"].name == "Eggs"
    assert declaration_of(build_tools(["units"])["shout"]).origin == "units"  # it comes before the library's
    assert build_tools(["Box=corner_shop:dozens"])["box"].run("5") == ToolResponse("60")
    with pytest.raises(UnknownNameError, match="Did you mean 'eggs'"):
        build_tools(["egs"])
    (info / "entry_points.txt").write_text("[toolformer.tools]\neggs = corner_shop:gone\n", "utf-8")
    with pytest.raises(UsageError, match=r"the entry point eggs = corner_shop:gone cannot be loaded"):
        build_tools(["eggs"])


@pytest.mark.parametrize(
    ("names", "wrong"),
    [
        (["{}/shop.py:dozen"], "Did you mean 'dozens'"),
        (["{}/absent.py:f"], "cannot read the tool file"),
        (["no.such.module:f"], r"the module no\.such\.module cannot be imported"),
        (["{}/shop.py:dozens", "Dozens={}/shop.py:shout"], r"both give a tool Dozens.*Other"),
        (["calculater"], "Did you mean 'calculator'"),
        (["Other={}/shop.py:backwards"], "names itself"),
        (["WikiSEARCH={}/shop.py:shout"], "like one of the paper's tools; choose its name: NAME=/"),
    ],
)
def test_mistakes_are_named(folder: Path, names: list[str], wrong: str) -> None:
    with pytest.raises(UsageError, match=wrong):
        build_tools([name.format(folder) for name in names])


def test_a_prompt_must_be_there_and_show_a_call(folder: Path) -> None:
    shout = build_tools([f"{folder}/shop.py:shout"])["shout"]
    with pytest.raises(PromptError, match=r"the tool Shout has no annotation prompt; write one to .*shout\.txt"):
        prompt_for(shout)
    (folder / "shout.txt").write_text("Shout.\nInput: {text}\nOutput:\n", "utf-8")
    with pytest.raises(PromptError, match=r"shows no call.*\[Shout\(\.\.\.\)\]"):
        prompt_for(build_tools([f"{folder}/shop.py:shout"])["shout"])
    (folder / "shout.txt").write_text(new_mcp_tool("shout", "mcp+stdio:x#y", "Shouts", "text")["shout.txt"], "utf-8")
    with pytest.raises(PromptError, match="is still the draft"):
        prompt_for(build_tools([f"{folder}/shop.py:shout"])["shout"])
    (folder / "shout.txt").write_text("Louder: [Shout(x)] {text}", "utf-8")
    assert prompt_for(shout, folder).head == "Louder: [Shout(x)] "


@pytest.mark.parametrize(
    ("conditions", "text", "expected"),
    [
        (DocumentFilter(), "anything", (True, "no_heuristic")),
        (DocumentFilter(keywords=("nautical mile",)), "One Nautical\nMile north", (True, "keyword")),
        (DocumentFilter(keywords=("mile",)), "smiles and miles", (False, "no_match")),  # whole words
        (DocumentFilter(patterns=(r"\d+ mi\b",)), "it is 5 mi", (True, "pattern")),
        (DocumentFilter(min_chars=9), "12345678", (False, "too_short")),
        (DocumentFilter(language="de"), "das Wetter ist schön", (True, "declared")),
        (DocumentFilter(language="fr"), "das Wetter ist schön", (False, "other_language")),
        (DocumentFilter(keywords=("mile",), language="fr"), "a mile", (False, "other_language")),
    ],
)
def test_declared_conditions(conditions: DocumentFilter, text: str, expected: tuple[bool, str]) -> None:
    document = Document("d", text, None, None, "f", 1)
    (result,) = prefilter("dozens", [document], PrefilterConfig(), lambda _: ("de", 0.9), conditions)
    assert (result.kept, result.reason) == expected


def test_conditions_that_mean_nothing_are_refused() -> None:
    for wrong in ({"patterns": ("(",)}, {"keywords": (" ",)}, {"min_chars": 5, "max_chars": 4}):
        with pytest.raises(UsageError):
            DocumentFilter(**wrong)  # type: ignore[arg-type]


def test_a_decorator_between_hides_no_edit(tmp_path: Path) -> None:
    source = (
        "from functools import lru_cache\nfrom toolformer_core import tool\n@tool\n@lru_cache\ndef f(text): return {}"
    )
    prints = set()
    for answer in ("'1'", "'2'"):
        (tmp_path / "t.py").write_text(source.format(answer), "utf-8")
        made = build_tools([f"{tmp_path}/t.py:f"])["f"]
        assert declaration_of(made).prompt_source == str(tmp_path / "f.txt")
        prints.add(made.fingerprint)
    assert len(prints) == 2


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        ("keywords='mile'", "keywords: Input should be a valid tuple"),  # else the letters m, i, l, e
        ("language='English'", "no ISO 639 code"),
        ("version=2", "version: Input should be a valid string"),
        ("tau_f='high'", "tau_f: Input should be a valid number"),  # else the build fails at its last stage
        ("samples=2.5", "samples: Input should be a valid integer"),
        (r"prompt='Add calls.\n[F(1)]\n'", r"the prompt has no \{text\}"),
        ("examples=['ab']", "examples.0: Input should be a valid tuple"),  # else the question a, the input b
        ("sort=42", "sort: Extra inputs"),
    ],
)
def test_settings_of_another_type_are_named(tmp_path: Path, settings: str, wrong: str) -> None:
    (tmp_path / "t.py").write_text(
        f"from toolformer_core import tool\n@tool({settings})\ndef f(text): return text", "utf-8"
    )
    with pytest.raises(UsageError, match=wrong):
        build_tools([f"{tmp_path}/t.py:f"])


def test_a_name_must_be_one_that_calls_and_files_can_bear(folder: Path) -> None:
    (folder / "names.py").write_text(
        "from toolformer_core import tool\n@tool(name='\u91cc\u7a0b')\ndef far(text): return text\n"
        "@tool(name='Cafe\u0301')\ndef marked(text): return text\n"  # which the parser of calls does not read
        "class Other:\n    key, name, description, fingerprint = '../x', 'Other', '', '1'\n"
        "    def load(self): pass\n    def run(self, input, context=''): pass\nother = Other()\n",
        "utf-8",
    )
    for reference in ("names.py:far", "names.py:marked", "names.py:other", "__=shop.py:shout"):
        name, equals, file = reference.rpartition("=")
        with pytest.raises(UsageError, match="cannot be called"):
            build_tools([f"{name}{equals}{folder}/{file}"])


class _Unspeakable(BaseException):
    def __str__(self) -> str:
        raise RuntimeError("no message")


def test_an_exception_of_any_class_is_a_crash_and_not_silence() -> None:
    """Else its thread ends without a word, and the question waits for its time limit, twice."""

    @tool
    def f(text: str) -> str:
        raise _Unspeakable

    assert run_guarded(f, "", "") == ToolFailure("crashed", "_Unspeakable: (its message cannot be read)")


def test_a_process_that_a_tool_forks_may_still_be_ended() -> None:
    @tool
    def forking(text: str) -> str:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # from 3.12: this process has threads
            child = os.fork()
        if child == 0:  # pragma: no cover
            os._exit(7)
        return str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    assert run_guarded(forking, "", "") == ToolResponse("7")


@pytest.mark.parametrize("name", ["foo_2", "my__tool"])
def test_what_tools_new_writes_passes_its_own_tests_under_any_name(tmp_path: Path, name: str) -> None:
    for file, text in new_python_tool(name).items():
        (tmp_path / file).write_text(text, "utf-8")
    path = tmp_path / f"test_{name}.py"
    scope: dict[str, object] = {"__file__": str(path), "__name__": path.stem}
    exec(compile(path.read_text("utf-8"), str(path), "exec"), scope)  # as pytest imports it
    assert scope["TOOL"].run("5 miles") == ToolResponse("8.0 km")  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["class", "re", "json", "calculator", "_miles", "\u00fcber", "Miles", "2x", "a-b", ""])
def test_names_with_which_no_new_tool_would_work_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=r"choose another name|cannot name a function"):
        new_python_tool(name)


@pytest.mark.parametrize("line", ["raise SystemExit(0)", "1 / 0", "def f(:"])
def test_what_an_import_raises_is_a_usage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    module = f"imported_badly_{len(line)}"  # each has a length of its own
    (tmp_path / f"{module}.py").write_text(line, "utf-8")
    for reference in (f"{tmp_path}/{module}.py:f", f"{module}:f"):
        with pytest.raises(UsageError, match=r"cannot be imported: (SystemExit|ZeroDivisionError|SyntaxError)"):
            build_tools([reference])


def test_the_examples_of_the_papers_tools_are_answered() -> None:
    """Those of QA and WikiSearch ask for facts that the embedded passages do not hold."""
    tools = build_tools(["calculator", "calendar", "mt"])
    answers = {
        key: [tool.run(input_, "2025-06-12") for _, input_ in declaration_of(tool).examples]
        for key, tool in tools.items()
    }
    # 48 + 27 = 75; 350 - 112 = 238; 14 * 36 = 504; 81 / 5 = 16.2
    assert answers["calculator"] == [ToolResponse(text) for text in ("75", "238", "504", "16.20")]
    assert answers["calendar"] == [ToolResponse("Today is Thursday, June 12, 2025.")] * 4
    translated = [ToolResponse(text) for text in ("the old house", "the black cat", "the white horse", "welcome")]
    assert answers["mt"] == translated
    for key, results in answers.items():
        assert ToolResponse(declaration_of(tools[key]).mock_response) in results


@pytest.mark.parametrize(
    ("question", "input_", "wrong"),
    [
        ("", "x", "the question of an example, '', is empty"),
        ("How\nfar?", "x", "has several lines"),
        ("How far?", "5\nmiles", "the input of the example 'How far\\?' has several lines"),
        ("How far?", " 5 miles", "without spaces at its ends"),
        ("How far?", '"5 miles"', "without quotes around all of it"),
        ("How far?", "\ud800", "is not UTF-8 text"),
        ("How far?", "5 " * 5_000 + "miles", "would not be read from a call"),  # longer than a call may be
    ],
)
def test_examples_that_cannot_be_used_are_refused(question: str, input_: str, wrong: str) -> None:
    with pytest.raises(UsageError, match=wrong):
        ToolDeclaration(examples=(("How high?", "3 feet"), (question, input_)))


@given(st.text("ab ()[]\"'->→\n", max_size=12))
def test_an_input_is_accepted_exactly_if_it_is_read_back_from_the_call(input_: str) -> None:
    found = list(find_calls(linearize(Call("Miles", input_), "8 km"), ["Miles"]))
    carried = [call.call.input for call in found] == [input_] and found[0].response == "8 km"
    try:
        ToolDeclaration(examples=(("How far?", input_),))
    except UsageError:
        assert not carried or "\n" in input_
    else:
        assert carried
