"""Where a run's checkpoints lie, which are kept, and from which one it goes on.

    checkpoints/step-000500/meta.json   step, processes, engine, dev perplexity, the state's files; written last
                            state/      what the engine needs to go on
                            model/      the model whole, if it was evaluated at this step
    model/                              the best one's model

A folder without its final name is not a checkpoint. A state that is not whole any more becomes `state-damaged`, and
the run goes on from the checkpoint before. Nothing here knows torch, only that it writes zip archives with checksums.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

__all__ = [
    "Checkpoint",
    "best",
    "checkpoints",
    "clear_unfinished",
    "complete",
    "damage",
    "retain",
    "set_aside",
    "unfinished",
]

_ROOT = "checkpoints"
_META = "meta.json"
_DAMAGED = "state-damaged"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What `meta.json` says."""

    step: int
    world: int  # processes that wrote the state; as many must read it
    engine: str  # e.g. deepspeed-zero3
    perplexity: float | None  # on the development set
    files: Mapping[str, int] = field(default_factory=dict, compare=False)  # the state's, with their sizes in bytes
    archives: Sequence[str] = field(default=(), compare=False)  # those of them that hold checksums: torch.save's

    @property
    def name(self) -> str:
        return f"step-{self.step:06d}"

    def folder(self, job: Path) -> Path:
        return job / _ROOT / self.name

    def state(self, job: Path) -> Path:
        return self.folder(job) / "state"

    def model(self, job: Path) -> Path:
        return self.folder(job) / "model"


def unfinished(job: Path, checkpoint: Checkpoint) -> Path:
    """Return the folder in which a checkpoint is written before it has its name."""
    return job / _ROOT / f".writing-{checkpoint.name}"


def clear_unfinished(job: Path) -> None:
    """Remove what killed or failed runs left half-written."""
    for left in (job / _ROOT).glob(".writing-*"):
        shutil.rmtree(left, ignore_errors=True)


def complete(job: Path, checkpoint: Checkpoint) -> Path:
    """Give a written checkpoint its name, replacing one of the same step."""
    source, target = unfinished(job, checkpoint), checkpoint.folder(job)
    state = [file for file in (source / "state").rglob("*") if file.is_file()]
    sizes = {file.relative_to(source / "state").as_posix(): file.stat().st_size for file in state}
    archives = [name for name in sizes if zipfile.is_zipfile(source / "state" / name)]
    written = asdict(replace(checkpoint, files=sizes, archives=archives))
    (source / _META).write_text(json.dumps(written) + "\n", encoding="utf-8")
    for file in source.rglob("*"):
        if file.is_file():
            with file.open("rb") as stream:
                os.fsync(stream.fileno())  # a name that outlives a power cut must not lead to less than was written
    shutil.rmtree(target, ignore_errors=True)
    source.rename(target)
    return target


def checkpoints(job: Path) -> list[Checkpoint]:
    """Return all checkpoints of a run that are whole, the latest last."""
    found = []
    for meta in (job / _ROOT).glob(f"step-*/{_META}"):
        with suppress(OSError, ValueError, TypeError):
            found.append(Checkpoint(**json.loads(meta.read_text(encoding="utf-8"))))
    return sorted(found, key=lambda c: c.step)


def best(job: Path) -> Checkpoint | None:
    """Return the checkpoint of the lowest dev perplexity, of those with a model; the latest if none was measured."""
    held = [c for c in checkpoints(job) if c.model(job).is_dir()]
    measured = [c for c in held if c.perplexity is not None]
    if measured:
        return min(measured, key=lambda c: (c.perplexity, c.step))
    return held[-1] if held else None


def damage(job: Path, checkpoint: Checkpoint, share: int = 0, shares: int = 1) -> list[str]:
    """Return what is wrong with a checkpoint's state, a line a file: gone, of another size, or not what was written.

    Args:
        share, shares: look at every so-manieth file only, so that processes read a large state once between them.

    Raises:
        OSError: a file cannot be read now, which says nothing of what is in it.
    """
    found = []
    for name, size in sorted(checkpoint.files.items())[share::shares]:
        file = checkpoint.state(job) / name
        try:
            held = file.stat().st_size
            wrong = f"{held:,} of {size:,} bytes" if held != size else ""
        except FileNotFoundError:
            wrong = "gone"
        if not wrong and name in checkpoint.archives:
            wrong = _damaged_archive(file)
        if wrong:
            found.append(f"{name}: {wrong}")
    return found


def _damaged_archive(file: Path) -> str:
    """Read an archive against its own checksums; return what is wrong."""
    try:
        with zipfile.ZipFile(file) as archive:
            part = archive.testzip()
    except OSError as exc:
        if exc.errno != errno.EINVAL:  # where damaged bytes ask for a place that cannot be
            raise
        return str(exc)
    except Exception as exc:  # noqa: BLE001  # damaged bytes lead anywhere
        return str(exc) or type(exc).__name__
    return f"{part} has another checksum" if part else ""


def set_aside(job: Path, checkpoint: Checkpoint) -> None:
    """Keep a damaged state from being gone on from; the next checkpoint removes it."""
    state = checkpoint.state(job)
    shutil.rmtree(state.with_name(_DAMAGED), ignore_errors=True)
    state.rename(state.with_name(_DAMAGED))


def retain(job: Path, keep: int) -> None:
    """Keep the last `keep` checkpoints with a state whole, and the best one's model; remove the rest."""
    found = checkpoints(job)
    kept = [c.step for c in found if c.state(job).is_dir()][-keep:]
    chosen = best(job)
    for old in (c for c in found if c.step not in kept):
        if chosen is not None and old.step == chosen.step:
            for state in (old.state(job), old.state(job).with_name(_DAMAGED)):
                shutil.rmtree(state, ignore_errors=True)
        else:
            shutil.rmtree(old.folder(job), ignore_errors=True)
