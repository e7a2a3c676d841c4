"""What is deployed, without a server: the forms, `prefect.yaml`, and the profiles that the documentation shows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest
import yaml
from prefect.cli.deploy._models import PrefectYamlModel

from flows.deployments import DEPLOYMENTS, Deployment, as_yaml, form
from flows.parameters import BuildParameters
from flows.training_profiles import Profile, load_profile
from tasks.launch.base import LaunchRequest

EXAMPLES = re.findall(r"```json\n(.*?)```", (Path(__file__).parents[2] / "docs/finetune.md").read_text(), re.DOTALL)


def fields_of(deployment: Deployment) -> dict[str, Any]:
    [definition] = form(deployment)["definitions"].values()
    return dict(definition)


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda one: str(one.flow().name))
def test_every_field_says_what_it_is_and_what_is_filled_in_is_allowed(deployment: Deployment) -> None:
    fields = fields_of(deployment)
    for name, field in fields["properties"].items():
        assert field.get("description"), name
        if "default" in field:
            jsonschema.validate(field["default"], field)
    assert "data" in fields["required"]


def test_on_the_command_line_paths_may_be_relative() -> None:
    asked = BuildParameters(corpus="c4.jsonl", data="here", passages="mine.jsonl")
    assert (asked.corpus, asked.data, asked.passages) == ("c4.jsonl", "here", "mine.jsonl")
    assert BuildParameters(corpus="c4.jsonl").data == "toolformer-data"


def test_the_repositorys_prefect_yaml_says_the_same() -> None:
    written = (Path(__file__).parents[2] / "prefect.yaml").read_text(encoding="utf-8")
    assert written == as_yaml(), "write it anew: python -m flows.deployments --yaml > prefect.yaml"
    told = PrefectYamlModel.model_validate(yaml.safe_load(written))
    assert [one.entrypoint for one in told.deployments] == [one.entrypoint for one in DEPLOYMENTS]


def test_forms_ask_for_absolute_paths_and_keep_what_may_be_left_out() -> None:
    fields = fields_of(DEPLOYMENTS[0])
    assert fields["required"] == ["corpus", "data"]
    assert [kind["type"] for kind in fields["properties"]["passages"]["anyOf"]] == ["string", "null"]
    assert fields["properties"]["passages"]["anyOf"][0]["pattern"] == "^/"
    assert fields["properties"]["passages"]["description"].endswith("(absolute, as the worker sees it)")


@pytest.mark.parametrize("text", EXAMPLES, ids=[json.loads(text).get("launcher", "local") for text in EXAMPLES])
def test_the_documents_profiles_can_be_launched(text: str, tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    file.write_text(text, encoding="utf-8")
    profile = load_profile(str(file))
    folder = Path(profile.jobs or tmp_path) / "job"
    assert "toolformer_core.finetune" in profile.build_launcher().preview(
        LaunchRequest("job", folder, profile.processes)
    )


def test_the_document_has_an_example_for_every_launcher() -> None:
    told = [json.loads(text).get("launcher", "local") for text in EXAMPLES]
    assert told == list(get_args(Profile.model_fields["launcher"].annotation))
