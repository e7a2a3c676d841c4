"""The training loop: steps, development perplexity, checkpoints, events; the same for all engines.

A file named `stop` in the job's folder, or SIGTERM, stops it after the current step, with a checkpoint.
"""

import math
import signal
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from toolformer_core.errors import ToolformerError, UsageError
from toolformer_core.finetune import attention, checkpoints
from toolformer_core.finetune.checkpoints import Checkpoint
from toolformer_core.finetune.engines import TrainingEngine
from toolformer_core.finetune.events import STOP_FILE, Emit, read_events
from toolformer_core.finetune.models import link_tree, write_model
from toolformer_core.finetune.recipe import Job
from toolformer_core.finetune.texts import MicroBatch, Piece, batches_of, step_pieces

_BEST_NOTE = "model.step"  # in the job's folder: the name of the checkpoint whose model is in `model/`
_LAG_S = 60.0  # after this time all processes of a run must see the same files
_RATE_STEPS = 20  # steps over which speed and the time left are averaged


class LossError(ToolformerError):
    """The loss is not finite."""


@dataclass(slots=True)
class Trainer:
    job: Job
    folder: Path  # of the job
    engine: TrainingEngine
    train: Sequence[Piece]
    dev: Sequence[Piece]  # without any, the latest checkpoint counts as the best
    emit: Emit
    packs: bool  # whether the model attends within pieces (`attention.supports`)
    trigger: int | None = None  # the token that starts a call, if it is a single one; disabled in evaluations
    stop_signal: bool = False  # whether SIGTERM has been received

    def run(self) -> None:
        """Train to the end, or until a stop is requested; a LossError, or a UsageError for an unusable checkpoint."""
        recipe = self.job.recipe
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "stop_signal", True))
        done = self._resume()
        self._emit_started(done)
        self._emit_unreported()
        if done == 0 and self.dev:
            self._evaluate(0)
        recent: deque[tuple[float, int]] = deque(maxlen=_RATE_STEPS)  # seconds and tokens
        for step in range(done + 1, recipe.steps + 1):
            begin = time.monotonic()
            loss, norm, tokens, stop = self._step(step)
            recent.append((time.monotonic() - begin, tokens))
            seconds = sum(s for s, _ in recent)
            facts = {"learning_rate": recipe.learning_rate_at(step), "grad_norm": norm, "tokens": tokens}
            facts["tokens_per_second"] = sum(n for _, n in recent) / seconds
            facts["eta_s"] = (recipe.steps - step) * seconds / len(recent)
            self.emit("step", step=step, loss=loss, **facts, memory_bytes=_memory(self.engine.device))
            if step % recipe.evaluate_every == 0 or step == recipe.steps:
                self._checkpoint(step, self._evaluate(step) if self.dev else None, whole=True)
            if stop and step < recipe.steps:
                if step % recipe.evaluate_every:
                    self._checkpoint(step, None, whole=False)
                self.emit("stopped", step=step)
                return
        best = checkpoints.best(self.folder) if self.engine.rank == 0 else None
        found = {"best_step": best and best.step, "best_perplexity": best and best.perplexity}
        self.emit("finished", step=recipe.steps, **found, model="model")

    def _resume(self) -> int:
        if self.engine.rank == 0:
            checkpoints.clear_unfinished(self.folder)
            self._publish_best()
        self.engine.total(0.0)  # the other processes wait until that is done
        last = next((c for c in reversed(self._visible_checkpoints()) if not self._is_damaged(c)), None)
        if last is None:
            return 0
        if (last.world, last.engine) != (self.engine.world, self._engine_name):
            raise UsageError(
                f"checkpoint {last.name} was written by {last.world} processes of {last.engine}, but this run "
                f"has {self.engine.world} of {self._engine_name}: use the same, or remove the job's checkpoints"
            )
        self.engine.load(last.state(self.folder))
        return last.step

    def _visible_checkpoints(self) -> list[Checkpoint]:
        """Return the checkpoints with a state once all processes see the same ones; a shared file system may lag."""
        until = time.monotonic() + _LAG_S
        while True:
            visible = [c for c in checkpoints.checkpoints(self.folder) if c.state(self.folder).is_dir()]
            summary = [float(sum(c.step for c in visible)), float(len(visible))]
            differs_here = self.engine.total(*summary) != [self.engine.world * x for x in summary]
            differ, late = self.engine.total(float(differs_here), float(time.monotonic() > until))
            if not differ:
                return visible
            if late:
                raise UsageError(
                    f"not all processes see the same checkpoints in {self.folder}: put the data folder on a file "
                    "system that all nodes share"
                )
            time.sleep(1.0)

    def _is_damaged(self, checkpoint: Checkpoint) -> bool:
        """Check a checkpoint's state, all processes together; set it aside if it is damaged."""
        problems = checkpoints.find_damage(self.folder, checkpoint, self.engine.rank, self.engine.world)
        for line in problems:
            print(f"checkpoint {checkpoint.name} is damaged: {line}", flush=True)  # noqa: T201
        files = int(self.engine.total(float(len(problems)))[0])
        if files and self.engine.rank == 0:
            checkpoints.set_aside(self.folder, checkpoint)
            self.emit("damaged", step=checkpoint.step, files=files)
        return files > 0

    @property
    def _engine_name(self) -> str:
        recipe = self.job.recipe
        name = f"deepspeed-zero{recipe.zero_stage}" if recipe.engine == "deepspeed" else recipe.engine
        return name + ("-lora" if recipe.lora is not None else "")

    def _emit_started(self, done: int) -> None:
        recipe = self.job.recipe
        # under ZeRO-3 a weight is empty here, and DeepSpeed keeps its size in `ds_numel`
        sizes = [(int(getattr(p, "ds_numel", p.numel())), p.requires_grad) for p in self.engine.model.parameters()]
        self.emit(
            "started",
            world_size=self.engine.world,
            engine=recipe.engine,
            zero_stage=recipe.zero_stage if recipe.engine == "deepspeed" else None,
            precision=recipe.precision,
            device=self.engine.device.type,
            packing=recipe.packing,
            packed_attention=self.packs,
            parameters=sum(n for n, _ in sizes),
            trainable=sum(n for n, trained in sizes if trained),
            from_step=done,
            steps=recipe.steps,
            train_examples=len(self.train),
            train_tokens=_targets(self.train),
            dev_examples=len(self.dev),
        )

    def _step(self, step: int) -> tuple[float, float, int, bool]:
        """Do one update; return the mean loss (nats per target), the gradient norm, the targets, whether to stop."""
        recipe, engine = self.job.recipe, self.engine
        torch.manual_seed(hash((recipe.seed, step, engine.rank)) % 2**63)  # the same dropout after a restart
        pieces = [self.train[i] for i in step_pieces(len(self.train), recipe.batch, step, recipe.seed)]
        targets = _targets(pieces)
        batches = list(batches_of(pieces, recipe, engine.rank, engine.world))
        summed = torch.zeros((), device=engine.device)
        for i, batch in enumerate(batches):
            loss = self._loss(batch)
            engine.backward(loss / targets, last=i + 1 == len(batches))
            summed += loss.detach().float()
        requested = self.stop_signal or (engine.rank == 0 and (self.folder / STOP_FILE).exists())
        nll, stop = engine.total(float(summed), float(requested))
        norm = engine.step(recipe.learning_rate_at(step)) if math.isfinite(nll) else math.nan
        if not (math.isfinite(nll) and math.isfinite(norm)):
            raise LossError(
                f"at step {step} the loss is {nll / targets} and its gradient's norm {norm}; "
                "try a smaller learning_rate or a longer warmup"
            )
        return nll / targets, norm, targets, stop > 0

    def _loss(self, batch: MicroBatch, **options: Any) -> torch.Tensor:
        ids, positions, weights = (torch.from_numpy(x) for x in (batch.ids, batch.positions, batch.weights))
        device = self.engine.device
        if self.packs and (layout := attention.layout_of(positions)) is not None:
            options["layout"] = layout.to(device)
        return self.engine.loss(ids.to(device), positions.to(device), weights.to(device), **options)

    def _evaluate(self, step: int) -> float:
        """Return the perplexity of the development set with calls disabled: p(" [") = 0 unless it is the target."""
        begin = time.monotonic()
        self.engine.model.eval()
        summed = torch.zeros((), device=self.engine.device, dtype=torch.float64)
        with torch.no_grad():
            for batch in batches_of(self.dev, self.job.recipe, self.engine.rank, self.engine.world):
                summed += self._loss(batch, forbidden=self.trigger).double()
        self.engine.model.train()
        targets = _targets(self.dev)
        loss = self.engine.total(float(summed))[0] / targets
        perplexity = math.exp(loss) if loss < 700 else math.inf
        seconds = time.monotonic() - begin
        self.emit("evaluated", step=step, loss=loss, perplexity=perplexity, tokens=targets, seconds=seconds)
        return perplexity

    def _checkpoint(self, step: int, perplexity: float | None, *, whole: bool) -> None:
        """Write a checkpoint; with `whole`, also the complete model."""
        checkpoint = Checkpoint(step, self.engine.world, self._engine_name, perplexity)
        folder = checkpoints.unfinished(self.folder, checkpoint)
        if self.engine.rank == 0:
            (folder / "state").mkdir(parents=True, exist_ok=True)
        self.engine.total(0.0)  # no process writes before the folder exists
        self.engine.save(folder / "state")
        if whole:
            write_model(self.engine.weights(), self.job.model, self.job.recipe, self.engine.rank, folder / "model")
        self.engine.total(0.0)  # the folder gets its name after all processes have written
        if self.engine.rank == 0:
            checkpoints.complete(self.folder, checkpoint)
            self._publish_best()
            checkpoints.prune(self.folder, self.job.recipe.keep)
            self._emit_saved(checkpoint)

    def _publish_best(self) -> None:
        best = checkpoints.best(self.folder)
        model, note = self.folder / "model", self.folder / _BEST_NOTE
        if best is not None and not (model.is_dir() and note.is_file() and note.read_text() == best.name):
            link_tree(best.model(self.folder), model)
            note.write_text(best.name)

    def _emit_saved(self, checkpoint: Checkpoint) -> None:
        best = checkpoints.best(self.folder)
        path = checkpoint.folder(self.folder).relative_to(self.folder).as_posix()
        model = f"{path}/model" if checkpoint.model(self.folder).is_dir() else None
        facts = {"step": checkpoint.step, "checkpoint": path, "model": model, "perplexity": checkpoint.perplexity}
        self.emit("saved", **facts, best=best is not None and best.step == checkpoint.step)

    def _emit_unreported(self) -> None:
        """Report checkpoints that a run completed before it was killed, and could not report."""
        reported = {e["step"] for e in read_events(self.folder)[0] if e["event"] == "saved"}
        for checkpoint in checkpoints.checkpoints(self.folder) if self.engine.rank == 0 else ():
            if checkpoint.step not in reported:
                self._emit_saved(checkpoint)


def _targets(pieces: Sequence[Piece]) -> int:
    return sum(int(piece.targets.sum()) for piece in pieces)


def _memory(device: torch.device) -> int:
    """Return the peak memory of this process so far, in bytes: on the GPU if there is one, else its resident memory."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    import resource

    unit = 1 if sys.platform == "darwin" else 1024  # bytes on macOS, kilobytes elsewhere
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
