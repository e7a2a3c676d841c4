"""MLflow: what a run was made of, how it went, and which checkpoint is best. The one place that imports mlflow.

    run           one per flow run: params (flattened with dots), tags, dataset inputs with our own digests
    metrics       loss, learning_rate, grad_norm, tokens, tokens_per_second, memory_bytes; dev_loss, dev_perplexity;
                  best_step, best_dev_perplexity; system/...
    model         one per checkpoint, named finetune-checkpoint: where it lies, and its dev_perplexity at its step
    registry      the best checkpoints as versions of one registered model; the alias `candidate` on the newest of them

    evaluation    accuracy/<arm>, call_rate/<arm>, ... with k as the step; tables/ and figures/ as artifacts
    grounding     grounding/<task>/<method>, answers/<task>/<method>, cost/<task>/<step> ...; tables/ and figures/

Weights stay where training left them: models and versions hold the folder's address. Only `MlflowClient` is used, with
the run's id in every call, so MLflow's global "active run" plays no part and runs in several threads do not mix.
`record` may be repeated: MLflow itself tells what it already holds. Call `prepare_environment` before this module is
imported, since MLflow reads on import whether it may send telemetry.
`store` opens the database and begins runs; `run` is a run of any flow, `training` that of a training; `figures` draws,
and is imported only for that, as matplotlib takes long to import.
Methods raise `TrackingError` if MLflow could not be reached; nothing is lost by that, as the same can be sent again.
"""

from tasks.tracking.run import Status, TrackedRun, TrackingError
from tasks.tracking.store import DatasetRef, Tracking, flatten, project
from tasks.tracking.training import CANDIDATE, CHECKPOINT, TrainingRun

__all__ = [
    "CANDIDATE",
    "CHECKPOINT",
    "DatasetRef",
    "Status",
    "TrackedRun",
    "Tracking",
    "TrackingError",
    "TrainingRun",
    "flatten",
    "project",
]
