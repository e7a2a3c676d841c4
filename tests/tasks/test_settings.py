"""The program's own variables: which catalog is shared, and durations."""

import itertools
import re

import pytest

from tasks import settings
from tasks.settings import seconds
from toolformer_core.errors import UsageError


def test_the_docstring_gives_the_defaults_that_the_program_has() -> None:
    named = re.findall(r"TOOLFORMER_([A-Z]+)_S .*[(]default ([0-9]+)[)]", settings.__doc__ or "")
    assert {name.lower(): float(value) for name, value in named} == settings._SECONDS


def test_seconds_are_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (seconds("wait"), seconds("refresh"), seconds("sweep")) == (600.0, 20.0, 3600.0)
    assert seconds("refresh") <= 30.0
    for name, bad in itertools.product(("wait", "lease"), ("soon", "-1", "nan")):
        monkeypatch.setenv(f"TOOLFORMER_{name.upper()}_S", bad)
        with pytest.raises(UsageError, match=f"TOOLFORMER_{name.upper()}_S is {bad!r}"):
            seconds(name)
