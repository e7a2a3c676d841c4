"""The checkpoints of a run: where they are stored, which ones are kept, and from which one the run continues.

checkpoints/step-000500/meta.json   step, processes, engine, dev perplexity, the state's files; written last
                        state/      what the engine needs to continue; renamed to `state-damaged` if it is
                        model/      the complete model, if it was evaluated at this step
model/                              the model of the best checkpoint
"""

import errno
import json
import os
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

_ROOT = "checkpoints"
_META = "meta.json"
_DAMAGED = "state-damaged"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    step: int
    world: int  # processes that wrote the state; the same number must read it
    engine: str  # e.g. deepspeed-zero3
    perplexity: float | None  # on the development set
    files: Mapping[str, int] = field(default_factory=dict, compare=False)  # files of the state -> size in bytes
    archives: Sequence[str] = field(default=(), compare=False)  # those with checksums, written by torch.save

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
    return job / _ROOT / f".writing-{checkpoint.name}"


def clear_unfinished(job: Path) -> None:
    for leftover in (job / _ROOT).glob(".writing-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def complete(job: Path, checkpoint: Checkpoint) -> Path:
    source, target = unfinished(job, checkpoint), checkpoint.folder(job)
    state = [file for file in (source / "state").rglob("*") if file.is_file()]
    sizes = {file.relative_to(source / "state").as_posix(): file.stat().st_size for file in state}
    archives = [name for name in sizes if zipfile.is_zipfile(source / "state" / name)]
    written = asdict(replace(checkpoint, files=sizes, archives=archives))
    (source / _META).write_text(json.dumps(written) + "\n", encoding="utf-8")
    for file in source.rglob("*"):
        if file.is_file():
            with file.open("rb") as stream:
                os.fsync(stream.fileno())  # else the name could survive a power cut that the content does not
    shutil.rmtree(target, ignore_errors=True)
    source.rename(target)
    return target


def checkpoints(job: Path) -> list[Checkpoint]:
    complete_ones = []
    for meta in (job / _ROOT).glob(f"step-*/{_META}"):
        with suppress(OSError, ValueError, TypeError):
            complete_ones.append(Checkpoint(**json.loads(meta.read_text(encoding="utf-8"))))
    return sorted(complete_ones, key=lambda c: c.step)


def best(job: Path) -> Checkpoint | None:
    """Return the checkpoint with a model and the lowest dev perplexity; the latest if none was measured."""
    with_model = [c for c in checkpoints(job) if c.model(job).is_dir()]
    measured = [c for c in with_model if c.perplexity is not None]
    return min(measured, key=lambda c: (c.perplexity, c.step), default=next(reversed(with_model), None))


def find_damage(job: Path, checkpoint: Checkpoint, share: int = 0, shares: int = 1) -> list[str]:
    """Return what is wrong with a checkpoint's state, one line per file: missing, of another size, or changed.

    One of several processes checks the files `share`, `share` + `shares`, ... An OSError says nothing of damage.
    """
    problems = []
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
            problems.append(f"{name}: {wrong}")
    return problems


def _damaged_archive(file: Path) -> str:
    """Check an archive against its checksums; return what is wrong, "" if nothing."""
    try:
        with zipfile.ZipFile(file) as archive:
            part = archive.testzip()
    except OSError as exc:
        if exc.errno != errno.EINVAL:  # raised when damaged bytes lead to an impossible offset
            raise
        return str(exc)
    except Exception as exc:  # noqa: BLE001  # damaged bytes can cause any error
        return str(exc) or type(exc).__name__
    return f"{part} has another checksum" if part else ""


def set_aside(job: Path, checkpoint: Checkpoint) -> None:
    """Rename a damaged state, so that no run continues from it; the next checkpoint removes it."""
    state = checkpoint.state(job)
    shutil.rmtree(state.with_name(_DAMAGED), ignore_errors=True)
    state.rename(state.with_name(_DAMAGED))


def prune(job: Path, keep: int) -> None:
    """Keep the last `keep` checkpoints with a state, and the model of the best one; remove the rest."""
    present = checkpoints(job)
    kept = [c.step for c in present if c.state(job).is_dir()][-keep:]
    best_one = best(job)
    for old in (c for c in present if c.step not in kept):
        is_best = best_one is not None and old.step == best_one.step
        states = [old.state(job), old.state(job).with_name(_DAMAGED)]
        for unused in states if is_best else [old.folder(job)]:
            shutil.rmtree(unused, ignore_errors=True)
