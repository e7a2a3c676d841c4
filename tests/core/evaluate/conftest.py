"""A stand-in for the hub, for the tests that read from it."""

import sys
import types

import pytest


@pytest.fixture
def hub(monkeypatch):
    """A stand-in for the package `datasets`, which need not be installed: answers from a table."""
    asked = []
    answers = {}

    def load_dataset(repository, config=None, *, split):
        asked.append((repository, config, split))
        answer = answers[repository]
        if isinstance(answer, Exception):
            raise answer
        return answer

    module = types.ModuleType("datasets")
    module.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", module)
    module.asked, module.answers = asked, answers
    return module
