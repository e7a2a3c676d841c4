"""`pytest --fuzz`: the property tests alone, each with 20 times its examples, drawn from a seed that is printed.

The suite itself tries the same examples on every machine and every time; chance is for here. `--hypothesis-seed N`
draws the same examples again. It knows Hypothesis and pytest, and none of the tests.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import hypothesis
import pytest
from hypothesis import is_hypothesis_test

__all__ = ["TIMES", "scale"]

TIMES = 20

# No test is timed: beside other work one example may take long.
_UNTIMED: dict[str, Any] = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("suite", derandomize=True, **_UNTIMED)
# without the database of earlier failures, so that the seed alone decides
hypothesis.settings.register_profile("fuzz", derandomize=False, database=None, print_blob=True, **_UNTIMED)
hypothesis.settings.load_profile("suite")


def scale(test: Callable[..., Any], times: int = TIMES) -> None:
    """Let a property test try so many times the examples it asks for, whether by the profile or by itself."""
    name = "_hypothesis_internal_use_settings"  # Hypothesis has no public way to settings that a test carries already
    own = getattr(test, name)
    setattr(test, name, hypothesis.settings(own, max_examples=times * own.max_examples))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fuzz",
        action="store_true",
        help=f"pass the property tests alone, with {TIMES} times their examples and a random seed",
    )


@pytest.hookimpl(tryfirst=True)  # before Hypothesis reads its seed, and before xdist hands the options to its processes
def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("fuzz"):
        hypothesis.settings.load_profile("fuzz")
        if config.option.hypothesis_seed is None:
            config.option.hypothesis_seed = str(random.SystemRandom().randrange(2**32))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("fuzz"):
        return
    chosen = [item for item in items if isinstance(item, pytest.Function) and is_hypothesis_test(item.obj)]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen
    for test in {getattr(item.obj, "__func__", item.obj) for item in chosen}:  # once, whatever its parameters
        scale(test)


def pytest_collection_finish(session: pytest.Session) -> None:
    _tell_seed(session.config)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    _tell_seed(config)


def _tell_seed(config: pytest.Config) -> None:
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if config.getoption("fuzz") and terminal is not None:
        seed = config.option.hypothesis_seed
        terminal.write_line(f"fuzz: {TIMES} times the examples, seed {seed}; the same again: make fuzz SEED={seed}")
