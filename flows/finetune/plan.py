"""The plan of a finetuning: the job, its launcher, and what this machine must have. It writes and starts nothing."""

from dataclasses import dataclass
from pathlib import Path

from flows.finetune.profiles import Profile
from tasks.launch.base import Launcher
from tasks.training.job import FinetuneSpec
from tasks.training.outcome import outcome_of
from tasks.training.starting import launch_request
from toolformer_core.errors import UsageError
from toolformer_core.extras import how_to_install, is_installed
from toolformer_core.finetune.events import read_events
from toolformer_core.finetune.recipe import Recipe
from warehouse.store import Store

__all__ = ["FinetunePlan", "check_hardware", "check_machine", "jobs_folder"]


@dataclass(frozen=True, slots=True)
class FinetunePlan:
    spec: FinetuneSpec
    profile: Profile
    processes: int
    launcher: Launcher
    tracking: str  # MLflow's server or database

    def preview(self) -> str:
        """Return the job's folder and the command or manifest that would start it."""
        request = launch_request(self.spec.folder, self.processes, self.profile.python or None)
        return f"# {self.spec.folder}\n{self.launcher.preview(request)}"


def check_machine(plan: FinetunePlan) -> None:
    """Check that this machine can run a training that the profile places on it; other machines are not checked.

    Raises:
        UsageError: there is no GPU, there are too few, or a package is missing.
    """
    ended = outcome_of(read_events(plan.spec.folder)[0])
    if ended is None or not ended.finished:
        check_hardware(plan.profile, plan.processes, plan.spec.recipe)


def check_hardware(profile: Profile, processes: int, recipe: Recipe) -> None:
    """Check that this machine has the GPUs and packages of a training that the profile places on it."""
    if profile.launcher != "local":
        return
    if profile.device == "cuda":
        import torch

        gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if gpus == 0:
            raise UsageError(
                "no GPU here, and the profile trains on one: give --profile cpu, or another machine's profile"
            )
        if processes > gpus:
            raise UsageError(f"{processes} processes need as many GPUs, and here are {gpus}: give --processes {gpus}")
    if profile.python:
        return  # another interpreter has packages of its own
    if recipe.engine == "deepspeed" and not is_installed("deepspeed"):
        who = f"{processes} processes need" if processes > 1 else "this profile needs"
        raise UsageError(f"{who} DeepSpeed, which is not installed: {how_to_install('deepspeed')}")
    if recipe.lora is not None and not is_installed("peft"):
        raise UsageError(f"this profile needs peft, which is not installed: {how_to_install('lora')}")


def jobs_folder(profile: Profile, store: Store) -> Path:
    """Return the folder that holds the trainings of a data folder."""
    return Path(profile.jobs or Path(store.root) / "finetunes").absolute()
