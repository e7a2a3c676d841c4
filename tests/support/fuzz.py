"""The suite tries the same 30 examples every time; chance is for `make fuzz`, with 2,000."""

from typing import Any

import hypothesis

# No test is timed: beside other work one example may take long.
_UNTIMED: dict[str, Any] = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("suite", max_examples=30, derandomize=True, **_UNTIMED)
# without the database of earlier failures, so that the seed alone decides
hypothesis.settings.register_profile("fuzz", max_examples=2_000, database=None, print_blob=True, **_UNTIMED)
hypothesis.settings.load_profile("suite")
