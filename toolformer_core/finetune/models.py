"""Loads the model of a training run for its engine, and writes the complete trained model.

The result can be read by `from_pretrained`: tied weights stored once, adapters merged.
"""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from toolformer_core.errors import UsageError
from toolformer_core.extras import how_to_install
from toolformer_core.finetune import attention
from toolformer_core.finetune.engines import DeepSpeedEngine, PlainEngine, TrainingEngine, join_processes
from toolformer_core.finetune.recipe import LoraRecipe, Recipe
from toolformer_core.lm.load import load_parts, model_folder


def build_engine(model: str, recipe: Recipe, device: torch.device) -> tuple[TrainingEngine, Any]:
    torch.manual_seed(recipe.seed)
    folder = model_folder(model)
    if recipe.engine == "plain":
        loaded, tokenizer = load_parts(folder, model, dtype=torch.float32)
        return PlainEngine(_prepare(loaded, recipe), recipe, device), tokenizer
    from transformers.integrations.deepspeed import HfDeepSpeedConfig

    config = join_processes(recipe, device)  # before `from_pretrained`, which partitions the weights under ZeRO-3
    zero_context: Any = HfDeepSpeedConfig(config)  # type: ignore[no-untyped-call]  # must exist during loading
    dtype = torch.bfloat16 if recipe.precision == "bf16" else torch.float32
    loaded, tokenizer = load_parts(folder, model, dtype=dtype)
    del zero_context
    return DeepSpeedEngine(_prepare(loaded, recipe), recipe, device, config), tokenizer


def _prepare(model: Any, recipe: Recipe) -> Any:
    model.train()
    if attention.supports(model, recipe.sequence_length):  # for unpacked rows, too: right-padded, they need no mask
        model.config.get_text_config()._attn_implementation = attention.PACKED
    if recipe.gradient_checkpointing:
        model.activation_checkpointing_enable()
    if recipe.lora is None:
        return model
    if recipe.gradient_checkpointing:
        model.enable_input_require_grads()
    return _with_adapters(model, recipe.lora)


def _with_adapters(model: Any, lora: LoraRecipe) -> Any:
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as exc:
        raise UsageError(f"LoRA needs peft: {how_to_install('lora')}") from exc
    layers, alpha = list(lora.targets) or "all-linear", lora.alpha
    config = LoraConfig(
        r=lora.rank, lora_alpha=alpha, lora_dropout=lora.dropout, target_modules=layers, task_type="CAUSAL_LM"
    )
    try:
        return get_peft_model(model, config)
    except ValueError as exc:
        raise UsageError(f"lora.targets: {str(exc).splitlines()[0]}") from exc


def write_model(weights: Iterable[tuple[str, torch.Tensor]], model: str, recipe: Recipe, rank: int, out: Path) -> None:
    """Write the complete trained model, with the config and tokenizer of the first one. Every process calls this."""
    state = {name: value for name, value in weights if rank == 0}
    if rank != 0:
        return
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    from transformers.integrations.deepspeed import unset_hf_deepspeed_config

    # from here on only this process loads and writes, without partitioning
    unset_hf_deepspeed_config()  # type: ignore[no-untyped-call]
    folder = model_folder(model)
    if recipe.lora is not None:
        whole, _ = load_parts(folder, model, dtype=next(iter(state.values())).dtype)
        adapted = _with_adapters(whole, recipe.lora)
        unexpected = adapted.load_state_dict(state, strict=False).unexpected_keys
        if unexpected:
            raise UsageError(f"the adapters' weights do not fit the model {model!r} (e.g. {unexpected[0]})")
        adapted.merge_and_unload().save_pretrained(out)
    else:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        config.dtype = next(iter(state.values())).dtype
        with torch.device("meta"):
            shape = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
        shape.save_pretrained(out, state_dict=state)
    AutoTokenizer.from_pretrained(folder, local_files_only=True).save_pretrained(out)


def link_tree(source: Path, target: Path) -> None:
    """Replace `target` by the files of `source`, as hard links if the file system supports them, else as copies."""

    def link(a: str, b: str) -> None:
        try:
            os.link(a, b)
        except OSError:
            shutil.copy2(a, b)

    new = target.with_name(target.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    shutil.copytree(source, new, copy_function=link)
    shutil.rmtree(target, ignore_errors=True)
    new.rename(target)
