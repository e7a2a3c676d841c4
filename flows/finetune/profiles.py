"""Training profiles: where a training runs and how it is laid out there, by name or as a JSON file.

    cpu    this machine's cores, float32, one process with PyTorch alone; several with DeepSpeed ZeRO-3
    bf16   this machine's cores, bf16: two to four times faster where they multiply in it (AVX-512 BF16, AMX)
    core   one core of this machine: for small trainings side by side
    gpu    all GPUs of this machine, bf16, DeepSpeed ZeRO-3 (Toolformer, App. B)
    lora   one GPU, bf16, low-rank adapters

A file holds fields of `Profile`; missing fields come from the profile named in its field `base`.
"""

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from tasks.launch.base import Accelerator, Launcher
from tasks.launch.kubernetes import KubernetesLauncher
from tasks.launch.local import LocalLauncher
from tasks.launch.slurm import SlurmLauncher
from tasks.launch.ssh import SshLauncher
from toolformer_core.errors import UnknownNameError, UsageError
from toolformer_core.finetune.recipe import LoraRecipe, Recipe
from toolformer_core.lm.load import faster_in_bfloat16, model_folder
from toolformer_core.lm.reference import ModelRef


class Lora(BaseModel, extra="forbid"):
    rank: int = Field(0, ge=0, description="Rank of the adapters; 0: train all weights")
    alpha: int = Field(32, gt=0, description="Their scale, alpha / rank")
    dropout: float = Field(0.0, ge=0, lt=1, description="Dropout in front of them")
    targets: list[str] = Field(default_factory=list, description="Names of layers; none: all linear ones")


class Profile(BaseModel, extra="forbid"):
    """Where and how to train."""

    launcher: Literal["local", "ssh", "slurm", "kubernetes"] = Field("local", description="What starts the processes")
    device: Accelerator = Field("auto", description="auto takes the GPU where there is one")
    processes: int = Field(0, ge=0, description="Processes per node; 0: one per GPU, or one on a CPU")
    engine: Literal["auto", "plain", "deepspeed"] = Field(
        "auto", description="plain: PyTorch alone, one process; auto: deepspeed for more than one"
    )
    precision: Literal["fp32", "bf16"] = Field("bf16", description="bf16 keeps float32 master weights")
    zero_stage: int = Field(3, ge=0, le=3, description="DeepSpeed ZeRO stage (paper: 3)")
    micro_batch: int = Field(8, gt=0, description="Rows in one pass on one device")
    packing: bool = Field(True, description="Several texts in one row, none sees another; changes speed only")
    gradient_checkpointing: bool = Field(False, description="Recompute activations: less memory, a third more work")
    deepspeed: dict[str, Any] = Field(default_factory=dict, description="Laid over the shipped DeepSpeed config")
    lora: Lora = Field(default_factory=lambda: Lora(rank=0), description="Low-rank adapters")
    python: str = Field("", description="Interpreter on the nodes, if not this one's path")
    jobs: str = Field("", description="Folder for training jobs that all nodes share; default: finetunes/ in the data")
    local: dict[str, Any] = Field(default_factory=dict, description="Fields of LocalLauncher: environment, ...")
    ssh: dict[str, Any] = Field(default_factory=dict, description="Fields of SshLauncher: hosts, ssh_args, ...")
    slurm: dict[str, Any] = Field(default_factory=dict, description="Fields of SlurmLauncher: nodes, partition, ...")
    kubernetes: dict[str, Any] = Field(
        default_factory=dict, description="Fields of KubernetesLauncher: image, claim, pod, ..."
    )

    def processes_here(self) -> int:
        """Return the processes per node: the profile's number, else one per GPU of this machine."""
        if self.processes:
            return self.processes
        if self.device == "cpu" or self.launcher != "local":
            return 1
        import torch

        return max(1, torch.cuda.device_count())

    def engine_for(self, processes: int) -> str:
        """Return the engine: DeepSpeed for several processes or several machines."""
        if self.engine == "plain" and processes > 1:
            raise UsageError(f"{processes} processes need the engine deepspeed; the profile says plain")
        chosen = "deepspeed" if processes > 1 or self.launcher != "local" else "plain"
        return chosen if self.engine == "auto" else self.engine

    def recipe(self, processes: int, **figures: Any) -> Recipe:
        same = {"packing", "micro_batch", "precision", "zero_stage", "deepspeed", "gradient_checkpointing"}
        lora = self.lora
        return Recipe(
            **figures,
            **self.model_dump(include=same),
            engine=self.engine_for(processes),
            lora=LoraRecipe(lora.rank, lora.alpha, lora.dropout, tuple(lora.targets)) if lora.rank else None,
        )

    def build_launcher(self) -> Launcher:
        """Return the launcher with its settings."""
        settings = {"accelerator": self.device, **getattr(self, self.launcher)}
        launchers: dict[str, type[Launcher]] = {"local": LocalLauncher, "ssh": SshLauncher}
        launchers |= {"slurm": SlurmLauncher, "kubernetes": KubernetesLauncher}
        try:
            return TypeAdapter(launchers[self.launcher]).validate_python(settings)
        except ValidationError as exc:
            raise UsageError(f"the profile's settings for {self.launcher}: {_first_error(exc)}") from exc


PROFILES = {
    "cpu": Profile(device="cpu", precision="fp32", micro_batch=1),  # a row of 1,024 tokens stays in the caches
    "bf16": Profile(device="cpu", micro_batch=4),
    "core": Profile(device="cpu", precision="fp32", micro_batch=1, local={"environment": {"OMP_NUM_THREADS": "1"}}),
    "gpu": Profile(device="cuda", engine="deepspeed", gradient_checkpointing=True),
    "lora": Profile(device="cuda", processes=1, lora=Lora(rank=16), gradient_checkpointing=True),
}


def load_profile(name: str, model: str = "") -> Profile:
    """Return a profile by name or from a JSON file; `auto`: gpu where there is one, bf16 where it is faster, or cpu."""
    if name == "auto":
        import torch

        if torch.cuda.is_available():
            return PROFILES["gpu"]
        name = "bf16" if model and _is_here(model) and faster_in_bfloat16(model_folder(model)) else "cpu"
    if name in PROFILES:
        return PROFILES[name]
    path = Path(name)
    if not path.is_file():
        raise UnknownNameError("profile", name, ["auto", *PROFILES, "a .json file"])
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        base = fields.pop("base", "cpu" if fields.get("device") == "cpu" else "gpu")
        if base not in PROFILES:
            raise UnknownNameError("profile", base, PROFILES)
        return Profile.model_validate({**PROFILES[base].model_dump(), **fields})
    except ValidationError as exc:
        raise UsageError(f"profile {name}: {_first_error(exc)}") from exc
    except (OSError, ValueError, AttributeError) as exc:
        raise UsageError(f"profile {name} is no JSON object: {exc}") from exc


def _first_error(exc: ValidationError) -> str:
    first = exc.errors()[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"


def _is_here(model: str) -> bool:
    """Return whether a model is on this machine already; to choose a profile, none is downloaded."""
    named = ModelRef.of(model)
    return named.kind != "remote" and (named.here.kind != "hub" or named.here.local_file("config.json") is not None)
