"""Durations among the program's own variables."""

import itertools
import re
from pathlib import Path

import pytest

from tasks import settings
from tasks.settings import seconds
from toolformer_core.errors import UsageError


def test_the_docs_give_the_defaults_that_the_program_has() -> None:
    named = re.findall(r"`TOOLFORMER_([A-Z]+)_S` [|] ([0-9]+)", Path("docs/operating.md").read_text(encoding="utf-8"))
    assert {name.lower(): float(value) for name, value in named}.items() <= settings._SECONDS.items()
    assert len(named) == 3


def test_seconds_are_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, bad in itertools.product(("wait", "lease"), ("soon", "-1", "nan")):
        monkeypatch.setenv(f"TOOLFORMER_{name.upper()}_S", bad)
        with pytest.raises(UsageError, match=f"TOOLFORMER_{name.upper()}_S is {bad!r}"):
            seconds(name)
