import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from tasks.launch.base import LaunchError, LaunchRequest
from tasks.launch.kubernetes import KubernetesLauncher
from tasks.launch.local import LocalLauncher
from tasks.launch.slurm import SlurmLauncher
from tasks.launch.ssh import SshLauncher
from tests.tasks.launch.launch_cases import GOLDEN, cases
from toolformer_core.errors import UsageError


@pytest.mark.parametrize("kind", [LocalLauncher, SshLauncher, SlurmLauncher, KubernetesLauncher])
def test_launchers_are_parts_of_a_form(kind):
    """A profile holds launchers as fields: all have defaults, all can be written as JSON, and names are checked."""
    form = TypeAdapter(kind)
    assert form.validate_python({}) == kind()
    assert form.validate_json(form.dump_json(kind())) == kind()
    assert "name" not in form.json_schema()["properties"]
    with pytest.raises(ValidationError, match="accelerator"):
        form.validate_python({"accelerator": "abacus"})


def test_what_would_be_run_is_what_was_agreed():
    assert cases() == {path.name: path.read_text() for path in GOLDEN.iterdir()}


@pytest.mark.parametrize(
    ("text", "name"),
    [("C* (v2)", "c-v2"), ("7b_cc", "job-7b-cc"), ("--", "job"), ("x" * 60, "x" * 40), ("a" * 39 + "-b", "a" * 39)],
)
def test_names_for_queues(text, name):
    assert LaunchRequest(text, Path("/x")).name == name


@given(st.text())
def test_every_text_makes_a_name_that_queues_take(text):
    assert re.fullmatch(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?", LaunchRequest(text, Path("/x")).name)


@pytest.mark.parametrize("variable", [{"A B": "1"}, {"A": "1\n2"}, {"": "1"}])
def test_what_is_no_variable_is_named(variable):
    with pytest.raises(UsageError, match=f"variable '{next(iter(variable))}': letters"):
        LocalLauncher(environment=variable).preview(LaunchRequest("job", Path("/x")))


def test_a_cpu_needs_no_gpus_unless_they_are_asked_for():
    asked = [(-1, "cpu"), (-1, "auto"), (2, "cpu"), (0, "cuda")]
    assert [SlurmLauncher(accelerator=one).gpus_to_request(gpus, 4) for gpus, one in asked] == [0, 4, 2, 0]


def test_commands_that_are_missing_or_hang(tmp_path):
    with pytest.raises(UsageError, match="nosuchcommand is not on this machine's PATH: install an ssh client"):
        SshLauncher().run("nosuchcommand")
    with pytest.raises(LaunchError, match="did not answer within 0 s"):
        SshLauncher().run(sys.executable, "-c", "import time; time.sleep(60)", timeout=0.2)
