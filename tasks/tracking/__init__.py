"""MLflow: what a run was made of, how it went, and which checkpoint is best. The one place that imports mlflow.

Call `prepare_environment` before this module is imported. `figures` is imported only to draw, as matplotlib takes long.
Methods raise `TrackingError` if MLflow could not be reached; the same can be sent again.
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
