"""A training job: its folder is written, launched, followed to its end. One folder for one set of all it depends on.

    <jobs>/<name>-<digest>/   job.json, train.jsonl, dev.jsonl, then what the training program writes (`core/finetune`)
                              launch.json: the launcher's handle, by which a later process goes on following

The same dataset version, model, arm and recipe give the same folder: finished, it is not trained again; half-way, it
goes on from its last checkpoint; still running, it is only followed. This module knows no Prefect and no MLflow.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tasks.launch.base import JobState, Launcher, LaunchError, LaunchRequest, dns_name, read_tail
from tasks.translate import documents_of, examples_of
from toolformer_core.config import canonical_json
from toolformer_core.errors import ToolformerError, UsageError
from toolformer_core.finetune.events import FAILURE_FILE, STOP_FILE, read_events
from toolformer_core.finetune.recipe import Job, Recipe, write_job
from toolformer_core.finetune.split import arm_text, held_out
from toolformer_core.records import digest_of
from warehouse.commits import Dataset
from warehouse.errors import CorruptDataError
from warehouse.store import Store

__all__ = ["FinetuneSpec", "Outcome", "TrainingError", "follow", "launch", "outcome_of", "prepare", "running", "stop"]

VERSION = "3"  # raised when the same recipe would train otherwise
_LAUNCH = "launch.json"
_CARD = "card.json"
_UNSURE_S = 600.0  # a queue may fail to answer for so long before nobody waits for it any more
_LAST_WORDS_S = 10.0  # shared file systems show the last lines of a finished job late

Event = dict[str, Any]
_log = logging.getLogger(__name__)


class TrainingError(ToolformerError):
    """A training run that failed.

    Args:
        reason: nan_loss, out_of_memory, disk_full, error, or gone (no word of how it ended).
        message: one line.
        tail: the log's last lines.
    """

    def __init__(self, reason: str, message: str, tail: str = "") -> None:
        self.reason = reason
        self.message = message
        self.tail = tail
        super().__init__(f"training failed ({reason}): {message}")

    def __reduce__(self) -> tuple[type[TrainingError], tuple[str, str, str]]:
        return (type(self), (self.reason, self.message, self.tail))

    @property
    def may_pass(self) -> bool:
        """Whether the same again may go well: a node or a process died, rather than the recipe being wrong."""
        return self.reason in ("gone", "error")


@dataclass(frozen=True, slots=True)
class FinetuneSpec:
    """All a training run's result depends on, in plain values, and where it is written."""

    dataset: Dataset
    arm: str
    model: str  # as the nodes are to load it: a folder or a hub name
    model_digest: str
    recipe: Recipe
    dev_documents: int
    device: str
    jobs: Path

    @property
    def digest(self) -> str:
        """16 hex digits."""
        parts = (
            self.dataset.version,
            self.arm,
            self.model_digest,
            canonical_json(self.recipe),
            str(self.dev_documents),
        )
        return digest_of("finetune", VERSION, *parts)[:16]

    @property
    def folder(self) -> Path:
        return self.jobs / f"{self.dataset.name}-{self.arm}-{self.digest}"


@dataclass(frozen=True, slots=True)
class Card:
    """What went into a job's folder."""

    train: int
    dev: int
    train_digest: str
    dev_digest: str
    dataset: str = ""  # name@version; "" in folders of before it was noted


def prepare(spec: FinetuneSpec, store: Store) -> Card:
    """Write the job's folder, unless it is there; return what it holds.

    Raises:
        UsageError: nothing is left to train on, or the folder cannot be written.
        CorruptDataError: what the dataset rests on is damaged or gone.
    """
    card = spec.folder / _CARD
    if card.is_file():
        held = Card(**json.loads(card.read_text(encoding="utf-8")))
        try:
            write_job(_job(spec, has_dev=held.dev > 0), spec.folder)  # device and the model's place may be others now
        except OSError as exc:
            raise UsageError(f"the job's folder {spec.folder} cannot be written: {exc.strerror}") from exc
        return held
    texts = {e.doc_id: arm_text(e, spec.arm) for table in store.read_dataset(spec.dataset) for e in examples_of(table)}
    documents = {d.doc_id: d.text for d in _documents(spec.dataset, store)}
    chosen = held_out(documents, spec.dev_documents, spec.recipe.seed)
    train = [text for doc_id, text in texts.items() if doc_id not in chosen]
    dev = [documents[doc_id] for doc_id in sorted(chosen)]
    if not train:
        raise UsageError(f"{spec.dataset.name}@{spec.dataset.version} has {len(texts)} documents with calls: too few")
    writing = spec.folder.with_name(f".writing-{spec.folder.name}")
    try:
        shutil.rmtree(writing, ignore_errors=True)
        writing.mkdir(parents=True)
        own = f"{spec.dataset.name}@{spec.dataset.version}"
        digests = _write(writing / "train.jsonl", train), _write(writing / "dev.jsonl", dev)
        written = Card(len(train), len(dev), *digests, dataset=own)
        write_job(_job(spec, has_dev=bool(dev)), writing)
        (writing / _CARD).write_text(json.dumps(asdict(written)) + "\n", encoding="utf-8")
        writing.rename(spec.folder)
    except OSError as exc:
        raise UsageError(f"the job's folder {spec.folder} cannot be written: {exc.strerror}") from exc
    return written


def _job(spec: FinetuneSpec, *, has_dev: bool) -> Job:
    return Job(model=spec.model, dev="dev.jsonl" if has_dev else None, device=spec.device, recipe=spec.recipe)


def _documents(dataset: Dataset, store: Store) -> Iterator[Any]:
    """Yield the documents that the dataset's run read, whether they got calls or not."""
    runs = [run for run in store.runs() if run.run_id == dataset.run_id]
    keys = [key for run in runs for key in run.commits if key.stage == "ingest"]
    for key in keys:
        commit = store.find(key.stage, key.tool, key.shard, key.fingerprint)
        if commit is None:
            raise CorruptDataError(
                f"dataset {dataset.name}@{dataset.version} is damaged: its documents ({key.id}) are gone or not whole; "
                "run the build that made it again"
            )
        for file in commit.files:
            if "rejects" not in Path(file.path).parts:
                yield from documents_of(store.read(file))


def _write(path: Path, texts: Sequence[str]) -> str:
    lines = [json.dumps({"text": text}, ensure_ascii=False) for text in texts]
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return digest_of("texts", *texts)[:16]


def launch(launcher: Launcher, folder: Path, processes: int, python: str | None = None) -> str:
    """Start the job, or find it running; return its handle.

    Raises:
        UsageError: another launcher started the job, and nobody can say that it has ended.
        UsageError, LaunchError: see `Launcher.submit`, and `Launcher.cancel` for what an earlier attempt left behind.
    """
    note = folder / _LAUNCH
    handle = running(launcher, folder)
    if handle is None:
        _clear(launcher, folder)
    (folder / STOP_FILE).unlink(missing_ok=True)
    if handle is not None:
        return handle
    (folder / FAILURE_FILE).unlink(missing_ok=True)
    attempt = int(_noted(folder).get("attempt", 0)) + 1
    told = len(read_events(folder)[0])  # by earlier attempts: an end among them is not this one's
    name = dns_name(f"{folder.name[-33:]}-{attempt}")
    request = LaunchRequest(name=name, folder=folder, processes=processes, python=python or sys.executable)
    handle = launcher.submit(request)
    facts = {"launcher": launcher.name, "handle": handle, "attempt": attempt, "events": told}
    try:
        note.write_text(json.dumps(facts) + "\n", encoding="utf-8")
    except OSError as exc:
        launcher.cancel(handle)  # nobody would find it again
        raise LaunchError(f"{note} cannot be written: {exc.strerror}; make room, or mend its permissions") from exc
    return handle


def _clear(launcher: Launcher, folder: Path) -> None:
    """End what an earlier attempt that is over may have left running: two in one folder write over each other."""
    told = _noted(folder)
    if told.get("launcher") == launcher.name:
        launcher.cancel(str(told["handle"]))
    elif told:
        failed = (folder / FAILURE_FILE).exists()
        if not failed and outcome_of(read_events(folder)[0][int(told.get("events", 0)) :]) is None:
            raise UsageError(
                f"the job in {folder} was started by the launcher {told.get('launcher')!r} and has not said that it "
                f"ended: follow it with that launcher's profile, or, if it is gone, remove {folder / _LAUNCH}"
            )


def _noted(folder: Path) -> dict[str, Any]:
    """Return what was noted of the last launch: launcher, handle, attempt, how many events there were before it."""
    try:
        told = json.loads((folder / _LAUNCH).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) and "handle" in told else {}


def running(launcher: Launcher, folder: Path) -> str | None:
    """Return the handle of the folder's job if this launcher started it and it has not ended."""
    told = _noted(folder)
    if told.get("launcher") != launcher.name:
        return None
    state, _ = launcher.state(told["handle"])
    return str(told["handle"]) if state in (JobState.PENDING, JobState.RUNNING) else None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended."""

    finished: bool  # False: it stopped because asked to
    step: int
    best_step: int | None
    best_perplexity: float | None


def outcome_of(events: Sequence[Event]) -> Outcome | None:
    """Return how the last attempt ended by its own word; None if it did not say."""
    starts = [i for i, e in enumerate(events) if e["event"] == "started"]
    for event in events[starts[-1] :] if starts else ():
        if event["event"] == "finished":
            return Outcome(True, event["step"], event["best_step"], event["best_perplexity"])
        if event["event"] == "stopped":
            return Outcome(False, event["step"], None, None)
    return None


def follow(
    launcher: Launcher,
    handle: str,
    folder: Path,
    seen: Callable[[list[Event]], None],
    *,
    waits: Callable[[str], None] = lambda detail: None,
    every_s: float = 1.0,
    stop_s: float = 600.0,
) -> Outcome:
    """Follow a job to its end. Whatever interrupts this (Ctrl-C, a cancelled flow run) asks the job to stop.

    A `seen` that fails (a server that is away for a while) does not end the training: it is told again at the next
    look, and its error is raised if it fails after the end, too.

    Args:
        seen: told of all events from the job's first on, as they come, with those of earlier attempts first.
        waits: told why a job that has not begun waits, whenever that changes.
        every_s: seconds between two looks.
        stop_s: seconds an interrupted job has for its last step and checkpoint before it is ended hard.

    Raises:
        TrainingError: it failed.
        LaunchError: the queue has not answered for minutes; the job may run on, and the same call follows it again.
    """
    tail = _Tail(folder, seen)
    before = int(_noted(folder).get("events", 0))
    try:
        state, detail = _await_end(launcher, handle, tail, every_s, deadline=None, waits=waits)
    except LaunchError:
        raise
    except BaseException:
        _stop(launcher, handle, tail, every_s, stop_s)
        raise
    told = outcome_of(tail.events[before:])
    if told is None and state is JobState.SUCCEEDED:  # its last words may not be visible here yet
        until = time.monotonic() + _LAST_WORDS_S
        while told is None and time.monotonic() < until:
            time.sleep(every_s)
            tail.look()
            told = outcome_of(tail.events[before:])
    if told is None:
        raise _failure(folder, state, detail)  # whether or not anybody could be told of what came before
    tail.tell()
    return told  # by its own word, whatever the exit code: libraries sometimes abort after the work is done


def stop(
    launcher: Launcher,
    folder: Path,
    seen: Callable[[list[Event]], None],
    *,
    every_s: float = 1.0,
    stop_s: float = 600.0,
) -> bool:
    """Ask the folder's job to stop, and wait until it has; return whether it ran. For whom `follow` was killed.

    Args:
        seen, every_s, stop_s: see `follow`.

    Raises:
        LaunchError: nobody can tell how the job stands, or it cannot be ended.
    """
    handle = running(launcher, folder)
    if handle is not None:
        _stop(launcher, handle, _Tail(folder, seen), every_s, stop_s)
    return handle is not None


def _stop(launcher: Launcher, handle: str, tail: _Tail, every_s: float, stop_s: float) -> None:
    (tail.folder / STOP_FILE).touch()  # first: whoever waits here may be killed, the job reads it all the same
    try:
        _await_end(launcher, handle, tail, every_s, deadline=time.monotonic() + stop_s)
    finally:
        if (tail.folder / STOP_FILE).exists():  # gone: somebody has launched the job again, and wants it to go on
            launcher.cancel(handle)


class _Tail:
    """The events read so far, and those of them that `seen` has not taken yet."""

    def __init__(self, folder: Path, seen: Callable[[list[Event]], None]) -> None:
        self.folder = folder
        self.events: list[Event] = []
        self._seen = seen
        self._offset = 0
        self._untold: list[Event] = []

    def look(self) -> None:
        """Read what is new and tell it; what cannot be read or told now is at the next look."""
        try:
            new, self._offset = read_events(self.folder, self._offset)
            self.events += new
            self._untold += new
            self.tell()
        except Exception as exc:  # noqa: BLE001  # whatever a server, a disk or a display does is no reason to end a training
            _log.warning("the training goes on; what it says could not be passed on yet: %s", exc)

    def tell(self) -> None:
        if self._untold:
            self._seen(self._untold)
            self._untold = []


def _await_end(
    launcher: Launcher,
    handle: str,
    tail: _Tail,
    every_s: float,
    deadline: float | None,
    waits: Callable[[str], None] = lambda detail: None,
) -> tuple[JobState, str]:
    unsure_since: float | None = None
    waited_for: str | None = None
    while True:
        try:
            state, detail = launcher.state(handle)
            unsure_since = None
        except LaunchError:
            unsure_since = unsure_since or time.monotonic()
            if time.monotonic() - unsure_since > _UNSURE_S:
                raise
            state, detail = JobState.RUNNING, ""
        tail.look()
        if state is JobState.PENDING and detail != waited_for:
            waits(detail)
            waited_for = detail
        if state not in (JobState.PENDING, JobState.RUNNING):
            return state, detail
        if deadline is not None and not (tail.folder / STOP_FILE).exists():
            return state, detail  # see `_stop`
        if deadline is not None and (state is JobState.PENDING or time.monotonic() > deadline):
            return state, detail  # what still waits in a queue has nothing to save
        time.sleep(every_s)


def _failure(folder: Path, state: JobState, detail: str) -> TrainingError:
    tail = read_tail(folder / "log.txt")
    try:
        told = json.loads((folder / FAILURE_FILE).read_text(encoding="utf-8"))
        return TrainingError(told["reason"], told["message"], tail)
    except (OSError, ValueError, KeyError):
        pass
    if (folder / FAILURE_FILE).is_file() and not (folder / FAILURE_FILE).stat().st_size:
        return TrainingError("disk_full", "there was no room to say why it failed; make some, and run it again", tail)
    killed = re.search(r"\boom(killed)?\b|oom.kill|out_of_memory", detail, re.IGNORECASE)
    reason = "out_of_memory" if killed else "gone"
    return TrainingError(reason, f"the job ended without a word ({state}{': ' + detail if detail else ''})", tail)
