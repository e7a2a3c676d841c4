"""What `--tools`, `--tool` and `--trigger` name, and the record of a fit."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from flows.build_dataset.parameters import BuildParameters
from flows.forms.chosen_tools import chosen_tools
from flows.forms.chosen_trigger import chosen_trigger
from tasks.training.trigger import TRIGGER_FILE, FittedTrigger, read_trigger, write_trigger
from tests.support.finished_job import a_finished_job
from toolformer_core.decode.trigger import FitConfig, fit_tool
from toolformer_core.errors import UnknownNameError, UsageError
from toolformer_core.lm.load import model_digest

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
    calls = {"calculator": 3, "own": 2, "qa": 1}
    write_trigger(folder / TRIGGER_FILE, FittedTrigger(digest, "cstar@v1", 4, 10, calls, FitConfig(), FITS))
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
