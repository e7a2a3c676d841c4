"""The program's own variables: which catalog is shared, and durations."""

from __future__ import annotations

import re

import pytest

from tasks import settings
from tasks.settings import seconds
from toolformer_core.errors import UsageError


def test_a_lease_that_is_no_number_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLFORMER_LEASE_S", "soon")
    with pytest.raises(UsageError, match="TOOLFORMER_LEASE_S is 'soon'"):
        seconds("lease")


def test_the_docstring_gives_the_defaults_that_the_program_has() -> None:
    named = re.findall(r"TOOLFORMER_([A-Z]+)_S .*[(]default ([0-9]+)[)]", settings.__doc__ or "")
    assert {name.lower(): float(value) for name, value in named} == settings._SECONDS
