"""A training run and the events it tells, as the tests of tracking start and tell them."""

import math
from typing import Any

from tasks.tracking import DatasetRef, Tracking, TrainingRun

DIGEST = "0123456789abcdef" * 4
DEV = DatasetRef("demo/dev", "fedcba9876543210", "/data/job/dev.jsonl", "dev", 24)
TRAIN = DatasetRef("demo/train", DIGEST, "/data/datasets/demo/1.json", "train", 150)
PARAMS = {"tau_f": {"calculator": 0.5, "qa": 1.0}, "learning_rate": 1e-5, "code_version": "1", "arm": "toolformer"}
STARTED = {"t": 1000.0, "event": "started", "attempt": 1, "world_size": 2, "engine": "plain", "from_step": 0}


def start(tracking: Tracking, **changes: Any) -> TrainingRun:
    tags = {"arm": "toolformer", "registered_model": "toolformer-embedded"}
    given = {"experiment": "finetune", "name": "demo", "params": PARAMS, "tags": tags, "datasets": [TRAIN, DEV]}
    return tracking.start(**{**given, "folder": "/data/job", "system_metrics": False, **changes})


def step(n: int, loss: float, t: float = 0.0) -> dict[str, Any]:
    return {"t": 1000.0 + (t or n), "event": "step", "step": n, "loss": loss, "learning_rate": 1e-5, "grad_norm": None,
            "tokens": 2048, "tokens_per_second": 512.0, "eta_s": 1.0, "memory_bytes": 10_000}  # fmt: skip


def evaluated(n: int, perplexity: float) -> dict[str, Any]:
    return {"t": 1000.2 + n, "event": "evaluated", "step": n, "loss": math.log(perplexity), "perplexity": perplexity}


def saved(n: int, perplexity: float | None, best: bool) -> dict[str, Any]:
    where = f"checkpoints/step-{n:06d}"
    return {"t": 1000.5 + n, "event": "saved", "step": n, "checkpoint": where, "model": f"{where}/model",
            "perplexity": perplexity, "best": best}  # fmt: skip


FINISHED = {"t": 1005.0, "event": "finished", "step": 4, "best_step": 4, "best_perplexity": 6.5, "model": "model"}
EVENTS = [
    STARTED, evaluated(0, 8.0), step(1, 2.5), step(2, 2.25), evaluated(2, 7.0), saved(2, 7.0, True),
    step(3, 2.0), step(4, 1.75), evaluated(4, 6.5), saved(4, 6.5, True), FINISHED,
]  # fmt: skip
