"""How a training job ended: the outcome that its events report, or the error made of what a failed job left."""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tasks.launch.base import LOG, JobState
from toolformer_core.errors import ToolformerError
from toolformer_core.finetune.events import FAILURE_FILE

TrainingEvent = dict[str, Any]  # a line of events.jsonl
_TAIL_BYTES = 256 * 1024


class TrainingError(ToolformerError):
    """A training that failed: nan_loss, out_of_memory, disk_full, error, or gone (it ended without reporting why)."""

    def __init__(self, reason: str, message: str, tail: str = "") -> None:
        self.reason, self.message, self.tail = reason, message, tail
        super().__init__(f"training failed ({reason}): {message}")

    def __reduce__(self) -> tuple[type[Self], tuple[str, str, str]]:
        return (type(self), (self.reason, self.message, self.tail))

    @property
    def retryable(self) -> bool:
        """Whether another attempt may succeed: a node or a process died, and the recipe need not be wrong."""
        return self.reason in ("gone", "error")


@dataclass(frozen=True, slots=True)
class TrainingOutcome:
    finished: bool  # False: it stopped, and the next launch goes on
    step: int
    best_step: int | None
    best_perplexity: float | None
    reason: str = ""  # why it stopped; "": it was asked to, and saved a checkpoint


def outcome_of(events: Sequence[TrainingEvent]) -> TrainingOutcome | None:
    """Return how the last attempt says it ended; None if it does not say."""
    last = next((e for e in reversed(events) if e["event"] in ("started", "finished", "stopped")), None)
    if last is None or last["event"] == "started":
        return None
    if last["event"] == "finished":
        return TrainingOutcome(True, last["step"], last["best_step"], last["best_perplexity"])
    return TrainingOutcome(False, last["step"], None, None)


def read_tail(path: Path, lines: int = 40) -> str:
    """Return a text file's last lines, reading at most its last 256 KiB; "" if there is no such file."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def failure_of(folder: Path, state: JobState, detail: str) -> TrainingError:
    """Return the error of a job that ended without finishing, from the failure it reported or its scheduler state."""
    tail = read_tail(folder / LOG)
    with suppress(OSError, ValueError, KeyError):
        if not (text := (folder / FAILURE_FILE).read_text(encoding="utf-8")):
            problem = "there was no room to say why it failed; make some, and run it again"
            return TrainingError("disk_full", problem, tail)
        failure = json.loads(text)
        return TrainingError(failure["reason"], failure["message"], tail)
    out_of_memory = re.search(r"\boom(killed)?\b|oom.kill|out_of_memory", detail, re.IGNORECASE)
    reason = "out_of_memory" if out_of_memory else "gone"
    end = f"{state}: {detail}" if detail else str(state)
    return TrainingError(reason, f"the job ended without a word ({end}); what it printed is in {folder / LOG}", tail)
