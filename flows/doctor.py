"""`toolformer doctor`: is this installation sound, and how is each finding mended?

Every check looks at one thing and changes nothing. It finds something `ok`, worth a `warn` (it will do, but), or a
`fail` (something will not run). What a check needs is imported when it runs, as it may be what is missing.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import psutil

from flows.services import holder_of
from tasks.settings import shared_catalog, shown_url, tracking_uri
from toolformer_core.errors import ToolformerError
from toolformer_core.extras import how_to_install
from warehouse.errors import LockHeldError, WarehouseError

if TYPE_CHECKING:
    from flows.training_profiles import Profile
    from warehouse.store import Store

__all__ = ["CHECKS", "Asked", "Finding", "examine"]

Level = Literal["ok", "warn", "fail"]
CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"
PACKAGE = "toolformer-platform"
_GB = 1 << 30
_DISK_GB = (1.0, 10.0)  # below the first nothing is started; below the second a build of some size fills it
_MEMORY_GB = (1.0, 4.0)
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_SHOWN = 4  # packages that one line names


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be looked at.

    Args:
        data: the data folder or URL.
        model: `embedded`, a folder, or a hub name, which is looked for and not loaded.
        profile: where trainings are to run; what that needs must be there.
        passages: a file of passages for wikisearch and qa; "": the embedded ones.
        ports: of Prefect's and MLflow's servers and of `serve`, by the option that names another.
    """

    data: str
    model: str = "embedded"
    profile: str = "auto"
    passages: str = ""
    ports: tuple[tuple[str, int], ...] = (
        ("up --prefect-port", 4200),
        ("up --mlflow-port", 5000),
        ("serve --port", 8000),
    )


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found."""

    check: str
    level: Level
    told: str
    mend: str = ""  # what to do, of a finding that is not ok


def examine(asked: Asked) -> Iterator[Finding]:
    """Yield the findings of every check, in the order of `CHECKS`."""
    for name, check in CHECKS.items():
        for level, told, *mend in check(asked):
            yield Finding(name, level, told, "".join(mend))


Told = Iterator[tuple[Level, str] | tuple[Level, str, str]]


def _python(asked: Asked) -> Told:
    yield "ok", f"Python {platform.python_version()} at {sys.executable}"


def _packages(asked: Asked) -> Told:
    needed = [found.group() for line in requires(PACKAGE) or () if (found := _NAME.match(line)) and "extra" not in line]
    missing = [name for name in needed if _installed(name) is None]
    if missing:
        yield "fail", f"not installed: {', '.join(missing)}", f"pip install {' '.join(missing)}, or make install"
    if not CONSTRAINTS.is_file():
        yield "ok", f"{len(needed) - len(missing)} packages; no constraints file here to compare their versions with"
        return
    pinned = [line.split("==") for line in CONSTRAINTS.read_text(encoding="utf-8").splitlines() if "==" in line]
    here = [(name, wanted, own) for name, wanted in pinned if (own := _installed(name)) is not None]
    other = [f"{name} {own} ({wanted})" for name, wanted, own in here if own.partition("+")[0] != wanted]
    if other:
        more = f" and {len(other) - _SHOWN} more" if len(other) > _SHOWN else ""
        yield (
            "warn",
            f"of other versions than were tried: {', '.join(other[:_SHOWN])}{more}",
            "pip install --constraint constraints.txt --editable .",
        )
    else:
        yield "ok", f"{len(here)} packages, all of the versions that were tried"


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _gpu(asked: Asked) -> Told:
    import torch

    if torch.cuda.is_available():
        cards = [torch.cuda.get_device_properties(n) for n in range(torch.cuda.device_count())]
        yield "ok", ", ".join(f"{card.name}, {card.total_memory / _GB:.0f} GiB" for card in cards)
    elif Path("/dev/nvidia0").exists():
        mend = f"install PyTorch {torch.__version__.partition('+')[0]} for your CUDA, see pytorch.org"
        yield "warn", f"there is a GPU, but PyTorch {torch.__version__} does not see it", mend
    elif _profile(asked) is not None and asked.profile in ("gpu", "lora"):
        yield (
            "fail",
            f"no GPU, and the profile {asked.profile} trains on one",
            "name another --profile, or another host",
        )
    else:
        mend = "keep to small models here, or start a worker of the pool gpu where GPUs are"
        yield "warn", "no GPU: models of billions of weights would take days", mend


def _disk(asked: Asked) -> Told:
    folder = _local(asked.data)
    while not folder.exists():
        folder = folder.parent
    free = psutil.disk_usage(str(folder)).free / _GB
    yield _measured(f"{free:.1f} GiB free at {folder}", free, _DISK_GB, "free some space, or name another --data")


def _memory(asked: Asked) -> Told:
    free = psutil.virtual_memory().available / _GB
    total = psutil.virtual_memory().total / _GB
    told = f"{free:.1f} of {total:.1f} GiB are free; {os.cpu_count()} cores"
    yield _measured(told, free, _MEMORY_GB, "end other programs, or take fewer --workers")


def _measured(told: str, value: float, bounds: tuple[float, float], mend: str) -> tuple[Level, str, str]:
    fail, warn = bounds
    level: Level = "fail" if value < fail else "warn" if value < warn else "ok"
    return level, told, "" if level == "ok" else mend


def _ports(asked: Asked) -> Told:
    from flows.up import running
    from warehouse.store import Store

    own = running(Store(asked.data))
    ours = {own.ui.rpartition(":")[2], own.mlflow.rpartition(":")[2]} if own else set()
    if own:
        yield "ok", f"toolformer up runs here: Prefect at {own.ui}, MLflow at {own.mlflow} (process {own.pid})"
    free = []
    for option, port in asked.ports:
        if str(port) in ours:
            continue
        if holder := holder_of(port):
            yield "warn", f"port {port} is taken by {holder}", f"stop it, or name another port: {option}"
        else:
            free.append(str(port))
    if free:
        yield "ok", f"free: {', '.join(free)}"


def _servers(asked: Asked) -> Told:
    found = importlib.util.find_spec("prefect")
    if found is None or found.origin is None:
        return  # told of by `packages`
    if (Path(found.origin).parent / "server" / "ui" / "index.html").is_file():
        yield "ok", "Prefect's UI is part of this installation: no network is needed for it"
    else:
        yield (
            "fail",
            "Prefect's UI is missing from this installation",
            "pip install --force-reinstall --no-deps prefect",
        )


def _model(asked: Asked) -> Told:
    from toolformer_core.lm.load import load_parts, model_folder

    try:
        folder = model_folder("embedded")
        import torch

        load_parts(folder, "embedded", dtype=torch.float32)
        yield "ok", "the embedded model loads"
    except ToolformerError as exc:
        yield "fail", f"the embedded model: {exc}", "install this package anew"
    if asked.model != "embedded":
        try:
            yield "ok", f"{asked.model} is at {model_folder(asked.model)}"
        except ToolformerError as exc:
            yield "fail", str(exc), "give --model a folder written by save_pretrained, or a name that can be reached"


def _tools(asked: Asked) -> Told:
    from toolformer_core.config import TOOL_NAMES
    from toolformer_core.records import ToolFailure
    from toolformer_core.tools.build import EMBEDDED_PASSAGES, ToolSettings, build_tools
    from toolformer_core.tools.passages import read_passages

    own = Path(asked.passages) if asked.passages else None
    try:
        tools = build_tools(list(TOOL_NAMES), ToolSettings(passages=own))
        wanted = next(iter(read_passages(own or EMBEDDED_PASSAGES))).title
        tools["wikisearch"].load()
        answer = tools["wikisearch"].run(wanted)
    except ToolformerError as exc:
        yield "fail", str(exc), "give --passages a JSONL file of title, section and text, or none"
        return
    if isinstance(answer, ToolFailure):
        mend = f"look what it holds: toolformer tools test wikisearch '{wanted}' --passages ..."
        yield "warn", f"the index of passages does not find '{wanted}', which is in it ({answer.reason})", mend
    else:
        yield "ok", f"{', '.join(tools)}; the index of passages answers"


def _data(asked: Asked) -> Told:
    from warehouse.store import Store

    try:
        store = Store(asked.data)
        commits = len(store.names("commits"))
    except (WarehouseError, ToolformerError, OSError) as exc:
        yield "fail", f"{asked.data}: {exc}", "name another --data, or see that it can be reached"
        return
    if store.is_local:
        folder = _local(asked.data)
        while not folder.exists():
            folder = folder.parent
        if not os.access(folder, os.W_OK | os.X_OK):
            yield "fail", f"{folder} cannot be written", f"chown or chmod {folder}, or name another --data"
            return
    if not commits:
        yield "ok", f"{asked.data}: nothing was built there yet"
        return
    yield "ok", f"{asked.data}: {commits:,} finished shards"
    yield from _catalog(store, commits)
    yield from _snapshot(store)


def _catalog(store: Store, commits: int) -> Told:
    from warehouse.catalog import Catalog

    mend = f"toolformer reconcile --data {store.root}"
    shared = shared_catalog()
    place = store.beside / "catalog.duckdb"
    if shared is None and not place.exists():
        yield "warn", "there is no catalog", f"{mend} (the next build makes it, too)"
        return
    try:
        with Catalog(shared or place) as catalog:
            known = catalog.counts()["commits"]
    except LockHeldError as exc:
        yield "ok", f"the catalog is in use: {str(exc).partition(';')[0]}"
    except WarehouseError as exc:
        yield "fail", f"the catalog cannot be read: {exc}", mend
    else:
        if known == commits:
            yield "ok", "the catalog knows them all"
        else:
            yield "warn", f"the catalog knows {known:,} of them", f"{mend} (the next build catches up, too)"


def _snapshot(store: Store) -> Told:
    from warehouse.queries import rows_of
    from warehouse.snapshot import SNAPSHOT

    try:
        [row] = rows_of(store.beside / SNAPSHOT, "SELECT count(*) AS documents FROM documents")
        yield "ok", f"the snapshot can be queried: {row['documents']:,} documents"
    except WarehouseError as exc:
        yield (
            "fail",
            f"the snapshot cannot be queried: {str(exc).splitlines()[0]}",
            (f"toolformer reconcile --data {store.root} (it knows its files by their absolute paths)"),
        )


def _mlflow(asked: Asked) -> Told:
    from tasks.tracking import Tracking

    try:
        uri = tracking_uri(asked.data)
        if uri.startswith("sqlite:///") and not Path(uri.removeprefix("sqlite:///")).exists():
            yield "ok", "no run was tracked yet"
            return
        Tracking(uri)
        yield "ok", f"MLflow's runs at {shown_url(uri)} can be read"
    except ToolformerError as exc:
        yield "fail", f"MLflow: {exc}", "mlflow db upgrade URL if its tables are of an older version, else start it"


def _training(asked: Asked) -> Told:
    """What trainings need: of a profile that is named, it must be there."""
    profile = _profile(asked)
    if profile is None:
        yield "fail", f"no profile {asked.profile}", "give --profile a name (cpu, core, gpu, lora) or a JSON file"
        return
    needed = {
        "local": [],
        "ssh": ["ssh", "pdsh"],
        "slurm": ["sbatch", "squeue", "scancel"],
        "kubernetes": [],
    }[profile.launcher]
    absent = [program for program in needed if shutil.which(program) is None]
    if absent:
        yield "fail", f"not found: {', '.join(absent)}", f"the profile {asked.profile} starts trainings by them"
    engine = profile.engine_for(profile.processes_here()) == "deepspeed"
    packages = {"deepspeed": engine, "peft": bool(profile.lora.rank), "kubernetes": profile.launcher == "kubernetes"}
    for package, wanted in packages.items():
        if wanted and _installed(package) is None:
            extra = "lora" if package == "peft" else package
            yield "fail", f"{package} is not installed", how_to_install(extra)
    have = [name for name in packages if _installed(name)] + [p for p in ("ssh", "pdsh", "sbatch") if shutil.which(p)]
    if not absent:
        yield "ok", f"profile {asked.profile}: {profile.launcher}; here are {', '.join(have) or 'no further engines'}"


def _profile(asked: Asked) -> Profile | None:
    from flows.training_profiles import load_profile

    try:
        return load_profile(asked.profile)
    except ToolformerError:
        return None


def _browser(asked: Asked) -> Told:
    if shutil.which("chromium"):
        yield "ok", "chromium is here, for the tests of web pages and the documentation's pictures"
    else:
        yield "ok", "no chromium: only tests of web pages and the documentation's pictures need it"


def _local(data: str) -> Path:
    from warehouse.store import Store

    return Store(data).beside.absolute()


CHECKS: dict[str, Callable[[Asked], Told]] = {
    "python": _python,
    "packages": _packages,
    "gpu": _gpu,
    "disk": _disk,
    "memory": _memory,
    "ports": _ports,
    "servers": _servers,
    "model": _model,
    "tools": _tools,
    "data": _data,
    "mlflow": _mlflow,
    "training": _training,
    "browser": _browser,
}
