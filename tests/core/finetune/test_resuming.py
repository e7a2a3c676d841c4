"""Runs that were stopped, killed, or left without room or with damaged files, and gone on from."""

import errno
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.core.finetune.training_runs import STEPS, events, job_in, losses, run_here, run_program, run_two_processes
from toolformer_core.errors import UsageError
from toolformer_core.finetune import checkpoints, loop
from toolformer_core.finetune.events import FAILURE_FILE, STOP_FILE
from toolformer_core.finetune.program import train
from toolformer_core.finetune.recipe import LoraRecipe, read_job


def test_stopped_and_gone_on_from_is_as_never_stopped(tmp_path: Path, model: str) -> None:
    stopping = tmp_path / "stopped"
    job_in(stopping, model)
    (stopping / STOP_FILE).touch()
    train(read_job(stopping), stopping)
    assert [e["event"] for e in events(stopping)][-2:] == ["saved", "stopped"]
    assert [e["step"] for e in events(stopping, "step")] == [1]
    (stopping / STOP_FILE).unlink()
    train(read_job(stopping), stopping)
    train(job_in(tmp_path / "whole", model), tmp_path / "whole")
    assert events(stopping, "started")[1]["from_step"] == 1
    assert losses(stopping) == losses(tmp_path / "whole")  # to the last bit
    again = [e["perplexity"] for e in events(stopping, "evaluated")]
    assert again == [e["perplexity"] for e in events(tmp_path / "whole", "evaluated")]


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_another_engine_s_checkpoint_is_refused(tmp_path: Path, model: str) -> None:
    train(job_in(tmp_path, model), tmp_path)
    with pytest.raises(UsageError, match="1 processes of plain"):
        train(job_in(tmp_path, model, lora=LoraRecipe(), steps=6), tmp_path)


def test_a_full_disk_leaves_the_last_checkpoint_and_a_word(
    tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(job_in(tmp_path, model, steps=2), tmp_path)
    job_in(tmp_path, model)
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))"  # files end at 20 kB
    done = run_program(tmp_path, limit)
    assert done.returncode == 1
    assert json.loads((tmp_path / FAILURE_FILE).read_text())["reason"] == "disk_full"
    assert [p.name for p in (tmp_path / "checkpoints").glob("step-*")] == ["step-000002"]
    assert run_here(tmp_path, monkeypatch) == 0  # with room again it goes on
    assert not (tmp_path / FAILURE_FILE).exists()
    assert events(tmp_path, "started")[-1]["from_step"] == 2


ON_A_SMALL_DISK = """
mount -t tmpfs -o size=$3 none "$2" && cp -r "$1/." "$2" || exit 77
"$4" -m toolformer_core.finetune "$2"; echo $? >"$1/codes"
cp "$2/failure.json" "$1"; ls "$2/checkpoints" >"$1/left"
mount -o remount,size=100m "$2"
"$4" -m toolformer_core.finetune "$2"; echo $? >>"$1/codes"
cp "$2/events.jsonl" "$1"
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs a file system of its own")
def test_a_disk_that_is_really_full(tmp_path: Path, model: str) -> None:
    job, disk = tmp_path / "job", tmp_path / "disk"
    train(job_in(job, model, steps=2), job)
    job_in(job, model)
    disk.mkdir()
    pages = sum(-(-file.stat().st_size // 4096) for file in job.rglob("*"))  # a hard link would count once
    size = str(4096 * (pages + 5))
    alone = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", ON_A_SMALL_DISK, "sh"]
    done = subprocess.run([*alone, job, disk, size, sys.executable], capture_output=True, timeout=120, check=False)
    if done.returncode == 77 or b"unshare failed" in done.stderr:
        pytest.skip("nobody may mount here")
    assert (job / "codes").read_text().split() == ["1", "0"]
    assert json.loads((job / "failure.json").read_text())["reason"] == "disk_full"
    assert (job / "left").read_text().split() == ["step-000002"]
    assert [e["from_step"] for e in events(job, "started")][1:] == [2, 2]
    assert [e["step"] for e in events(job, "finished")] == [2, 4]


def test_what_a_checkpoint_holds_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[str] = set()
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.add(os.readlink(f"/proc/self/fd/{fd}")), fsync(fd)))
    named: list[bool] = []
    rename = Path.rename

    def watched(source: Path, target: Path) -> Path:
        if target.parent.name == "checkpoints":
            named.append({str(file) for file in source.rglob("*") if file.is_file()} <= synced)
        return rename(source, target)

    monkeypatch.setattr(Path, "rename", watched)
    train(job_in(tmp_path, model), tmp_path)
    assert named == [True, True]


def test_a_run_killed_just_after_a_checkpoint_makes_up_for_it(
    tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_in(tmp_path, model)
    with monkeypatch.context() as killed:
        killed.setattr(loop, "link_tree", lambda source, target: (_ for _ in ()).throw(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            train(job, tmp_path)
    assert [p.name for p in (tmp_path / "checkpoints").glob("step-*")] == ["step-000002"]
    assert not (tmp_path / "model").exists()
    train(job, tmp_path)
    assert [e["step"] for e in events(tmp_path, "saved")] == [2, 4]
    best = events(tmp_path, "finished")[0]["best_step"]
    files = [tmp_path / p / "model.safetensors" for p in ("model", f"checkpoints/step-{best:06d}/model")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_the_best_model_is_laid_out_again_if_that_was_not_finished(tmp_path: Path, model: str) -> None:
    job = job_in(tmp_path, model)
    train(job, tmp_path)
    best = events(tmp_path, "finished")[0]["best_step"]
    (tmp_path / "model.step").write_text("step-000001")  # as if killed before this note
    (tmp_path / "model" / "model.safetensors").unlink()
    train(job, tmp_path)
    assert (tmp_path / "model" / "model.safetensors").is_file()
    assert (tmp_path / "model.step").read_text() == f"step-{best:06d}"
    assert (len(losses(tmp_path)), len(events(tmp_path, "finished"))) == (STEPS, 2)  # and nothing more was done


def test_a_checkpoint_whose_word_was_cut_off_is_none(tmp_path: Path, model: str) -> None:
    train(job_in(tmp_path, model, evaluate_every=1), tmp_path)
    (tmp_path / "checkpoints" / "step-000004" / "meta.json").write_text('{"step": 4')
    assert [c.step for c in checkpoints.checkpoints(tmp_path)][-1] == 3
    train(job_in(tmp_path, model, evaluate_every=1), tmp_path)
    assert events(tmp_path, "started")[-1]["from_step"] == 3
    assert [c.step for c in checkpoints.checkpoints(tmp_path)][-1] == 4


def cut_off(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 100)


def change_a_byte(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1  # in the middle of a weight
    file.write_bytes(data)


def forget(file: Path) -> None:
    """What a power cut leaves of a file whose size was written and whose bytes were not."""
    file.write_bytes(bytes(file.stat().st_size))


@pytest.mark.parametrize("harm", [cut_off, change_a_byte, forget, Path.unlink])
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(
    tmp_path: Path, model: str, harm: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "hurt"
    train(job_in(folder, model), folder)
    harm(folder / "checkpoints/step-000004/state/state.pt")
    train(job_in(folder, model, steps=6), folder)
    assert [(e["step"], e["files"]) for e in events(folder, "damaged")] == [(4, 1)]
    assert events(folder, "started")[-1]["from_step"] == 2
    assert "checkpoint step-000004 is damaged: state.pt: " in capsys.readouterr().out
    train(job_in(tmp_path / "whole", model, steps=6), tmp_path / "whole")
    assert losses(folder)[-4:] == losses(tmp_path / "whole")[-4:]  # steps 3 to 6, to the last bit
    assert not list(folder.glob("checkpoints/*/state-damaged"))


def test_a_file_that_cannot_be_read_now_is_no_damage(
    tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(job_in(tmp_path, model), tmp_path)

    def stale(*given: Any) -> None:
        raise OSError(errno.ESTALE, "Stale file handle")

    job = job_in(tmp_path, model, steps=6)
    with monkeypatch.context() as away:
        away.setattr(zipfile, "ZipFile", stale)
        with pytest.raises(OSError, match="Stale"):
            train(job, tmp_path)
    assert not list(tmp_path.glob("checkpoints/*/state-damaged"))
    train(job, tmp_path)
    assert events(tmp_path, "started")[-1]["from_step"] == 4


def a_checkpoint(folder: Path, fill: Callable[[Path], object], step: int = 2, *more: Any) -> checkpoints.Checkpoint:
    """A checkpoint of a model, and a state that is filled so."""
    written = checkpoints.Checkpoint(step, *(more or (1, "plain", None)))
    for part in ("model", "state"):
        (state := checkpoints.unfinished(folder, written) / part).mkdir(parents=True)
    fill(state)
    checkpoints.complete(folder, written)
    return checkpoints.checkpoints(folder)[-1]


def test_files_of_another_kind_are_held_against_their_sizes_alone(tmp_path: Path) -> None:
    held = a_checkpoint(tmp_path, lambda state: torch.save({"x": 1}, state / "a", _use_new_zipfile_serialization=False))
    assert not checkpoints.find_damage(tmp_path, held)
    cut_off(held.state(tmp_path) / "a")
    assert checkpoints.find_damage(tmp_path, held)


def test_with_no_checkpoint_whole_it_begins_anew(tmp_path: Path, model: str) -> None:
    train(job_in(tmp_path, model), tmp_path)
    for state in tmp_path.glob("checkpoints/*/state/state.pt"):
        change_a_byte(state)
    train(job_in(tmp_path, model), tmp_path)
    assert [e["step"] for e in events(tmp_path, "damaged")] == [4, 2]
    assert events(tmp_path, "started")[-1]["from_step"] == 0
    assert losses(tmp_path)[STEPS:] == losses(tmp_path)[:STEPS]


def test_the_best_model_outlives_its_damaged_state(tmp_path: Path, model: str) -> None:
    job_in(tmp_path, model)
    first, last = (a_checkpoint(tmp_path, Path.touch, step, 1, "plain", dev) for step, dev in ((2, 9.0), (4, 3.0)))
    checkpoints.set_aside(tmp_path, last)
    checkpoints.prune(tmp_path, 1)
    assert first.state(tmp_path).is_dir()  # the only one to go on from
    assert [p.name for p in sorted(last.folder(tmp_path).iterdir())] == ["meta.json", "model"]
    assert checkpoints.best(tmp_path) == last


def test_two_processes_share_the_look_at_a_state(tmp_path: Path) -> None:
    held = a_checkpoint(tmp_path, lambda state: [torch.save(torch.arange(100), state / name) for name in "abc"])
    assert not checkpoints.find_damage(tmp_path, held)
    for name in "bc":
        change_a_byte(held.state(tmp_path) / name)
    shares = [checkpoints.find_damage(tmp_path, held, share, 2) for share in (0, 1)]  # a and c; b
    assert [[line.partition(":")[0] for line in lines] for lines in shares] == [["c"], ["b"]]


def test_processes_on_disks_of_their_own_are_told_so(
    tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_LAG_S", -1.0)
    job = job_in(tmp_path, model)
    train(job, tmp_path)
    # the first of two processes, the other of which sees a folder of its own, without checkpoints
    engine: Any = SimpleNamespace(rank=0, world=2, total=lambda *values: list(values))
    trainer = loop.Trainer(job, tmp_path, engine, [], [], lambda *a, **k: None, packs=False)
    with pytest.raises(UsageError, match="all nodes share"):
        trainer.run()


@pytest.mark.slow
def test_deepspeed_s_damaged_checkpoint_is_passed_over_by_both_processes(tmp_path: Path, model: str) -> None:
    for steps in (4, 6):
        job_in(tmp_path, model, engine="deepspeed", zero_stage=3, micro_batch=1, steps=steps)
        run_two_processes(tmp_path)
        change_a_byte(next(tmp_path.glob("checkpoints/step-000004/state/zero/*rank_1*optim_states.pt")))
    assert [e["step"] for e in events(tmp_path, "damaged")] == [4]
    assert [e["from_step"] for e in events(tmp_path, "started")] == [0, 2]
    before, after = losses(tmp_path)[2:4], losses(tmp_path)[4:6]  # steps 3 and 4, twice
    assert after == pytest.approx(before, rel=1e-5)
