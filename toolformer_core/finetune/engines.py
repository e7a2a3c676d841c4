"""Who holds the weights and turns gradients into steps: PyTorch alone in one process, or DeepSpeed over many.

Both take the sum of the losses of a step's targets, divided by their number in all processes together, so that a step
is the same however its rows were dealt. An engine does not know texts, schedules or when to stop.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

import torch

from toolformer_core.errors import UsageError
from toolformer_core.extras import how_to_install
from toolformer_core.finetune.recipe import Recipe

__all__ = ["DeepSpeedEngine", "Engine", "PlainEngine", "deepspeed_config", "join"]

_ZERO3 = "zero3.json"  # the shipped DeepSpeed config
_STATE = "state.pt"


class Engine(Protocol):
    """A model in training. Every process of a run calls the same methods in the same order."""

    rank: int
    world: int
    device: torch.device
    model: Any

    def loss(self, ids: torch.Tensor, positions: torch.Tensor, weights: torch.Tensor, **more: Any) -> torch.Tensor:
        """Return the summed negative log-likelihood, in nats, of the targets of rows (B, T).

        With `forbidden`, a token's id, the model may not predict that token where it is not the target.
        """
        ...

    def backward(self, loss: torch.Tensor, last: bool) -> None:
        """Add a loss's gradients; `last` is the step's last micro-batch."""
        ...

    def step(self, learning_rate: float) -> float:
        """Clip, update and clear; return the gradients' norm before clipping."""
        ...

    def total(self, *values: float) -> list[float]:
        """Sum values over all processes."""
        ...

    def save(self, folder: Path) -> None:
        """Write what `load` needs to go on."""
        ...

    def load(self, folder: Path) -> None: ...

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the trained weights, whole, on the CPU; every process must exhaust it, and the first gets them."""
        ...


def _summed_loss(
    model: Any,
    ids: torch.Tensor,
    positions: torch.Tensor,
    weights: torch.Tensor,
    forbidden: int | None = None,
    **more: Any,
) -> Any:
    logits = model(input_ids=ids, position_ids=positions, use_cache=False, **more).logits  # (B, T, V)
    # targets move one to the left instead of logits being cut; what comes round is no target, as no first token is
    targets, counts = (torch.roll(x, -1, dims=1).flatten() for x in (ids, weights))
    each = logits.flatten(0, 1).float()
    if forbidden is not None:
        each[:, forbidden].masked_fill_(targets != forbidden, -torch.inf)
    return (torch.nn.functional.cross_entropy(each, targets, reduction="none") * counts).sum()


def _optimizer(model: Any, recipe: Recipe) -> torch.optim.Optimizer:
    trained = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.AdamW(trained, lr=recipe.learning_rate, weight_decay=recipe.weight_decay, fused=True)


class PlainEngine:
    """One process, float32 weights; with bf16 the passes run under autocast."""

    rank = 0
    world = 1

    def __init__(self, model: Any, recipe: Recipe, device: torch.device) -> None:
        self.model = model.to(device)
        self.device = device
        self._clip = recipe.clip
        self._bf16 = recipe.precision == "bf16"
        self._optimizer = _optimizer(model, recipe)

    def loss(self, ids: torch.Tensor, positions: torch.Tensor, weights: torch.Tensor, **more: Any) -> torch.Tensor:
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self._bf16):
            return _summed_loss(self.model, ids, positions, weights, **more)  # type: ignore[no-any-return]

    def backward(self, loss: torch.Tensor, last: bool) -> None:
        loss.backward()  # type: ignore[no-untyped-call]

    def step(self, learning_rate: float) -> float:
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        trained = [p for group in self._optimizer.param_groups for p in group["params"]]
        norm = torch.nn.utils.clip_grad_norm_(trained, self._clip or float("inf"))
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return float(norm)

    def total(self, *values: float) -> list[float]:
        return list(values)

    def save(self, folder: Path) -> None:
        trained = {name: p.detach() for name, p in self.model.named_parameters() if p.requires_grad}
        torch.save({"trained": trained, "optimizer": self._optimizer.state_dict()}, folder / _STATE)

    def load(self, folder: Path) -> None:
        held = torch.load(folder / _STATE, map_location=self.device, weights_only=True)
        parameters = dict(self.model.named_parameters())
        with torch.no_grad():
            for name, value in held["trained"].items():
                parameters[name].copy_(value)
        self._optimizer.load_state_dict(held["optimizer"])

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        for name, value in self.model.named_parameters():
            if value.requires_grad:
                yield name, value.detach().cpu()


def deepspeed_config(recipe: Recipe, device: torch.device, world: int) -> dict[str, Any]:
    """Return the shipped ZeRO config with the recipe's figures, and the user's own settings laid over it."""
    config = json.loads((files("toolformer_core.finetune") / _ZERO3).read_text(encoding="utf-8"))
    config["train_micro_batch_size_per_gpu"] = recipe.micro_batch
    config["train_batch_size"] = recipe.micro_batch * world  # accumulation is counted here, not by DeepSpeed
    config["bf16"] = {"enabled": recipe.precision == "bf16"}
    if recipe.precision == "bf16" and recipe.zero_stage > 0:
        # 128 gradients added up in 8 bits would lose the small ones
        config["data_types"] = {"grad_accum_dtype": "fp32"}
    config["gradient_clipping"] = recipe.clip
    config["zero_optimization"]["stage"] = recipe.zero_stage
    if device.type == "cpu":
        config["zero_optimization"]["overlap_comm"] = False
    return _laid_over(config, recipe.deepspeed)


def _laid_over(config: dict[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(config)
    for key, value in own.items():
        nested = isinstance(value, Mapping) and isinstance(out.get(key), dict)
        out[key] = _laid_over(out[key], value) if nested else value
    return out


def join(device: torch.device) -> tuple[int, int]:
    """Meet the other processes; return this one's rank and their number.

    Raises:
        UsageError: DeepSpeed is not installed.
    """
    try:
        import deepspeed
    except ImportError as exc:
        raise UsageError(f"DeepSpeed is not installed: {how_to_install('deepspeed')}") from exc
    if device.type == "cpu":
        # DeepSpeed would try every operator on the compiler and build one that sums in shared memory, for a minute or
        # two where it is not cached, and then use it in inference alone. Here nothing is compatible.
        vars(deepspeed.ops)["__compatible_ops__"] = {}
    deepspeed.init_distributed("gloo" if device.type == "cpu" else "nccl", verbose=False)
    return torch.distributed.get_rank(), torch.distributed.get_world_size()


class DeepSpeedEngine:
    """ZeRO over all processes. The model comes from `from_pretrained` under `HfDeepSpeedConfig`, thus split already."""

    def __init__(self, model: Any, recipe: Recipe, device: torch.device, config: dict[str, Any]) -> None:
        import deepspeed

        self.rank = torch.distributed.get_rank()
        self.world = torch.distributed.get_world_size()
        self.device = device
        self._stage = int(config["zero_optimization"]["stage"])
        trained = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=recipe.learning_rate, weight_decay=recipe.weight_decay)
        self._engine, self._optimizer, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
        self.model = model

    def loss(self, ids: torch.Tensor, positions: torch.Tensor, weights: torch.Tensor, **more: Any) -> torch.Tensor:
        return _summed_loss(self._engine, ids, positions, weights, **more)  # type: ignore[no-any-return]

    def backward(self, loss: torch.Tensor, last: bool) -> None:
        self._engine.set_gradient_accumulation_boundary(last)
        self._engine.backward(loss * self.world)  # DeepSpeed takes the mean over processes; we want the sum

    def step(self, learning_rate: float) -> float:
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        own = None
        if self._stage == 0:  # every process has all gradients, and DeepSpeed tells no norm in float32
            own = torch.nn.utils.get_total_norm([p.grad for p in self.model.parameters() if p.grad is not None])
        self._engine.step()
        norm = self._engine.get_global_grad_norm()
        norm = own if norm is None else norm
        return float(norm) if norm is not None else float("nan")

    def total(self, *values: float) -> list[float]:
        held = torch.tensor(values, dtype=torch.float64)
        held = held.to(self.device) if self.device.type == "cuda" else held
        torch.distributed.all_reduce(held)
        return held.tolist()

    def save(self, folder: Path) -> None:
        self._engine.save_checkpoint(str(folder), tag="zero", save_latest=False)

    def load(self, folder: Path) -> None:
        found, _ = self._engine.load_checkpoint(str(folder), tag="zero")
        if found is None:
            raise UsageError(f"{folder} holds no DeepSpeed checkpoint; remove it to begin anew")

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        import deepspeed

        for name, value in self.model.named_parameters():
            if not value.requires_grad:
                continue
            with deepspeed.zero.GatheredParameters([value], enabled=self._stage == 3):
                whole = value.detach().cpu().clone() if self.rank == 0 else torch.empty(0)
            yield name, whole
