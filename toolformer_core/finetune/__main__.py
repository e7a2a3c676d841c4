"""The training program, as every process of a run calls it: `python -m toolformer_core.finetune FOLDER`.

FOLDER holds `job.json` (see `recipe`) and takes events, checkpoints and the finished model. Several processes find each
other through torchrun's variables. Run it again to go on from the last checkpoint. Exit 0: finished, or stopped because
asked to; otherwise 1 with the reason in `failure.json`, or 2 if the job itself is wrong. It needs torch, transformers,
and DeepSpeed only where the recipe says so.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import traceback
from contextlib import suppress
from pathlib import Path

from toolformer_core.errors import UsageError
from toolformer_core.finetune.checkpoints import clear_unfinished
from toolformer_core.finetune.events import FAILURE_FILE, record_failure
from toolformer_core.finetune.recipe import read_job

__all__ = ["main"]


def _meet_alone() -> None:
    """Give a process that nobody launched the variables of a run of one."""
    if "WORLD_SIZE" not in os.environ:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        alone = {
            "RANK": "0",
            "WORLD_SIZE": "1",
            "LOCAL_RANK": "0",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        os.environ.update(alone)


def _let_go(error: BaseException | None) -> None:
    """Close the files that were being written: as long as they are open, removing them makes no room."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__


def _fail(folder: Path, rank: int, reason: str, error: BaseException) -> int:
    told = "" if isinstance(error, UsageError) else "".join(traceback.format_exception(error))
    if reason == "disk_full":  # else there is no room to say why
        _let_go(error)
        clear_unfinished(folder)
    record_failure(folder, rank, reason, error)
    with suppress(OSError):  # the log lies on the same disk
        sys.stderr.write(told)
        print(f"error: {error}", file=sys.stderr, flush=True)  # noqa: T201
    return 2 if isinstance(error, UsageError) else 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m toolformer_core.finetune", description=__doc__)
    parser.add_argument("folder", type=Path, help="the job's folder, with job.json in it")
    parser.add_argument("--local_rank", type=int, help="given by DeepSpeed's launcher")
    given = parser.parse_args()
    if given.local_rank is not None:
        os.environ.setdefault("LOCAL_RANK", str(given.local_rank))
    _meet_alone()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if rank == 0:
        (given.folder / FAILURE_FILE).unlink(missing_ok=True)
    try:
        job = read_job(given.folder)
        if job.recipe.engine == "plain" and world > 1:
            raise UsageError(f"{world} processes need the engine deepspeed, the job says plain")
    except UsageError as exc:
        return _fail(given.folder, rank, "error", exc)
    if job.device == "cpu":
        os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read when DeepSpeed is imported
    import torch

    from toolformer_core.finetune.program import reason_of, train

    torch.set_flush_denormal(True)  # a CPU is many times slower with them, and sharp attention is full of them
    try:
        train(job, given.folder, rank=rank, local_rank=int(os.environ["LOCAL_RANK"]))
    except Exception as exc:  # noqa: BLE001  # the process ends here: whatever it was, whoever follows is told
        return _fail(given.folder, rank, reason_of(exc), exc)
    return 0


if __name__ == "__main__":
    code = main()
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)  # the libraries' own clean-up at exit sometimes aborts; everything is written by now
