"""The training loop: steps, development perplexity, checkpoints, events. One loop for every engine.

It says what happens as events (one JSON line each, from the first process alone) and knows nobody who reads them.
A stop is asked for by a file named `stop` in the job's folder or by SIGTERM; it comes after the step at hand, with a
checkpoint. A loss that is not finite ends the run before the weights take it.
"""

from __future__ import annotations

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
from toolformer_core.finetune.engines import Engine
from toolformer_core.finetune.events import STOP_FILE, Emit, read_events
from toolformer_core.finetune.models import link_tree, write_model
from toolformer_core.finetune.recipe import Job
from toolformer_core.finetune.texts import Piece, Rows, deal, lay_out, one_a_row, step_pieces, to_rows

__all__ = ["LossError", "Trainer"]

_WHOSE = "model.step"  # in the job's folder: which checkpoint's model lies in `model/`
_LAG_S = 60.0  # within which all processes of a run see the same files
_RATE_STEPS = 20  # steps over which speed and the time left are averaged


class LossError(ToolformerError):
    """The loss is no number any more."""


@dataclass(slots=True)
class Trainer:
    """A run at work.

    Args:
        job, folder: what to do, and the folder in which it is written down.
        engine: the model in training.
        train, dev: pieces; without `dev`, the latest checkpoint counts as the best.
    """

    job: Job
    folder: Path
    engine: Engine
    train: Sequence[Piece]
    dev: Sequence[Piece]
    emit: Emit
    packs: bool  # whether the model attends within pieces by itself (`attention.supports`)
    trigger: int | None = None  # the token that begins a call, if it is one; disabled when perplexity is measured
    stop_signal: bool = False

    def run(self) -> None:
        """Train to the end, or until asked to stop.

        Raises:
            LossError: the loss is not finite.
            UsageError: another engine wrote the last checkpoint, or processes see different ones.
        """
        recipe = self.job.recipe
        signal.signal(signal.SIGTERM, self._asked_to_stop)
        done = self._resume()
        self._say_started(done)
        self._say_missed()
        if done == 0 and self.dev:
            self._evaluate(0)
        times: deque[float] = deque(maxlen=_RATE_STEPS)
        seen: deque[int] = deque(maxlen=_RATE_STEPS)
        for step in range(done + 1, recipe.steps + 1):
            begin = time.monotonic()
            loss, norm, tokens, stop = self._step(step)
            times.append(time.monotonic() - begin)
            seen.append(tokens)
            self.emit(
                "step",
                step=step,
                loss=loss,
                learning_rate=recipe.learning_rate_at(step),
                grad_norm=norm,
                tokens=tokens,
                tokens_per_second=sum(seen) / sum(times),
                eta_s=(recipe.steps - step) * sum(times) / len(times),
                memory_bytes=_memory(self.engine.device),
            )
            if step % recipe.evaluate_every == 0 or step == recipe.steps:
                self._checkpoint(step, self._evaluate(step) if self.dev else None, whole=True)
            if stop and step < recipe.steps:
                if step % recipe.evaluate_every:
                    self._checkpoint(step, None, whole=False)
                self.emit("stopped", step=step)
                return
        self._finish()

    def _asked_to_stop(self, number: int, frame: object) -> None:
        self.stop_signal = True

    def _resume(self) -> int:
        """Load the latest checkpoint that is whole; return its step, 0 without one."""
        if self.engine.rank == 0:
            checkpoints.clear_unfinished(self.folder)
            self._lay_out()
        self.engine.total(0.0)  # the others look when that is done
        for last in reversed(self._found()):
            if not self._damaged(last):
                self._check_engine(last)
                self.engine.load(last.state(self.folder))
                return last.step
        return 0

    def _found(self) -> list[Checkpoint]:
        """Return the checkpoints with a state, once all processes see the same: a shared file system may lag."""
        until = time.monotonic() + _LAG_S
        while True:
            found = [c for c in checkpoints.checkpoints(self.folder) if c.state(self.folder).is_dir()]
            seen = [float(sum(c.step for c in found)), float(len(found))]
            own = self.engine.total(*seen) != [self.engine.world * x for x in seen]
            differ, late = self.engine.total(float(own), float(time.monotonic() > until))
            if not differ:
                return found
            if late:
                raise UsageError(
                    f"not all processes see the same checkpoints in {self.folder}: put the data folder on a file "
                    "system that all nodes share"
                )
            time.sleep(1.0)

    def _damaged(self, checkpoint: Checkpoint) -> bool:
        """Say, together, whether a checkpoint's state can no longer be gone on from, and set it aside."""
        wrong = checkpoints.damage(self.folder, checkpoint, self.engine.rank, self.engine.world)
        for line in wrong:
            print(f"checkpoint {checkpoint.name} is damaged: {line}", flush=True)  # noqa: T201
        files = int(self.engine.total(float(len(wrong)))[0])
        if files and self.engine.rank == 0:
            checkpoints.set_aside(self.folder, checkpoint)
            self.emit("damaged", step=checkpoint.step, files=files)
        return files > 0

    def _check_engine(self, last: Checkpoint) -> None:
        if (last.world, last.engine) != (self.engine.world, self._engine_name):
            raise UsageError(
                f"checkpoint {last.name} was written by {last.world} processes of {last.engine}, this run has "
                f"{self.engine.world} of {self._engine_name}: go on with the same, or remove the job's checkpoints"
            )

    @property
    def _engine_name(self) -> str:
        recipe = self.job.recipe
        name = f"deepspeed-zero{recipe.zero_stage}" if recipe.engine == "deepspeed" else recipe.engine
        return name + ("-lora" if recipe.lora is not None else "")

    def _say_started(self, done: int) -> None:
        recipe = self.job.recipe
        # under ZeRO-3 a weight's own shape is empty here, and DeepSpeed keeps its size
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
            train_tokens=sum(int(p.targets.sum()) for p in self.train),
            dev_examples=len(self.dev),
        )

    def _step(self, step: int) -> tuple[float, float, int, bool]:
        """One update. Return mean loss (nats a target), gradient norm, targets, and whether to stop."""
        recipe, engine = self.job.recipe, self.engine
        torch.manual_seed(hash((recipe.seed, step, engine.rank)) % 2**63)  # dropout goes on as if never interrupted
        pieces = [self.train[i] for i in step_pieces(len(self.train), recipe.batch, step, recipe.seed)]
        targets = sum(int(p.targets.sum()) for p in pieces)
        passes = list(self._micro_batches(pieces))
        summed = torch.zeros((), device=engine.device)
        for i, rows in enumerate(passes):
            loss = self._loss(rows)
            engine.backward(loss / targets, last=i + 1 == len(passes))
            summed += loss.detach().float()
        asked = self.stop_signal or (engine.rank == 0 and (self.folder / STOP_FILE).exists())
        nll, stop = engine.total(float(summed), float(asked))
        norm = engine.step(recipe.learning_rate_at(step)) if math.isfinite(nll) else math.nan
        if not (math.isfinite(nll) and math.isfinite(norm)):
            raise LossError(
                f"at step {step} the loss is {nll / targets}, its gradient's norm {norm}; "
                "try a smaller learning_rate or a longer warmup"
            )
        return nll / targets, norm, targets, stop > 0

    def _micro_batches(self, pieces: Sequence[Piece]) -> Any:
        recipe, engine = self.job.recipe, self.engine
        lengths = [len(p) for p in pieces]
        laid = lay_out(lengths, recipe.sequence_length) if recipe.packing else one_a_row(lengths)
        for rows in deal(laid, engine.rank, engine.world, recipe.micro_batch):
            yield to_rows([[pieces[i] for i in row] for row in rows])

    def _loss(self, rows: Rows, **more: Any) -> torch.Tensor:
        ids, positions, weights = (torch.from_numpy(x) for x in (rows.ids, rows.positions, rows.weights))
        device = self.engine.device
        if self.packs and (layout := attention.layout_of(positions)) is not None:
            more["layout"] = layout.to(device)
        return self.engine.loss(ids.to(device), positions.to(device), weights.to(device), **more)

    def _evaluate(self, step: int) -> float:
        """Return the development set's perplexity with calls disabled: p(" [") = 0 where the text has no such token."""
        begin = time.monotonic()
        model = self.engine.model
        model.eval()
        summed = torch.zeros((), device=self.engine.device, dtype=torch.float64)
        with torch.no_grad():
            for rows in self._micro_batches(self.dev):
                summed += self._loss(rows, forbidden=self.trigger).double()
        model.train()
        nll = self.engine.total(float(summed))[0]
        targets = sum(int(p.targets.sum()) for p in self.dev)
        loss = nll / targets
        perplexity = math.exp(loss) if loss < 700 else math.inf
        seconds = time.monotonic() - begin
        self.emit("evaluated", step=step, loss=loss, perplexity=perplexity, tokens=targets, seconds=seconds)
        return perplexity

    def _checkpoint(self, step: int, perplexity: float | None, *, whole: bool) -> None:
        """Write a checkpoint; with `whole`, the consolidated model too."""
        written = Checkpoint(step, self.engine.world, self._engine_name, perplexity)
        place = checkpoints.unfinished(self.folder, written)
        if self.engine.rank == 0:
            (place / "state").mkdir(parents=True, exist_ok=True)
        self.engine.total(0.0)  # nobody writes before the folder is there
        self.engine.save(place / "state")
        if whole:
            write_model(self.engine.weights(), self.job.model, self.job.recipe, self.engine.rank, place / "model")
        self.engine.total(0.0)  # ... and it has no name before everybody has written
        if self.engine.rank == 0:
            checkpoints.complete(self.folder, written)
            self._lay_out()
            checkpoints.retain(self.folder, self.job.recipe.keep)
            self._say_saved(written)

    def _lay_out(self) -> None:
        """Lay the best checkpoint's model where the run's model is to be."""
        best = checkpoints.best(self.folder)
        model, note = self.folder / "model", self.folder / _WHOSE
        if best is not None and not (model.is_dir() and note.is_file() and note.read_text() == best.name):
            link_tree(best.model(self.folder), model)
            note.write_text(best.name)

    def _say_saved(self, written: Checkpoint) -> None:
        best = checkpoints.best(self.folder)
        where = written.folder(self.folder).relative_to(self.folder).as_posix()
        whole = written.model(self.folder).is_dir()
        self.emit(
            "saved",
            step=written.step,
            checkpoint=where,
            model=f"{where}/model" if whole else None,
            perplexity=written.perplexity,
            best=best is not None and best.step == written.step,
        )

    def _say_missed(self) -> None:
        """Tell of checkpoints that a run completed and was killed before it could say so."""
        if self.engine.rank == 0:
            told = {e["step"] for e in read_events(self.folder)[0] if e["event"] == "saved"}
            for written in checkpoints.checkpoints(self.folder):
                if written.step not in told:
                    self._say_saved(written)

    def _finish(self) -> None:
        if self.engine.rank == 0:
            best = checkpoints.best(self.folder)
            self.emit(
                "finished",
                step=self.job.recipe.steps,
                best_step=None if best is None else best.step,
                best_perplexity=None if best is None else best.perplexity,
                model="model",
            )


def _memory(device: torch.device) -> int:
    """Return the peak memory of this process so far, in bytes: the GPU's, else the process's own."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # bytes there, kilobytes elsewhere
