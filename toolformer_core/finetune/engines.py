"""Training engines hold the weights and apply gradients: PyTorch alone in one process, or DeepSpeed over many.

Both use the sum of the losses of a step's targets, divided by the number of targets in all processes.
"""

import json
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch

from toolformer_core.errors import UsageError
from toolformer_core.extras import how_to_install
from toolformer_core.finetune.recipe import Recipe

_ZERO3 = "zero3.json"  # the shipped DeepSpeed config
_STATE = "state.pt"


def _summed_loss(model: Any, ids: Any, positions: Any, weights: Any, forbidden: int | None = None, **more: Any) -> Any:
    logits = model(input_ids=ids, position_ids=positions, use_cache=False, **more).logits  # (B, T, V)
    # Targets are rolled to the left instead of slicing the logits; the first token, which wraps around, is no target.
    targets, counts = (torch.roll(x, -1, dims=1).flatten() for x in (ids, weights))
    flat = logits.flatten(0, 1).float()
    if forbidden is not None:
        flat[:, forbidden].masked_fill_(targets != forbidden, -torch.inf)
    return (torch.nn.functional.cross_entropy(flat, targets, reduction="none") * counts).sum()


def _trained(model: Any) -> list[torch.nn.Parameter]:
    return [p for p in model.parameters() if p.requires_grad]


def _optimizer(model: Any, recipe: Recipe, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(_trained(model), lr=recipe.learning_rate, weight_decay=recipe.weight_decay, **options)


class PlainEngine:
    """A model in training, in one process, with float32 weights; with bf16 the passes run under autocast."""

    rank = 0
    world = 1

    def __init__(self, model: Any, recipe: Recipe, device: torch.device) -> None:
        self.model = model.to(device)
        self.device = device
        self._clip = recipe.clip
        self._bf16 = recipe.precision == "bf16"
        self._optimizer = _optimizer(self.model, recipe, fused=True)

    def loss(self, ids: torch.Tensor, positions: torch.Tensor, weights: torch.Tensor, **more: Any) -> torch.Tensor:
        """Return the summed negative log-likelihood, in nats, of the targets of rows (B, T).

        With `forbidden` (a token id), that token gets probability 0 wherever it is not the target.
        """
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self._bf16):
            return _summed_loss(self.model, ids, positions, weights, **more)  # type: ignore[no-any-return]

    def backward(self, loss: torch.Tensor, last: bool) -> None:
        """Add the gradients of a loss; `last` marks the last micro-batch of a step."""
        loss.backward()  # type: ignore[no-untyped-call]

    def step(self, learning_rate: float) -> float:
        """Clip the gradients, update the weights and clear the gradients; return the norm before clipping."""
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        norm = torch.nn.utils.clip_grad_norm_(_trained(self.model), self._clip or float("inf"))
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return float(norm)

    def total(self, *values: float) -> list[float]:
        return list(values)

    def save(self, folder: Path) -> None:
        trained = {name: p.detach() for name, p in self.model.named_parameters() if p.requires_grad}
        torch.save({"trained": trained, "optimizer": self._optimizer.state_dict()}, folder / _STATE)

    def load(self, folder: Path) -> None:
        state = torch.load(folder / _STATE, map_location=self.device, weights_only=True)
        parameters = dict(self.model.named_parameters())
        with torch.no_grad():
            for name, value in state["trained"].items():
                parameters[name].copy_(value)
        self._optimizer.load_state_dict(state["optimizer"])

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the complete trained weights, on the CPU; every process must exhaust this, only the first gets them."""
        for name, value in self.model.named_parameters():
            if value.requires_grad:
                yield name, value.detach().cpu()


def _deepspeed_config(recipe: Recipe, device: torch.device) -> dict[str, Any]:
    """Return the shipped ZeRO config with the recipe's values, overridden by the user's own settings."""
    config = json.loads((files("toolformer_core.finetune") / _ZERO3).read_text(encoding="utf-8"))
    config["train_micro_batch_size_per_gpu"] = recipe.micro_batch
    # the loop counts accumulation, not DeepSpeed
    config["train_batch_size"] = recipe.micro_batch * torch.distributed.get_world_size()
    config["bf16"] = {"enabled": recipe.precision == "bf16"}
    if recipe.precision == "bf16" and recipe.zero_stage > 0:
        # summing 128 gradients with bfloat16's 8 bits would lose the small ones
        config["data_types"] = {"grad_accum_dtype": "fp32"}
    config["gradient_clipping"] = recipe.clip
    config["zero_optimization"]["stage"] = recipe.zero_stage
    if device.type == "cpu":
        config["zero_optimization"]["overlap_comm"] = False
    return _merged(config, recipe.deepspeed)


def _merged(config: dict[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(config)
    for key, value in overrides.items():
        nested = isinstance(value, Mapping) and isinstance(out.get(key), dict)
        out[key] = _merged(out[key], value) if nested else value
    return out


def join_processes(recipe: Recipe, device: torch.device) -> dict[str, Any]:
    """Connect to the other processes; return DeepSpeed's config for all of them; a UsageError without DeepSpeed."""
    try:
        import deepspeed
    except ImportError as exc:
        raise UsageError(f"DeepSpeed is not installed: {how_to_install('deepspeed')}") from exc
    if device.type == "cpu":
        # DeepSpeed would test every operator with the compiler and build one for sums in shared memory. If that is not
        # cached, it takes a minute or two, and it is only used for inference. So no operator is declared compatible.
        vars(deepspeed.ops)["__compatible_ops__"] = {}
    deepspeed.init_distributed("gloo" if device.type == "cpu" else "nccl", verbose=False)
    return _deepspeed_config(recipe, device)


class DeepSpeedEngine:
    """ZeRO over all processes. `from_pretrained` under `HfDeepSpeedConfig` has already partitioned the model."""

    def __init__(self, model: Any, recipe: Recipe, device: torch.device, config: dict[str, Any]) -> None:
        import deepspeed

        self.rank = torch.distributed.get_rank()
        self.world = torch.distributed.get_world_size()
        self.device = device
        self._stage = int(config["zero_optimization"]["stage"])
        self._engine, self._optimizer, _, _ = deepspeed.initialize(
            model=model, optimizer=_optimizer(model, recipe), config=config
        )
        self.model = model

    def loss(self, ids: torch.Tensor, positions: torch.Tensor, weights: torch.Tensor, **more: Any) -> torch.Tensor:
        return _summed_loss(self._engine, ids, positions, weights, **more)  # type: ignore[no-any-return]

    def backward(self, loss: torch.Tensor, last: bool) -> None:
        self._engine.set_gradient_accumulation_boundary(last)
        self._engine.backward(loss * self.world)  # DeepSpeed averages over processes; the sum is needed

    def step(self, learning_rate: float) -> float:
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        local_norm = None
        if self._stage == 0:  # every process has all gradients, and in float32 DeepSpeed returns no norm
            local_norm = torch.nn.utils.get_total_norm([p.grad for p in self.model.parameters() if p.grad is not None])
        self._engine.step()
        norm = self._engine.get_global_grad_norm()
        norm = local_norm if norm is None else norm
        return float("nan" if norm is None else norm)

    def total(self, *values: float) -> list[float]:
        sums = torch.tensor(values, dtype=torch.float64)
        sums = sums.to(self.device) if self.device.type == "cuda" else sums
        torch.distributed.all_reduce(sums)
        return sums.tolist()

    def save(self, folder: Path) -> None:
        self._engine.save_checkpoint(str(folder), tag="zero", save_latest=False)

    def load(self, folder: Path) -> None:
        loaded, _ = self._engine.load_checkpoint(str(folder), tag="zero")
        if loaded is None:
            raise UsageError(f"{folder} holds no DeepSpeed checkpoint; remove it to start again")

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        import deepspeed

        for name, value in self.model.named_parameters():
            if value.requires_grad:
                with deepspeed.zero.GatheredParameters([value], enabled=self._stage == 3):
                    whole = value.detach().cpu().clone() if self.rank == 0 else torch.empty(0)
                yield name, whole


TrainingEngine = PlainEngine | DeepSpeedEngine
