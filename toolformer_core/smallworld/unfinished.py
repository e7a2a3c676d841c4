"""A pretraining run that was stopped, kept beside its model so that the same command goes on with it.

It does not know what is trained; texts are not in it, as they follow from the seed and the number of steps.
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

__all__ = ["Reached", "Unfinished"]


@dataclass(slots=True)
class Reached:
    """How far a run has come."""

    steps: int = 0
    seconds: float = 0.0  # of wall time, over all its parts
    losses: list[float] = field(default_factory=list)  # of every step, in nats a token


class Unfinished:
    """The state of a run in `FOLDER/unfinished.pt`: weights in the precision they are trained in, and optimizers.

    Args:
        folder: where the run's model goes.
        asked: what was asked for; a state that answers to something else is not gone on with.
        parts: what has a state, by name.
    """

    def __init__(
        self, folder: Path, asked: Mapping[str, Any], parts: Mapping[str, torch.nn.Module | torch.optim.Optimizer]
    ) -> None:
        self._path = folder / "unfinished.pt"
        self._asked = dict(asked)
        self._parts = dict(parts)

    def load(self) -> Reached:
        """Put the parts where they were, and return how far that was; leave them alone if there is no state.

        Raises:
            UsageError: the state in the folder is another run's, or damaged.
        """
        if not self._path.exists():
            return Reached()
        try:
            held = torch.load(self._path, map_location="cpu", weights_only=True)
        except (RuntimeError, EOFError, KeyError, ValueError, pickle.UnpicklingError) as exc:
            raise UsageError(f"{self._path} is damaged: remove it, and the run begins anew") from exc
        if held["asked"] != self._asked:
            names = sorted(self._asked | held["asked"])
            other = {k: held["asked"].get(k) for k in names if held["asked"].get(k) != self._asked.get(k)}
            raise UsageError(
                f"{self._path} is an unfinished run of other settings ({other}): take those, or another folder"
            )
        for name, part in self._parts.items():
            part.load_state_dict(held["parts"][name])
        return Reached(held["steps"], held["seconds"], held["losses"])

    def save(self, reached: Reached) -> None:
        """Keep the state of now; one that was kept before is there until this one is whole."""
        parts = {name: part.state_dict() for name, part in self._parts.items()}
        held: dict[str, Any] = {"asked": self._asked, "parts": parts}
        held |= {"steps": reached.steps, "seconds": reached.seconds, "losses": reached.losses}
        temporary = self._path.with_suffix(".new")
        with temporary.open("wb") as stream:
            torch.save(held, stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, self._path)

    def remove(self) -> None:
        """Forget the state: the run is finished."""
        for path in (self._path, self._path.with_suffix(".new")):
            path.unlink(missing_ok=True)
