"""Datasets as OpenLineage names them, so that what another producer says of the same file meets what is said here."""

from collections.abc import Mapping
from pathlib import PurePath
from urllib.parse import urlsplit

from tasks.settings import shown_url
from toolformer_core.lm.reference import ModelRef
from warehouse.store import Store

JOBS = "toolformer"  # the namespace of jobs, and of what ships with this program
HUB = "https://huggingface.co"
_FILES = "file"


def place(path_or_url: str) -> tuple[str, str]:
    """Return namespace and name of a file or folder; a URL loses its credentials."""
    if "://" not in path_or_url:
        return _FILES, path_or_url
    parts = urlsplit(shown_url(path_or_url))
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}", parts.path.strip("/") or "/"


def table_at(store: Store, *folders: str) -> tuple[str, str]:
    """Return namespace and name of a folder of a store, e.g. `shards/sample/calculator`."""
    return place(store.locate("/".join(folders)))


def model_at(name: str, checkpoints: Mapping[str, str]) -> tuple[str, str]:
    """Return namespace and name of a model as a user names it; a folder with a job's name in it is its checkpoint."""
    named = ModelRef.of(name)
    if named.kind == "embedded":
        return JOBS, "models/embedded"
    if named.url:
        return place(named.url)[0], named.model
    if job := training_of(name, checkpoints):
        return place(checkpoints[job])
    return (_FILES, name) if name.startswith(("/", "~", ".")) or name.count("/") > 1 else (HUB, name)


def training_of(name: str, checkpoints: Mapping[str, str]) -> str:
    """Return the training job whose checkpoint a model's name is; "" if it is none."""
    parts = PurePath(name).parts
    return next((job for job in checkpoints if job in parts), "")


def benchmark_at(task: str, path: str) -> tuple[str, str]:
    return place(path) if path else (JOBS, f"benchmarks/{task}")
