"""What is deployed, without a server: the forms, `prefect.yaml`, and the profiles that the documentation shows."""

import json
import re
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
from flows.ground.parameters import GroundParameters
from ops.deployments import DEPLOYMENTS, Deployment, as_yaml, form_schema
from tasks.launch.base import LaunchRequest
from toolformer_core.config import TOOL_NAMES

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
    assert fields["required"] == ["corpus", "data"]
    assert [kind["type"] for kind in fields["properties"]["passages"]["anyOf"]] == ["string", "null"]
    assert fields["properties"]["passages"]["anyOf"][0]["pattern"] == "^/"
    assert fields["properties"]["passages"]["description"].endswith("(absolute, as the worker sees it)")


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


@pytest.mark.parametrize(
    ("given", "refused"),
    [({"qa": "5 %"}, "'5 %' does not match"), ({"qa": "fdr=5"}, "'fdr=5' does not match"), (0.5, "0.5 is not valid")],
)
def test_what_is_no_threshold_is_refused_in_the_form(given: Any, refused: str) -> None:
    told = {"corpus": "/c4.jsonl", "data": "/data", "tau_f": given}
    with pytest.raises(FormError, match=refused):
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
@pytest.mark.parametrize("kind", [BuildParameters, EvaluateParameters, GroundParameters])
def test_what_a_form_takes_for_a_users_tool(
    reference: str, allowed: bool, kind: type[BuildParameters | EvaluateParameters | GroundParameters]
) -> None:
    field = kind.model_json_schema()["properties"]["tool"]
    assert jsonschema.Draft202012Validator(field).is_valid([reference]) is allowed


def test_a_command_with_all_five_tools_and_another_names_them() -> None:
    """With --tool alone, the five would be left out."""
    told = {"corpus": "/c", "data": "/d", "tools": list(TOOL_NAMES), "tool": ["/t.py:f"]}
    assert build_command(BuildParameters.model_validate(told)) == (
        "toolformer build --corpus /c --data /d --tool /t.py:f --tools calculator,calendar,wikisearch,qa,mt"
    )
    alone = BuildParameters.model_validate({**told, "tools": None})
    assert build_command(alone) == "toolformer build --corpus /c --data /d --tool /t.py:f"
