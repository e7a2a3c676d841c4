"""CPU seconds of a shard, but for threads of libraries: those of its own thread, and of the model's for its jobs."""

import threading
import time

CPU_SECONDS = "cpu_seconds"  # the counter of a commit: of the shard's own thread
MODEL_CPU_SECONDS = "model_cpu_seconds"  # the counter of a commit: of the model's thread, for this shard

_spent = threading.local()  # .model: CPU seconds of the model's thread for jobs of the present thread


def add_model_cpu(seconds: float) -> None:
    _spent.model = getattr(_spent, "model", 0.0) + seconds


class CpuTime:
    """CPU seconds since it was made; ask it in the thread that made it."""

    def __init__(self) -> None:
        self._own = time.thread_time()
        self._model = getattr(_spent, "model", 0.0)

    def counters(self) -> dict[str, float]:
        """Return the counters of a commit; that of the model only if the model worked."""
        own = round(time.thread_time() - self._own, 6)
        model = round(getattr(_spent, "model", 0.0) - self._model, 6)
        return {CPU_SECONDS: own, **({MODEL_CPU_SECONDS: model} if model else {})}
