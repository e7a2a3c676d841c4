"""The state of a pretraining run, saved beside its model so that the same command resumes a run that was stopped.

This module does not know what is trained. Texts are not saved, because they follow from the seed and the number of
steps.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from toolformer_core.errors import UsageError


@dataclass(slots=True)
class Progress:
    """The progress of a run."""

    steps: int = 0
    seconds: float = 0.0  # wall time, including that before the run was stopped
    losses: list[float] = field(default_factory=list)  # each step's loss, in nats per token


class PretrainingCheckpoint:
    """The state of a run in `FOLDER/unfinished.pt`: weights in the precision in which they are trained, and optimizers.

    Args:
        folder: the folder of the run's model.
        arguments: the run's arguments; a state that was saved with others is refused.
        parts: the objects that have a state, by name.
    """

    def __init__(
        self, folder: Path, arguments: Mapping[str, Any], parts: Mapping[str, torch.nn.Module | torch.optim.Optimizer]
    ) -> None:
        self._path = folder / "unfinished.pt"
        self._arguments = dict(arguments)
        self._parts = dict(parts)

    def load(self) -> Progress:
        """Restore the parts' saved states and return the progress; do nothing if no state was saved.

        Raises:
            UsageError: the saved state is damaged, or belongs to a run with other arguments.
        """
        if not self._path.exists():
            return Progress()
        try:
            state = torch.load(self._path, map_location="cpu", weights_only=True)
        except (RuntimeError, EOFError, KeyError, ValueError, pickle.UnpicklingError) as exc:
            raise UsageError(f"{self._path} is damaged: remove it to start the run from the beginning") from exc
        saved = state["asked"]
        if saved != self._arguments:
            names = sorted(self._arguments | saved)
            other = {name: saved.get(name) for name in names if saved.get(name) != self._arguments.get(name)}
            raise UsageError(
                f"{self._path} is an unfinished run with other settings ({other}): use those, or another folder"
            )
        for name, part in self._parts.items():
            part.load_state_dict(state["parts"][name])
        return Progress(state["steps"], state["seconds"], state["losses"])

    def save(self, progress: Progress) -> None:
        """Save the current state; the previous one is replaced only when the new one is complete."""
        parts = {name: part.state_dict() for name, part in self._parts.items()}
        state: dict[str, Any] = {"asked": self._arguments, "parts": parts}
        state |= {"steps": progress.steps, "seconds": progress.seconds, "losses": progress.losses}
        temporary = self._path.with_suffix(".new")
        with temporary.open("wb") as stream:
            torch.save(state, stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, self._path)

    def remove(self) -> None:
        """Remove the state of a finished run."""
        for path in (self._path, self._path.with_suffix(".new")):
            path.unlink(missing_ok=True)
