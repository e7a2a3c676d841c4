from __future__ import annotations

import pickle

import pytest

from toolformer_core import errors
from toolformer_core.errors import PromptError, ToolformerError, UnknownNameError, UsageError


def test_everything_exported_is_caught_by_the_root() -> None:
    assert all(issubclass(getattr(errors, name), ToolformerError) for name in errors.__all__)
    assert issubclass(PromptError, UsageError)


def test_a_near_name_is_suggested_and_all_are_listed() -> None:
    error = UnknownNameError("tool", "Calcualtor", ["qa", "calculator"])
    assert str(error) == "unknown tool 'Calcualtor'. Did you mean 'calculator'? Valid: calculator, qa."


@pytest.mark.parametrize(
    ("valid", "message"), [(["qa"], "unknown tool 'zzz'. Valid: qa."), ([], "unknown tool 'zzz'. Valid: (none).")]
)
def test_nothing_near_suggests_nothing(valid: list[str], message: str) -> None:
    assert str(UnknownNameError("tool", "zzz", valid)) == message


def test_an_unknown_name_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(UnknownNameError("tool", "qq", ["qa", "mt"])))
    assert (error.kind, error.name, error.valid, str(error)) == (
        *("tool", "qq", ("mt", "qa")),
        "unknown tool 'qq'. Did you mean 'qa'? Valid: mt, qa.",
    )
