"""What is deployed, without a server: forms, `prefect.yaml`, the docs' profiles; and what a form's texts name."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest
import yaml
from prefect.cli.deploy._models import PrefectYamlModel
from prefect.utilities.schema_tools import ValidationError as FormError
from prefect.utilities.schema_tools import validate

from flows.build_dataset.parameters import BuildParameters, build_command
from flows.evaluate.parameters import EvaluateParameters
from flows.finetune.profiles import PROFILES, Profile, load_profile
from flows.forms.chosen_tools import chosen_tools
from flows.forms.chosen_trigger import chosen_trigger
from flows.ground.parameters import GroundParameters
from ops.deployments import DEPLOYMENTS, Deployment, as_yaml, form_schema
from tasks.launch.base import LaunchRequest
from tasks.training.trigger import TRIGGER_FILE, FittedTrigger, read_trigger, write_trigger
from tests.support.finished_job import a_finished_job
from toolformer_core.config import TOOL_NAMES
from toolformer_core.decode.trigger import FitConfig, fit_tool
from toolformer_core.errors import UnknownNameError, UsageError
from toolformer_core.lm.load import model_digest

EXAMPLES = re.findall(r"```json\n(.*?)```", (Path(__file__).parents[2] / "docs/finetuning.md").read_text(), re.DOTALL)


def fields_of(deployment: Deployment) -> dict[str, Any]:
    [definition] = form_schema(deployment)["definitions"].values()
    return dict(definition)


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda one: one.name or str(one.flow().name))
def test_every_field_says_what_it_is_and_what_is_filled_in_is_allowed(deployment: Deployment) -> None:
    fields = fields_of(deployment)
    for name, field in fields["properties"].items():
        assert field.get("description"), name
        assert not re.search("<[A-Za-z/!]", field["description"]), name  # the page takes it for a tag
        if "default" in field:
            jsonschema.validate(field["default"], field)
    assert "data" in fields["required"]


def test_on_the_command_line_paths_may_be_relative() -> None:
    asked = BuildParameters(corpus="c4.jsonl", data="here", passages="mine.jsonl")
    assert (asked.corpus, asked.data, asked.passages) == ("c4.jsonl", "here", "mine.jsonl")
    assert BuildParameters(corpus="c4.jsonl").data == "toolformer-data"


def test_the_repositorys_prefect_yaml_says_the_same() -> None:
    written = (Path(__file__).parents[2] / "prefect.yaml").read_text(encoding="utf-8")
    assert written == as_yaml(), "run: python -m ops.deployments --yaml > prefect.yaml"
    told = PrefectYamlModel.model_validate(yaml.safe_load(written))
    assert [one.entrypoint for one in told.deployments] == [one.entrypoint for one in DEPLOYMENTS if not one.fields]


def test_forms_ask_for_absolute_paths_and_keep_what_may_be_left_out() -> None:
    fields = fields_of(DEPLOYMENTS[0])
    passages = fields["properties"]["passages"]
    assert fields["required"] == ["corpus", "data"]
    assert passages["anyOf"] == [{"type": "string", "pattern": "^/"}, {"type": "null"}]
    assert passages["description"].endswith("(absolute, as the worker sees it)")


def test_a_first_builds_form_has_its_fields_alone_and_they_are_those_of_the_whole_form() -> None:
    whole, short = (fields_of(one) for one in DEPLOYMENTS if "build_dataset" in one.entrypoint)
    assert list(short["properties"]) == ["corpus", "data", "model", "tools", "tau_f", "limit", "dataset"]
    assert short["properties"].items() <= whole["properties"].items()
    assert not short["additionalProperties"]


def test_every_tool_has_a_field_for_its_threshold() -> None:
    field = fields_of(DEPLOYMENTS[0])["properties"]["tau_f"]
    assert "required" not in field
    kinds = {"anyOf": [{"type": "number"}, {"type": "string", "pattern": r"^fdr=0?\.[0-9]+$"}, {"type": "null"}]}
    paper = {"calculator": 0.5, "calendar": 1.0, "wikisearch": 1.0, "qa": 1.0, "mt": 0.5}
    about = {tool: f"nats; paper: {tau_f}" for tool, tau_f in paper.items()}
    about["all"] = "fdr=0.05: of every tool that is not named"
    assert field["properties"] == {name: {**kinds, "title": name, "description": told} for name, told in about.items()}
    assert field["additionalProperties"] == kinds


@pytest.mark.parametrize(
    ("given", "means"),
    [
        ({"calculator": 0.5}, {"calculator": 0.5}),
        ({"qa": -1, "mt": 2.5}, {"qa": -1.0, "mt": 2.5}),
        ({"qa": "fdr=0.05", "mt": 2.5}, {"qa": "fdr=0.05", "mt": 2.5}),
        ({"calculator": None, "qa": 1.2}, {"qa": 1.2}),  # the API lets null stand in what is optional
        ({}, {}),
        (None, {}),
    ],
)
def test_thresholds_are_one_object_however_they_are_given(given: Any, means: dict[str, Any]) -> None:
    told = {"corpus": "/c4.jsonl", "data": "/data", "tau_f": given}
    validate({"parameters": told}, form_schema(DEPLOYMENTS[0]), raise_on_error=True)  # as the server does
    asked = BuildParameters.model_validate(told)
    assert asked.model_dump(mode="json")["tau_f"] == asked.tau_f == means
    listed = ",".join(f"{tool}={value if isinstance(value, str) else f'{value:g}'}" for tool, value in means.items())
    option = f" --tau-f {listed}" if means else ""
    assert build_command(asked) == f"toolformer build --corpus /c4.jsonl --data /data{option}"


@pytest.mark.parametrize("given", [{"qa": "5 %"}, {"qa": "fdr=5"}, 0.5])
def test_what_is_no_threshold_is_refused_in_the_form(given: Any) -> None:
    told = {"corpus": "/c4.jsonl", "data": "/data", "tau_f": given}
    with pytest.raises(FormError, match=r"does not match|is not valid"):
        validate({"parameters": told}, form_schema(DEPLOYMENTS[0]), raise_on_error=True)


@pytest.mark.parametrize("text", EXAMPLES, ids=[json.loads(text).get("launcher", "local") for text in EXAMPLES])
def test_the_documents_profiles_can_be_launched(text: str, tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    file.write_text(text, encoding="utf-8")
    profile = load_profile(str(file))
    request = LaunchRequest("job", Path(profile.jobs or tmp_path) / "job", profile.processes)
    assert "toolformer_core.finetune" in profile.build_launcher().preview(request)


@pytest.mark.parametrize(
    ("model", "multiplies", "large", "trains"),
    [
        ("embedded", True, 1, "bf16"),
        ("embedded", True, 1 << 40, "cpu"),
        ("embedded", False, 1, "cpu"),
        ("nobody/has-this", True, 1, "cpu"),  # a model that is not here is not downloaded to choose
        ("remote+http://127.0.0.1:9/v1#m", True, 1, "cpu"),
    ],
)
def test_auto_trains_a_large_model_in_bfloat16(
    monkeypatch: pytest.MonkeyPatch, model: str, multiplies: bool, large: int, trains: str
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: {"avx512_bf16": multiplies})
    monkeypatch.setattr("toolformer_core.lm.load._LARGE", large)
    assert load_profile("auto", model) == PROFILES[trains]


def test_the_document_has_an_example_for_every_launcher() -> None:
    told = [json.loads(text).get("launcher", "local") for text in EXAMPLES]
    assert told == list(get_args(Profile.model_fields["launcher"].annotation))


@pytest.mark.parametrize(
    ("reference", "allowed"),
    [
        ("/tools/miles.py:miles", True),
        ("Km=/tools/miles.py:miles", True),
        ("package.module:tool", True),
        ("entry_point", True),
        ("mcp+stdio:server --option a@b#tool", True),
        ("Clock=mcp+https://host/mcp?region=eu#tool", True),
        ("miles.py:miles", False),  # a worker runs in a folder of its own
        ("tool.yaml", False),
        ("mcp+https://user:pw@host/mcp#tool", False),  # the API would store it
        ("mcp+https://host/mcp?api_key=K#tool", False),
        ("mcp+https://host/mcp?Sig=K#tool", False),
        ("mcp+https://host/mcp?design=K#tool", True),
    ],
)
def test_what_a_form_takes_for_a_users_tool(reference: str, allowed: bool) -> None:
    for kind in (BuildParameters, EvaluateParameters, GroundParameters):
        field = kind.model_json_schema()["properties"]["tool"]
        assert jsonschema.Draft202012Validator(field).is_valid([reference]) is allowed


def test_a_command_with_all_five_tools_and_another_names_them() -> None:
    told = {"corpus": "/c", "data": "/d", "tools": list(TOOL_NAMES), "tool": ["/t.py:f"]}
    assert build_command(BuildParameters.model_validate(told)) == (
        "toolformer build --corpus /c --data /d --tool /t.py:f --tools calculator,calendar,wikisearch,qa,mt"
    )
    alone = BuildParameters.model_validate({**told, "tools": None})  # the five are left out
    assert build_command(alone) == "toolformer build --corpus /c --data /d --tool /t.py:f"


TWO = FitConfig(min_calls=2, few_calls=2)
FITS = (
    fit_tool("calculator", [0.5, 0.7], [0.1, 0.3], TWO),  # .4, halfway between .3 and .5
    fit_tool("own", [0.5, 0.9], [0.1], TWO),  # .3
    fit_tool("qa", [0.5], [0.1], TWO),  # too few calls
)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A finished training with fitted thresholds."""
    folder = a_finished_job(tmp_path / "cstar-toolformer-0a1b2c3d4e5f6789")
    digest = model_digest(str(folder / "model"))
    fitted = FittedTrigger(digest, "cstar@v1", 4, 10, {"calculator": 3, "own": 2, "qa": 1}, FitConfig(), FITS)
    write_trigger(folder / TRIGGER_FILE, fitted)
    return folder


def test_a_record_is_read_as_it_was_written_and_is_no_part_of_the_model(job: Path) -> None:
    fitted = read_trigger(job / TRIGGER_FILE)
    assert fitted.fits == FITS
    assert (fitted.documents, fitted.top_k, fitted.config, fitted.calls["qa"]) == (4, 10, FitConfig(), 1)
    assert fitted.thresholds == {"calculator": pytest.approx(0.4), "own": pytest.approx(0.3)}
    digest = model_digest(str(job / "model"))
    (job / TRIGGER_FILE).unlink()
    assert model_digest(str(job / "model")) == digest


@pytest.mark.parametrize(
    ("text", "model", "keys", "found"),
    [
        ("fitted", "JOB", ["calculator", "own"], {"calculator": 0.4, "own": 0.3}),
        ("fitted", "JOB/model", ["calculator", "own"], {"calculator": 0.4, "own": 0.3}),
        ("fitted", "JOB", ["qa"], {"calculator": 0.4}),  # `own` is absent
        ("fitted", "JOB/model", ["qa"], {"calculator": 0.4}),
        (f"JOB/{TRIGGER_FILE}", "embedded", ["own"], {"calculator": 0.4, "own": 0.3}),  # of another model
        ("", "embedded", [], {}),
        ("calculator=0.2, own=1", "embedded", ["own"], {"calculator": 0.2, "own": 1.0}),
    ],
)
def test_thresholds_are_those_of_the_model_of_a_file_or_numbers(
    job: Path, text: str, model: str, keys: list[str], found: dict[str, float]
) -> None:
    assert chosen_trigger(text.replace("JOB", str(job)), model.replace("JOB", str(job)), keys) == pytest.approx(found)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("calculator=1.5", "calculator=1.5 is no probability"),
        ("calculator=x", "is not tool=number"),
        ("fitted", "no thresholds were fitted for embedded: run toolformer fit-trigger"),
        ("none.json", "none.json cannot be read"),
        ("ftted", "ftted cannot be read"),
    ],
)
def test_mistakes(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        chosen_trigger(text, "embedded", [])
    with pytest.raises(UnknownNameError, match="Did you mean 'calculator'"):
        chosen_trigger("calculater=0.5", "embedded", [])


def test_another_file_is_no_record(job: Path, tmp_path: Path) -> None:
    more = json.dumps({**json.loads((job / TRIGGER_FILE).read_text()), "more": 1})
    for text in ("[]", "{}", "{", json.dumps({"fits": []}), more):
        (tmp_path / "other.json").write_text(text)
        with pytest.raises(UsageError, match=r"holds no thresholds"):
            read_trigger(tmp_path / "other.json")


def test_a_fit_of_other_weights_or_without_thresholds_is_refused_where_it_is_asked_for(job: Path) -> None:
    fitted = read_trigger(job / TRIGGER_FILE)
    write_trigger(job / TRIGGER_FILE, replace(fitted, fits=FITS[2:]))
    with pytest.raises(UsageError, match="too few calls"):
        chosen_trigger("fitted", str(job), [])
    (job / "model" / "config.json").write_text('{"other": 1}')
    with pytest.raises(UsageError, match="other weights"):
        chosen_trigger("fitted", str(job), [])


@pytest.mark.parametrize(
    ("tools", "tool", "keys"),
    [
        ("calculator", ["Calculator"], ["calculator"]),  # one tool, named twice in two ways
        ("Calculator, calendar", [" CALENDAR "], ["calculator", "calendar"]),
        ("Far.py:Miles", [], ["miles"]),
        ("calculator,Far.py:Miles", ["Far.py:Miles"], ["calculator", "miles"]),
    ],
)
def test_a_tool_is_found_however_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tools: str, tool: list[str], keys: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Far.py").write_text("def Miles(text):\n    return text\n", encoding="utf-8")
    asked = BuildParameters.model_validate({"corpus": "c", "tools": tools, "tool": tool})
    built, settings = chosen_tools([*asked.tools, *asked.tool], None, None, None)
    assert list(built) == keys
    assert dict(settings.references) == ({"miles": f"{tmp_path}/Far.py:Miles"} if "miles" in keys else {})
