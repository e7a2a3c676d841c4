"""The training program, which every process of a run executes: `python -m toolformer_core.finetune FOLDER`.

FOLDER holds `job.json` (see `recipe`) and receives events, checkpoints and the model. Run it again to continue from the
last checkpoint. Exit 0: finished, or stopped on request; 1: failed, as `failure.json` says; 2: the job itself is wrong.
"""

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
from toolformer_core.streams import open_closed_streams


def _set_single_process_variables() -> None:
    """Set torchrun's variables for a run of one process, unless a launcher has set them."""
    if "WORLD_SIZE" not in os.environ:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))


def _release_frames(error: BaseException | None) -> None:
    """Close files that were being written; while they are open, removing them frees no space."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__


def _fail(folder: Path, rank: int, reason: str, error: BaseException) -> int:
    wrong_job = isinstance(error, UsageError)
    trace = "" if wrong_job else "".join(traceback.format_exception(error))
    if reason == "disk_full":  # make room to record the failure
        _release_frames(error)
        clear_unfinished(folder)
    record_failure(folder, rank, reason, error)
    with suppress(OSError):  # the log may be on the same disk
        sys.stderr.write(trace)
        print(f"error: {error}", file=sys.stderr, flush=True)  # noqa: T201
    return 2 if wrong_job else 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m toolformer_core.finetune", description=__doc__)
    parser.add_argument("folder", type=Path, help="the job's folder, which holds job.json")
    arguments = parser.parse_args()
    _set_single_process_variables()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if rank == 0:
        (arguments.folder / FAILURE_FILE).unlink(missing_ok=True)
    try:
        job = read_job(arguments.folder)
        if job.recipe.engine == "plain" and world > 1:
            raise UsageError(f"{world} processes need the engine deepspeed, but the job names plain; change its recipe")
    except UsageError as exc:
        return _fail(arguments.folder, rank, "error", exc)
    if job.device == "cpu":
        os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read when DeepSpeed is imported
    import torch

    from toolformer_core.finetune.program import reason_of, train

    torch.set_flush_denormal(True)  # denormals are many times slower on a CPU, and sharp attention produces many
    try:
        train(job, arguments.folder, rank=rank, local_rank=int(os.environ["LOCAL_RANK"]))
    except Exception as exc:  # noqa: BLE001  # the process ends here, and every failure must be recorded
        return _fail(arguments.folder, rank, reason_of(exc), exc)
    return 0


if __name__ == "__main__":
    open_closed_streams()
    code = main()
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)  # skips the libraries' clean-up at exit, which sometimes aborts; everything has been written
