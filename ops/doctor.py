"""`toolformer doctor`: whether this installation works, and how to repair what does not; it changes nothing.

Findings are `ok`, `warn` or `fail` (something will not run). A check imports what it needs: it may be what is missing.
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
from shlex import quote
from typing import TYPE_CHECKING, Literal

import psutil

from ops.addresses import running_addresses
from ops.ports import port_holder
from tasks.settings import shared_catalog, shown_url, tracking_uri
from toolformer_core.config import TOOL_NAMES
from toolformer_core.errors import ToolformerError
from toolformer_core.extras import how_to_install
from toolformer_core.lm.reference import EMBEDDED
from warehouse.errors import LockHeldError, WarehouseError, holder_of
from warehouse.files.paths import sqlite_file

if TYPE_CHECKING:
    from warehouse.store import Store

Level = Literal["ok", "warn", "fail"]
CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"
PACKAGE = "toolformer-platform"
_GB = 1 << 30
# Below the first figure a check fails, below the second it warns. A larger build fills 10 GB.
_DISK_GB = (1.0, 10.0)
_MEMORY_GB = (1.0, 4.0)
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_PORTS = (("up --prefect-port", 4200), ("up --mlflow-port", 5000), ("up --view-port", 8001), ("serve --port", 8000))


@dataclass(frozen=True, slots=True)
class DoctorOptions:
    data: str  # the data folder or URL
    model: str = "embedded"  # `embedded`, a folder or a hub name; the model is looked for but not loaded
    profile: str = "auto"  # where trainings are to run; the check looks for what that needs
    passages: str = ""  # a file of passages for wikisearch and qa; "": the embedded ones
    ports: tuple[tuple[str, int], ...] = _PORTS  # each with the option that changes it


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    level: Level
    message: str
    remedy: str = ""  # what to do, where `level` is not ok


def run_checks(options: DoctorOptions) -> Iterator[Finding]:
    """Yield the findings of every check, in the order of `CHECKS`."""
    for name, check in CHECKS.items():
        for level, message, *remedy in check(options):
            yield Finding(name, level, message, "".join(remedy))


Findings = Iterator[tuple[Level, str] | tuple[Level, str, str]]  # level, message, remedy


def _python(options: DoctorOptions) -> Findings:
    yield "ok", f"Python {platform.python_version()} at {sys.executable}"


def _packages(options: DoctorOptions) -> Findings:
    needed = [name.group() for line in requires(PACKAGE) or () if (name := _NAME.match(line)) and "extra" not in line]
    missing = [name for name in needed if _installed(name) is None]
    if missing:
        yield "fail", f"not installed: {', '.join(missing)}", f"pip install {' '.join(missing)}, or make install"
    if not CONSTRAINTS.is_file():
        present = len(needed) - len(missing)
        yield "ok", f"{present} packages; there is no constraints file here to compare their versions with"
        return
    pinned = [line.split("==") for line in CONSTRAINTS.read_text(encoding="utf-8").splitlines() if "==" in line]
    installed = [(name, pin, version) for name, pin in pinned if (version := _installed(name)) is not None]
    differing = [f"{name} {version} ({pin})" for name, pin, version in installed if version.partition("+")[0] != pin]
    if differing:
        message = f"these have other versions than the tested ones: {', '.join(differing)}"
        yield "warn", message, "pip install --constraint constraints.txt --editable ."
    else:
        yield "ok", f"{len(installed)} packages, all in the tested versions"


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _gpu(options: DoctorOptions) -> Findings:
    import torch

    if torch.cuda.is_available():
        cards = [torch.cuda.get_device_properties(n) for n in range(torch.cuda.device_count())]
        yield "ok", ", ".join(f"{card.name}, {card.total_memory / _GB:.0f} GiB" for card in cards)
    elif Path("/dev/nvidia0").exists():
        remedy = f"install PyTorch {torch.__version__.partition('+')[0]} for your CUDA, see pytorch.org"
        yield "warn", f"there is a GPU, but PyTorch {torch.__version__} does not see it", remedy
    elif options.profile in ("gpu", "lora"):
        yield "fail", f"no GPU, and the profile {options.profile} trains on one", "choose another --profile, or host"
    else:
        remedy = "use small models here, or start a worker of the pool gpu on a machine with GPUs"
        yield "warn", "no GPU: models with billions of weights would take days", remedy


def _disk(options: DoctorOptions) -> Findings:
    folder = _existing(options.data)
    free = psutil.disk_usage(str(folder)).free / _GB
    yield _measured(f"{free:.1f} GiB free at {folder}", free, _DISK_GB, "free some space, or choose another --data")


def _memory(options: DoctorOptions) -> Findings:
    free = psutil.virtual_memory().available / _GB
    total = psutil.virtual_memory().total / _GB
    message = f"{free:.1f} of {total:.1f} GiB are free; {os.cpu_count()} cores"
    yield _measured(message, free, _MEMORY_GB, "end other programs, or use fewer --workers")


def _measured(message: str, value: float, bounds: tuple[float, float], remedy: str) -> tuple[Level, str, str]:
    fail, warn = bounds
    level: Level = "fail" if value < fail else "warn" if value < warn else "ok"
    return level, message, "" if level == "ok" else remedy


def _ports(options: DoctorOptions) -> Findings:
    from warehouse.store import Store

    running = running_addresses(Store(options.data))
    ours = {running.ui.rpartition(":")[2], running.mlflow.rpartition(":")[2]} if running else set()
    if running:
        where = f"Prefect at {running.ui}, MLflow at {running.mlflow}"
        yield "ok", f"toolformer up is running: {where} (process {running.pid})"
    free = []
    for option, port in options.ports:
        if str(port) in ours:
            continue
        if holder := port_holder(port):
            yield "warn", f"port {port} is taken by {holder}", f"stop it, or choose another port: {option}"
        else:
            free.append(str(port))
    if free:
        yield "ok", f"free: {', '.join(free)}"


def _servers(options: DoctorOptions) -> Findings:
    spec = importlib.util.find_spec("prefect")
    if spec is None or spec.origin is None:
        return  # the check `packages` reports it
    if (Path(spec.origin).parent / "server" / "ui" / "index.html").is_file():
        yield "ok", "Prefect's UI is installed: it needs no network"
    else:
        yield "fail", "Prefect's UI is not installed", "pip install --force-reinstall --no-deps prefect"


def _model(options: DoctorOptions) -> Findings:
    from toolformer_core.lm.load import load_parts, model_folder

    try:
        folder = model_folder(EMBEDDED)
        import torch

        load_parts(folder, EMBEDDED, dtype=torch.float32)
        yield "ok", "the embedded model loads"
    except ToolformerError as exc:
        yield "fail", f"the embedded model: {exc}", "install this package again"
    if options.model != EMBEDDED:
        try:
            yield "ok", f"{options.model} is at {model_folder(options.model)}"
        except ToolformerError as exc:
            yield "fail", str(exc), "give --model a folder written by save_pretrained, or a name that can be downloaded"


def _tools(options: DoctorOptions) -> Findings:
    from toolformer_core.records import ToolFailure
    from toolformer_core.tools.build import EMBEDDED_PASSAGES, ToolSettings, build_tools
    from toolformer_core.tools.search.passages import read_passages

    passages = Path(options.passages) if options.passages else None
    try:
        tools = build_tools(list(TOOL_NAMES), ToolSettings(passages=passages))
        title = next(iter(read_passages(passages or EMBEDDED_PASSAGES))).title
        tools["wikisearch"].load()
        answer = tools["wikisearch"].run(title)
    except ToolformerError as exc:
        yield "fail", str(exc), "give --passages a JSONL file with title, section and text, or omit it"
        return
    if isinstance(answer, ToolFailure):
        remedy = f"see what it contains: toolformer tools test wikisearch {quote(title)} --passages ..."
        yield "warn", f"the index of passages does not find '{title}', which is in it ({answer.reason})", remedy
    else:
        yield "ok", f"{', '.join(tools)}; the index of passages answers"


def _data(options: DoctorOptions) -> Findings:
    from warehouse.store import Store

    try:
        store = Store(options.data)
        commits = len(store.names("commits"))
    except (WarehouseError, ToolformerError, OSError) as exc:
        yield "fail", f"{options.data}: {exc}", "choose another --data, or make sure that it can be reached"
        return
    if store.is_local and not os.access(folder := _existing(options.data), os.W_OK | os.X_OK):
        yield "fail", f"{folder} cannot be written", f"chown or chmod {quote(str(folder))}, or choose another --data"
        return
    if not commits:
        yield "ok", f"{options.data}: nothing has been built there yet"
        return
    yield "ok", f"{options.data}: {commits:,} finished shards"
    yield from _catalog(store, commits)
    yield from _snapshot(store)


def _catalog(store: Store, commits: int) -> Findings:
    from warehouse.catalog import Catalog

    remedy = f"toolformer reconcile --data {quote(store.root)}"
    shared = shared_catalog()
    path = store.local_folder / "catalog.duckdb"
    if shared is None and not path.exists():
        yield "warn", "there is no catalog", f"{remedy} (the next build creates it, too)"
        return
    try:
        with Catalog(shared or path) as catalog:
            listed = catalog.counts()["commits"]
    except LockHeldError as exc:
        yield "ok", f"the catalog is in use: {str(exc).partition(';')[0]}"
    except WarehouseError as exc:
        yield "fail", f"the catalog cannot be read: {exc}", remedy
    else:
        if listed == commits:
            yield "ok", "the catalog lists them all"
        else:
            yield "warn", f"the catalog lists {listed:,} of them", f"{remedy} (the next build catches up, too)"


def _snapshot(store: Store) -> Findings:
    from warehouse.queries import rows_of
    from warehouse.snapshot.publish import SNAPSHOT

    try:
        [row] = rows_of(store.local_folder / SNAPSHOT, "SELECT count(*) AS documents FROM documents")
        yield "ok", f"the snapshot can be queried: {row['documents']:,} documents"
    except WarehouseError as exc:
        held = exc.__cause__ is not None and holder_of(exc.__cause__)
        remedy = "close it there" if held else f"toolformer reconcile --data {quote(store.root)}"
        yield "fail", f"the snapshot cannot be queried: {str(exc).splitlines()[0]}", remedy


def _mlflow(options: DoctorOptions) -> Findings:
    from tasks.tracking import Tracking

    try:
        uri = tracking_uri(options.data)
        if (file := sqlite_file(uri)) is not None and not file.exists():
            yield "ok", "no run has been tracked yet"
            return
        Tracking(uri)
        yield "ok", f"MLflow's runs at {shown_url(uri)} can be read"
    except ToolformerError as exc:
        yield "fail", f"MLflow: {exc}", "mlflow db upgrade URL if its tables have an older version, else start it"


def _training(options: DoctorOptions) -> Findings:
    from flows.finetune.profiles import load_profile

    try:
        profile = load_profile(options.profile)
    except ToolformerError:
        remedy = "give --profile a name (cpu, bf16, core, gpu, lora) or a JSON file"
        yield "fail", f"no profile {options.profile}", remedy
        return
    needed = {"local": [], "ssh": ["ssh"], "slurm": ["sbatch", "squeue", "scancel"], "kubernetes": []}[profile.launcher]
    absent = [program for program in needed if shutil.which(program) is None]
    if absent:
        yield "fail", f"not found: {', '.join(absent)}", f"the profile {options.profile} starts trainings with them"
    engine = profile.engine_for(profile.processes_here()) == "deepspeed"
    packages = {"deepspeed": engine, "peft": bool(profile.lora.rank), "kubernetes": profile.launcher == "kubernetes"}
    for package, required in packages.items():
        if required and _installed(package) is None:
            extra = "lora" if package == "peft" else package
            yield "fail", f"{package} is not installed", how_to_install(extra)
    if not absent:
        yield "ok", f"profile {options.profile}: {profile.launcher}"


def _existing(data: str) -> Path:
    from warehouse.store import Store

    folder = Store(data).local_folder.absolute()
    return next(place for place in (folder, *folder.parents) if place.exists())


CHECKS: dict[str, Callable[[DoctorOptions], Findings]] = {
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
}
