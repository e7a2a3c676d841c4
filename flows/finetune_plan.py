"""What a finetuning is asked for, and what it comes to: the job, by all its result depends on, and who launches it.

Nothing is written or started here; what happens to the job is not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from flows.export import find_dataset
from flows.forms import FORM, ModelName, PathOrUrl, Version, one_of
from flows.training_profiles import PROFILES, Profile, load_profile
from tasks.finetune import FinetuneSpec
from tasks.following import launch_request, outcome_of
from tasks.launch.base import Launcher
from tasks.settings import tracking_uri
from toolformer_core.errors import UsageError
from toolformer_core.extras import how_to_install, is_installed
from toolformer_core.finetune.events import read_events
from warehouse.commits import Dataset
from warehouse.store import Store

__all__ = ["FinetuneParameters", "FinetunePlan", "check_machine", "jobs_folder", "plan_finetune"]


class FinetuneParameters(BaseModel):
    """C* to checkpoint."""

    model_config = FORM

    dataset: Version = Field("cstar", description="Dataset: name, or name@version; the newest version by default")
    data: PathOrUrl = Field("toolformer-data", description="Data folder or URL in which the dataset was built")
    model: ModelName = Field("embedded", description="Model to train: 'embedded', a folder, or a hub name")
    arm: Literal["toolformer", "cc"] = Field(
        "toolformer", description="toolformer: C*; cc: the same documents without their calls (M + CC)"
    )
    profile: Annotated[str, one_of(["auto", *PROFILES], "^/.+[.]json$")] = Field(
        "auto",
        description="Where to train: auto, cpu, core, gpu, lora, or your own JSON file's absolute path",
    )
    processes: int = Field(0, ge=0, description="Processes per node; 0: as the profile says")
    steps: int = Field(2000, gt=0, description="Optimiser steps (paper: up to 2,000)")
    batch: int = Field(128, gt=0, description="Texts in one step, over all processes (paper: 128)")
    learning_rate: float = Field(1e-5, gt=0, description="AdamW's, behind the warmup (paper: 1e-5)")
    warmup: float = Field(0.1, ge=0, le=1, description="Share of the steps with a rising rate (paper: 0.1)")
    sequence_length: int = Field(1024, gt=1, description="Tokens; longer texts are cut (paper: 1,024)")
    evaluate_every: int = Field(500, gt=0, description="Steps between dev perplexities and checkpoints (paper: 500)")
    dev_documents: int = Field(
        1000, ge=0, description="Documents kept from training, at most a tenth of the corpus (paper: 1,000)"
    )
    keep: int = Field(2, gt=0, description="Resumable checkpoints kept; the best model is kept besides")
    seed: int = Field(0, description="Seed of the order of texts, of dropout and of the choice of dev documents")
    retries: int = Field(1, ge=0, description="Further attempts, from the last checkpoint, if a process or node dies")


@dataclass(frozen=True, slots=True)
class FinetunePlan:
    """What parameters come to."""

    spec: FinetuneSpec
    profile: Profile
    processes: int
    launcher: Launcher
    tracking: str

    def preview(self) -> str:
        """Return the job's folder and what would be run or applied for it."""
        request = launch_request(self.spec.folder, self.processes, self.profile.python or None)
        return f"# {self.spec.folder}\n{self.launcher.preview(request)}"


def plan_finetune(p: FinetuneParameters) -> FinetunePlan:
    """Resolve names and settings; nothing is written or started.

    Raises:
        UsageError: something asked for does not exist or does not fit.
    """
    from toolformer_core.lm.check import check_model
    from toolformer_core.lm.load import model_digest, model_folder  # brings torch; whoever cancels needs none

    store = Store(p.data)
    dataset = find_dataset(store, p.dataset)
    profile = load_profile(p.profile)
    processes = p.processes or profile.processes_here()
    figures = ("steps", "batch", "learning_rate", "warmup", "sequence_length", "evaluate_every", "keep", "seed")
    recipe = profile.recipe(processes, **{name: getattr(p, name) for name in figures})
    if not profile.jobs and not store.is_local:
        raise UsageError(f"{p.data} is a URL: name a folder that the nodes share as `jobs` in the profile")
    check_model(p.model)
    spec = FinetuneSpec(
        dataset=dataset,
        arm=p.arm,
        model=str(model_folder(p.model).absolute()) if profile.launcher != "kubernetes" else p.model,
        model_digest=model_digest(p.model),
        recipe=recipe,
        dev_documents=p.dev_documents,
        device=profile.device,
        jobs=jobs_folder(profile, store),
        way=_way(store, dataset),
    )
    return FinetunePlan(spec, profile, processes, profile.build_launcher(), tracking_uri(p.data))


def _way(store: Store, dataset: Dataset) -> str:
    """Return what tells a dataset's record from the first of the same content, if they read other documents.

    The development documents are chosen among all that were read, with calls and without.
    """
    first = next(d for d in store.datasets() if (d.name, d.version) == (dataset.name, dataset.version))
    return "" if _read_by(store, first) == _read_by(store, dataset) else dataset.made


def _read_by(store: Store, dataset: Dataset) -> set[str]:
    return {key.id for run in store.runs([dataset.run_id]) for key in run.commits if key.stage == "ingest"}


def check_machine(plan: FinetunePlan) -> None:
    """See whether this machine can do a training that it is to do itself: others' machines are not looked at.

    Raises:
        UsageError: there is no GPU, there are too few, or a package is missing; the message says how to mend it.
    """
    profile = plan.profile
    ended = outcome_of(read_events(plan.spec.folder)[0])
    if profile.launcher != "local" or (ended is not None and ended.finished):
        return
    if profile.device == "cuda":
        import torch

        gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if gpus == 0:
            raise UsageError(
                "no GPU here, and the profile trains on one: give --profile cpu, or another machine's profile"
            )
        if plan.processes > gpus:
            raise UsageError(
                f"{plan.processes} processes need as many GPUs, and here are {gpus}: give --processes {gpus}"
            )
    if profile.python:
        return  # another interpreter has packages of its own
    recipe = plan.spec.recipe
    if recipe.engine == "deepspeed" and not is_installed("deepspeed"):
        asks = f"{plan.processes} processes need" if plan.processes > 1 else "this profile needs"
        raise UsageError(f"{asks} DeepSpeed, which is not installed: {how_to_install('deepspeed')}")
    if recipe.lora is not None and not is_installed("peft"):
        raise UsageError(f"this profile needs peft, which is not installed: {how_to_install('lora')}")


def jobs_folder(profile: Profile, store: Store) -> Path:
    """Return the folder in which the trainings of a data folder lie."""
    return Path(profile.jobs or Path(store.root) / "finetunes").absolute()
