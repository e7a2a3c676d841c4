"""Options made from a flow's parameters: none is declared beside them, and what a command line writes is read back."""

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer.main
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, Field
from rich.text import Text
from typer.testing import CliRunner

from cli.main import app
from cli.options import filled, option_name, option_of, parse_by_tool, with_options
from flows.build_dataset.parameters import BuildParameters, build_command
from flows.evaluate.parameters import EvaluateParameters
from flows.export.parameters import ExportParameters
from flows.finetune.parameters import FinetuneParameters, FitTriggerParameters
from flows.forms.calls import TauF, thresholds
from flows.forms.fields import DataFolder, Listed, Option, as_text
from flows.ground.parameters import GroundParameters
from flows.recipe.parameters import RecipeParameters
from toolformer_core.config import TOOL_NAMES
from toolformer_core.errors import UsageError

ROOT = Path(__file__).parents[2]
COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined] # a group
COMMANDS["ground"] = COMMANDS["ground"].commands["benchmarks"]
# Command -> the form that it fills in.
FORMS: dict[str, type[BaseModel]] = {
    **{"build": BuildParameters, "plan": BuildParameters, "export": ExportParameters, "run": RecipeParameters},
    **{"fit-trigger": FitTriggerParameters, "evaluate": EvaluateParameters, "finetune": FinetuneParameters},
    "ground": GroundParameters,
}


@pytest.mark.parametrize("command", FORMS)
def test_the_defaults_of_options_fill_in_the_forms_defaults(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOOLFORMER_DATA", raising=False)
    form = FORMS[command]
    needed = {name: "given" for name, field in form.model_fields.items() if field.is_required()}
    defaults = {one.name: one.default for one in COMMANDS[command].params if one.name in form.model_fields}
    assert filled(form, **defaults | needed) == form(**needed)


def test_no_help_holds_what_would_be_taken_for_markup() -> None:
    for command, group in COMMANDS.items():
        for one in getattr(group, "commands", {command: group}).values():
            shown = (one.help or "").replace("\\[", "[")
            assert Text.from_markup(one.help or "").plain == shown, command
            for option in one.params:
                assert Text.from_markup(option.help or "").plain == (option.help or ""), f"{command} {option.name}"


def test_the_command_line_starts_without_what_takes_long_to_import() -> None:
    heavy = {"numpy", "torch", "pyarrow", "prefect", "mlflow", "sqlalchemy", "duckdb", "transformers", "fastapi"}
    asked = f"import sys, cli.main; print(sorted({heavy} & set(sys.modules)))"
    said = subprocess.run([sys.executable, "-c", asked], cwd=ROOT, capture_output=True, text=True, check=True)
    assert said.stdout == "[]\n"


# A form of every kind of field.


def _even(value: int) -> int:
    if value % 2:
        raise ValueError("give an even number")
    return value


class Toy(BaseModel):
    """Nothing that is run."""

    place: str = Field(description="Where")
    data: DataFolder = Field("here", description="Data")
    count: Annotated[int | None, Option("Figures")] = Field(None, gt=0, lt=10, description="At most; see `share_of`")
    share_of: Annotated[float, Option("Figures", note=", of one")] = Field(0.5, ge=0, le=1, description="Share, `no`")
    below: float = Field(0.5, ge=0, lt=1, description="Below one")
    names: Annotated[list[str], Listed] = Field(["a", "b"], description="Names")
    tau_f: TauF = Field(default_factory=dict, description="Thresholds")
    quick: bool = Field(False, description="Quick")
    safe: bool = Field(True, description="Safe")
    kind: Literal["one", "two"] = Field("one", description="Kind")
    even: Annotated[int, AfterValidator(_even)] = Field(2, description="Even")


def run_toy(*words: str) -> tuple[int, Toy | None, bool, str]:
    """Run a command of the form `Toy`: its exit code, the filled form, its own option, what it printed."""
    got: list[tuple[Toy, bool]] = []
    toy = typer.Typer()

    @toy.command()
    @with_options(Toy)
    def command(form: Toy, loud: Annotated[bool, typer.Option("--loud", help="Its own")] = False) -> None:
        """Do nothing."""
        got.append((form, loud))

    result = CliRunner().invoke(toy, list(words), env={"TOOLFORMER_DATA": "/from/environment", "COLUMNS": "200"})
    if isinstance(result.exception, UsageError):
        return 2, None, False, str(result.exception)
    return result.exit_code, *(got[0] if got else (None, False)), result.output


def test_a_command_is_handed_the_filled_form_and_its_own_options() -> None:
    words = "--place x --count 3 --names c,,d --tau-f qa=1.5 --quick --no-safe --kind two --loud"
    values: dict[str, Any] = {"place": "x", "data": "/from/environment", "count": 3, "names": ["c", "d"]}
    toy = Toy(**values, tau_f={"qa": 1.5}, quick=True, safe=False, kind="two")
    assert run_toy(*words.split()) == (0, toy, True, "")
    assert run_toy("--place", "x", "--data", "/d")[1] == Toy(place="x", data="/d")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "Missing option '--place'"),
        (["--place", "x", "--count", "0"], "greater than or equal to 1"),
        (["--place", "x", "--count", "10"], "less than or equal to 9"),
        (["--place", "x", "--share-of", "1.5"], "less than or equal to 1"),
        (["--place", "x", "--below", "1"], "--below: Input should be less than 1 (got 1.0)"),
        (["--place", "x", "--tau-f", "qa"], "--tau-f: 'qa' is not tool=number; write e.g. calculator=0.5,qa=1.2"),
        (["--place", "x", "--kind", "three"], "'one', 'two'"),
        (["--place", "x", "--even", "3"], "--even: give an even number"),
        (["--place", "x", "--no-quick"], "No such option"),
    ],
)
def test_what_the_form_refuses_is_wrong_use(words: list[str], says: str) -> None:
    code, form, _, printed = run_toy(*words)
    assert (code, form) == (2, None)
    assert says in " ".join(printed.replace("│", " ").split())


def test_help_shows_fifteen_options_of_a_build_and_help_all_shows_every_one() -> None:
    assert len([option for option in COMMANDS["build"].params if not option.hidden]) == 15
    common, every = (CliRunner().invoke(app, ["build", option]).output for option in ("--help", "--help-all"))
    assert "--answers " not in common
    assert all(f"{option_name(name)} " in every for name in BuildParameters.model_fields)


def test_help_names_fields_as_options_and_adds_what_is_true_of_the_option() -> None:
    printed = " ".join(run_toy("--help")[3].replace("│", " ").split())
    assert "Data (default: $TOOLFORMER_DATA, else ./toolformer-data)" in printed
    assert "At most; see --share-of" in printed
    assert "Share, `no`, of one" in printed  # no field of this form
    assert "Names; separated by commas [default: a,b]" in printed
    assert "Thresholds, e.g. calculator=0.5,qa=1.2" in printed
    assert "[1<=x<=9]" in printed
    assert option_of(Toy, "share_of").max == 1
    assert option_of(Toy, "below").min is None  # [x>=0] would be half the truth: 1 is excluded, which cannot be said
    assert "─ Figures ─" in printed
    assert option_of(Toy, "count").rich_help_panel is None  # for a command with headings of its own


# Texts of options, and back.

_numbers = st.floats(allow_nan=False, allow_infinity=False)
_thresholds = st.dictionaries(st.sampled_from(list(TOOL_NAMES)), _numbers)


@given(_thresholds)
def test_thresholds_are_read_back_as_they_were_written(given_: dict[str, float]) -> None:
    assert thresholds(as_text(given_)) == given_


def test_thresholds_are_written_short() -> None:
    assert as_text({"qa": 1.0, "mt": 0.5, "calculator": 1 / 3}) == "qa=1,mt=0.5,calculator=0.3333333333333333"
    assert as_text(["a", "b"]) == "a,b"
    assert as_text([0, 10]) == "0,10"


_SOME = st.integers(1, 100)
_BUILDS = st.builds(
    BuildParameters,
    corpus=st.just("/c4.jsonl"),
    data=st.just("/data"),
    tools=st.lists(st.sampled_from(list(TOOL_NAMES)), min_size=1, unique=True),
    tau_s=st.none() | st.floats(0, 1, exclude_max=True),
    tau_f=_thresholds,
    temperature=st.floats(0, exclude_min=True, allow_infinity=False),
    decontaminate=st.lists(st.sampled_from(["/SVAMP.json", "nq=/my dev.jsonl", "small-world"]), max_size=2),
    columns=st.dictionaries(st.sampled_from(["text", "url", "date"]), st.sampled_from(["my text", "--text"])),
    shard_documents=_SOME | st.just("auto"),
    seed=st.integers(0, 2**31),
    **dict.fromkeys(("limit", "top_k", "max_same_call", "gpus"), st.none() | _SOME),
    **dict.fromkeys(("max_examples", "mt_chunk_words", "ngram", "max_chars", "workers"), _SOME),
    **dict.fromkeys(("stop_when_full", "deduplicate", "mask_pii"), st.booleans()),
    draw_form=st.sampled_from(["free", "forced"]),
    keep_repeats=st.sampled_from([None, True, False]),
    decontaminate_drops=st.sampled_from(["documents", "calls"]),
    prompts=st.sampled_from([None, "/my prompts"]),
    licence=st.sampled_from(["", "CC BY 4.0"]),
    ratings=st.sampled_from(["all", "not-rejected", "accepted"]),
    answers=st.sampled_from(["new", "stored", "retry"]),
)


@given(_BUILDS)
def test_the_command_that_a_build_prints_asks_for_the_same_build(parameters: BuildParameters) -> None:
    _, name, *words = shlex.split(build_command(parameters))
    command = COMMANDS[name]
    asked = command.make_context(name, words).params
    assert filled(BuildParameters, **{field: asked[field] for field in BuildParameters.model_fields}) == parameters


def test_a_value_of_every_tool_or_by_tool() -> None:
    assert parse_by_tool("", "--top-k", 1) is None
    assert parse_by_tool("3", "--top-k", 1) == 3
    assert parse_by_tool("qa=3, MT=1", "--top-k", 1) == {"qa": 3, "mt": 1}
    assert parse_by_tool("0.25", "--tau-s", 0, 1) == 0.25
    for text, low, high in (("0", 1, float("inf")), ("1.5", 1, float("inf")), ("qa=2", 0, 1), ("-1", 0, 1)):
        with pytest.raises(UsageError, match=r"--x takes (whole )?numbers from"):
            parse_by_tool(text, "--x", low, high)
    with pytest.raises(UsageError, match="--x: 'qa=' is not tool=number"):
        parse_by_tool("qa=", "--x", 1)
