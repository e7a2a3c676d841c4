"""The embedded model, broken on purpose: each in one place, so that it is known which step a diagnosis has to name."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import normalizers
from transformers import AutoModelForCausalLM, AutoTokenizer

from toolformer_core.config import TOOL_NAMES
from toolformer_core.embedded import MODEL
from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.prompts.load import load_prompt


def _parts() -> tuple[Any, Any]:
    return AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32), AutoTokenizer.from_pretrained(MODEL)


def _lm(model: Any, tokenizer: Any, name: str) -> TransformersLM:
    return TransformersLM(model.eval().requires_grad_(False), tokenizer, name=name, digest=name)


def whole() -> TransformersLM:
    """As it is shipped."""
    return _lm(*_parts(), "whole")


def random_weights() -> TransformersLM:
    """Weights as before training, the tokenizer its own."""
    model, tokenizer = _parts()
    torch.manual_seed(0)
    return _lm(AutoModelForCausalLM.from_config(model.config), tokenizer, "random")


def merged() -> TransformersLM:
    """A tokenizer with a token for " [" and each tool's name together; its row of the embedding is the mean of all."""
    model, tokenizer = _parts()
    tokenizer.add_tokens([f" [{name}(" for name in TOOL_NAMES.values()])
    mean = model.get_input_embeddings().weight.detach().mean(0)
    old = model.get_input_embeddings().weight.shape[0]
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    with torch.no_grad():
        model.get_input_embeddings().weight[old:] = mean
    return _lm(model, tokenizer, "merged")


def blind() -> TransformersLM:
    """Sees filling in place of a call that stands before a text; a prompt, and so its demonstrations, it sees whole."""
    model, tokenizer = _parts()
    lm = _lm(model, tokenizer, "blind")
    trigger = lm.hf_model.trigger

    def hide(module: Any, args: Any, given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        rows = given["input_ids"].clone()
        for row in rows:
            if row[1 : 1 + len(trigger)].tolist() == trigger:
                closed = next(j for j in range(1, len(row)) if "]" in tokenizer.decode(row[j : j + 1]))
                row[1 : closed + 1] = row[0]
        return args, {**given, "input_ids": rows}

    model.model.register_forward_pre_hook(hide, with_kwargs=True)
    return lm


def losing(normalizer: normalizers.Normalizer) -> TransformersLM:
    """A tokenizer that changes what it reads."""
    model, tokenizer = _parts()
    tokenizer.backend_tokenizer.normalizer = normalizer
    return _lm(model, tokenizer, "losing")


def prompts_without_demonstrations(folder: Path) -> Path:
    """Write the first sentence of the shipped prompts, and no call for the model to see."""
    folder.mkdir()
    for tool in TOOL_NAMES:
        head = load_prompt(tool).head.split(" A call is written")[0]
        (folder / f"{tool}.txt").write_text(f"{head}\n\nInput: {{text}}\nOutput:\n", encoding="utf-8")
    return folder
