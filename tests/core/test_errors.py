import pickle

import pytest

from toolformer_core import errors
from toolformer_core.errors import PromptError, ToolformerError, UnknownNameError, UsageError


def test_every_error_is_caught_by_the_root() -> None:
    own = [one for one in vars(errors).values() if isinstance(one, type) and one.__module__ == errors.__name__]
    assert all(issubclass(one, ToolformerError) for one in own)
    assert issubclass(PromptError, UsageError)


@pytest.mark.parametrize(
    ("name", "valid", "message"),
    [
        ("Calcualtor", ["qa", "calculator"], "'Calcualtor'. Did you mean 'calculator'? Valid: calculator, qa."),
        ("zzz", ["qa"], "'zzz'. Valid: qa."),
        ("zzz", [], "'zzz'. Valid: (none)."),
    ],
)
def test_a_near_name_is_suggested_and_all_are_listed(name: str, valid: list[str], message: str) -> None:
    assert str(UnknownNameError("tool", name, valid)) == f"unknown tool {message}"


def test_an_unknown_name_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(UnknownNameError("tool", "qq", ["qa", "mt"])))
    assert (error.kind, error.name, error.valid, str(error)) == (
        *("tool", "qq", ("mt", "qa")),
        "unknown tool 'qq'. Did you mean 'qa'? Valid: mt, qa.",
    )
