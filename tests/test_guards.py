"""The list of guards that `make guards` takes out is true of the source."""

import pytest
from guards import GUARDS, ROOT, Guard


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: f"{guard.file}: {guard.guard}")
def test_a_guard_stands_in_the_source_once_and_its_tests_are_there(guard: Guard) -> None:
    assert (ROOT / guard.file).read_text(encoding="utf-8").count(guard.text) == 1
    assert guard.text != guard.without
    for test in guard.tests:
        file, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")
