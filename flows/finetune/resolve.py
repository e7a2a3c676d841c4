"""Resolves the parameters of a finetuning: dataset, model, recipe and launcher.

A mistake is thus reported before anything is written or started.
"""

from flows.export.find import find_dataset
from flows.finetune.parameters import FinetuneParameters
from flows.finetune.plan import FinetunePlan, jobs_folder
from flows.finetune.profiles import Profile, load_profile
from tasks.launch.base import Launcher
from tasks.settings import tracking_uri
from tasks.training.job import FinetuneSpec
from toolformer_core.errors import UsageError
from toolformer_core.finetune.recipe import Recipe
from warehouse.commits import Dataset
from warehouse.store import Store

__all__ = ["resolve", "resolve_setup"]


def resolve(p: FinetuneParameters) -> FinetunePlan:
    """Look up every name, compute the digests, and fill in every setting.

    Raises:
        UsageError: a name does not exist, or parameters do not fit together.
    """
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
    """Return what does not depend on the dataset: profile, processes per node, recipe and launcher.

    Raises:
        UsageError: there is no such profile, or parameters do not fit it.
    """
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
    return "" if _read_by(store, first) == _read_by(store, dataset) else dataset.made


def _read_by(store: Store, dataset: Dataset) -> set[str]:
    return {key.id for run in store.runs([dataset.run_id]) for key in run.commits if key.stage == "ingest"}
