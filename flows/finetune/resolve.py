"""Resolves the parameters of a finetuning, so that a mistake is reported before anything is written or started."""

from dataclasses import dataclass
from pathlib import Path

from flows.export.find import find_dataset
from flows.finetune.parameters import FinetuneParameters
from flows.finetune.profiles import Profile, load_profile
from tasks.launch.base import Launcher
from tasks.settings import tracking_uri
from tasks.training.job import FinetuneSpec
from tasks.training.outcome import outcome_of
from tasks.training.starting import launch_request
from toolformer_core.errors import UsageError
from toolformer_core.extras import how_to_install, is_installed
from toolformer_core.finetune.events import read_events
from toolformer_core.finetune.recipe import Recipe
from warehouse.commits import Dataset
from warehouse.store import Store


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
    """Check that this machine can run a training that the profile places on it; others are not checked."""
    ended = outcome_of(read_events(plan.spec.folder)[0])
    if ended is None or not ended.finished:
        check_hardware(plan.profile, plan.processes, plan.spec.recipe)


def check_hardware(profile: Profile, processes: int, recipe: Recipe) -> None:
    """Check that this machine has the GPUs and packages of a training, or raise a UsageError."""
    if profile.launcher != "local":
        return
    if profile.device == "cuda":
        import torch

        gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if not gpus:
            raise UsageError(
                "no GPU here, and the profile trains on one: give --profile cpu, or another machine's profile"
            )
        if processes > gpus:
            raise UsageError(f"{processes} processes need as many GPUs, and here are {gpus}: give --processes {gpus}")
    if profile.python:
        return  # another interpreter has packages of its own
    if recipe.engine == "deepspeed" and not is_installed("deepspeed"):
        raise UsageError(f"this training needs DeepSpeed, which is not installed: {how_to_install('deepspeed')}")
    if recipe.lora is not None and not is_installed("peft"):
        raise UsageError(f"this profile needs peft, which is not installed: {how_to_install('lora')}")


def jobs_folder(profile: Profile, store: Store) -> Path:
    """Return the folder that holds the trainings of a data folder."""
    return Path(profile.jobs or Path(store.root) / "finetunes").absolute()


def resolve(p: FinetuneParameters) -> FinetunePlan:
    """Look up every name, compute the digests, and fill in every setting; a UsageError says what is wrong."""
    from toolformer_core.lm.check import check_model
    from toolformer_core.lm.load import model_digest, model_folder  # imports torch, which cancelling does not need

    store = Store(p.data)
    dataset = find_dataset(store, p.dataset)
    profile, processes, recipe, launcher = resolve_setup(p)
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
    return FinetunePlan(spec, profile, processes, launcher, tracking_uri(p.data))


def resolve_setup(p: FinetuneParameters) -> tuple[Profile, int, Recipe, Launcher]:
    """Return what does not depend on the dataset: profile, processes per node, recipe and launcher."""
    profile = load_profile(p.profile, p.model)
    processes = p.processes or profile.processes_here()
    figures = ("steps", "batch", "learning_rate", "warmup", "sequence_length", "evaluate_every", "keep", "seed")
    recipe = profile.recipe(processes, **{name: getattr(p, name) for name in figures})
    if not profile.jobs and not Store(p.data).is_local:
        raise UsageError(f"{p.data} is a URL: name a folder that the nodes share as `jobs` in the profile")
    return profile, processes, recipe, profile.build_launcher()


def _way(store: Store, dataset: Dataset) -> str:
    """Return what distinguishes a dataset's record from the first of the same content, if they read other documents.

    This matters because development documents are chosen among all documents read, with calls and without.
    """
    first = next(d for d in store.datasets() if (d.name, d.version) == (dataset.name, dataset.version))
    read, first_read = (
        {key.id for run in store.runs([one.run_id]) for key in run.commits if key.stage == "ingest"}
        for one in (dataset, first)
    )
    return "" if read == first_read else dataset.made
