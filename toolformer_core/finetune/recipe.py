"""The parameters of a training run: the recipe (by default the paper's), and the job with its model and texts.

The paper (App. B) has bf16, ZeRO stage 3 and 1,000 development documents; responses are part of the loss (section 2).
It names no optimiser, decay or clipping: ours are AdamW (0.9, 0.999) without weight decay, a constant rate after the
warmup, and gradients clipped at norm 1. Only engine and precision are checked here, the rest by `flows.finetune`.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from toolformer_core.errors import UsageError

JOB_FILE = "job.json"
ENGINES = ("plain", "deepspeed")
PRECISIONS = ("fp32", "bf16")


@dataclass(frozen=True, slots=True)
class LoraRecipe:
    """Train low-rank adapters (Hu et al. 2021) instead of all weights, for small GPUs; checkpoints are merged."""

    rank: int = 16
    alpha: int = 32
    dropout: float = 0.0
    targets: tuple[str, ...] = ()  # names of linear layers; empty: all except the output layer


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to train; length, batch, rate, warmup, steps and evaluations are the paper's (App. B)."""

    sequence_length: int = 1024
    batch: int = 128  # texts (pieces of at most `sequence_length` tokens), whether packed or not
    learning_rate: float = 1e-5
    warmup: float = 0.1  # share of the steps over which the rate rises linearly from 0
    steps: int = 2000
    evaluate_every: int = 500  # steps between evaluations, each with a checkpoint
    keep: int = 2  # how many resumable checkpoints to keep
    weight_decay: float = 0.0
    clip: float = 1.0  # gradient norm; 0: not clipped
    seed: int = 0
    packing: bool = True  # several texts in one row, which do not attend to each other; only changes the speed
    micro_batch: int = 8  # rows in one forward pass on one device
    engine: str = "plain"  # plain: PyTorch alone, in one process; deepspeed: any number of processes
    precision: str = "fp32"  # bf16 keeps float32 master weights
    zero_stage: int = 3  # deepspeed only
    deepspeed: Mapping[str, Any] = field(default_factory=dict)  # overrides the shipped DeepSpeed config
    gradient_checkpointing: bool = False
    lora: LoraRecipe | None = None

    def __post_init__(self) -> None:
        if self.engine not in ENGINES or self.precision not in PRECISIONS:
            raise UsageError(f"engine must be one of {', '.join(ENGINES)}, and precision of {', '.join(PRECISIONS)}")

    def learning_rate_at(self, step: int) -> float:
        rising = self.warmup * self.steps
        return self.learning_rate * min(1.0, step / rising) if rising > 0 else self.learning_rate


@dataclass(frozen=True, slots=True)
class Job:
    """One training run. Paths are absolute, or relative to the job's folder."""

    model: str  # a folder written by save_pretrained, or a hub name
    train: str = "train.jsonl"  # one {"text": ...} per line
    dev: str | None = "dev.jsonl"
    device: str = "auto"  # auto, cpu or cuda
    recipe: Recipe = field(default_factory=Recipe)


def write_job(job: Job, folder: Path) -> Path:
    path = folder / JOB_FILE
    writing = path.with_name(f".writing-{JOB_FILE}")
    writing.write_text(json.dumps(asdict(job), indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return writing.replace(path)


def read_job(folder: Path) -> Job:
    path = folder / JOB_FILE
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise UsageError(f"{path} is not a job: {exc}; give a folder that holds job.json") from exc
    recipe = dict(raw.pop("recipe", {}))
    if recipe.get("lora") is not None:
        lora = dict(recipe["lora"])
        recipe["lora"] = LoraRecipe(**{**lora, "targets": tuple(lora.get("targets", ()))})
    try:
        return Job(recipe=Recipe(**recipe), **raw)
    except TypeError as exc:
        raise UsageError(f"{path} is not a job: {exc}") from exc
