"""The arithmetic of a finetuning on C*: tokens, FLOPs, hours on the cards, and what has to fit into their memory.

    texts      min(max_examples, documents x examples) of each tool
    tokens     steps x batch x tokens of a text (at most sequence_length)
    FLOPs      three forward passes a token: one forward, two backward; a fourth if activations are computed again
    memory     ZeRO-3 shares 16 bytes a weight among the cards: bf16 weights and gradients, float32 weights, two moments

The recipe is the paper's (Toolformer, App. B) unless it is given. This module does not know what an hour costs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from flows.cost.assumptions import ASSUMED, CONFIG, PAPER
from flows.cost.basis import Basis

__all__ = ["TrainingCost", "training_cost"]

_BYTES_A_WEIGHT = 16.0
_BYTES_A_SAVED_WEIGHT = 14.0  # without gradients


@dataclass(frozen=True, slots=True)
class TrainingCost:
    """What finetuning costs, and the measurements of perplexity within it."""

    texts: float  # in C*, at most
    text_tokens: float  # of one of them
    corpus_tokens: float  # of C*
    steps: float
    trained_tokens: float
    passes: float  # over C*
    dev_tokens: float  # of all measurements of perplexity
    gpu_hours: float  # of one card, at work; without a card, 0
    cpu_hours: float  # of one core; with a card, 0
    hours: float  # on the clock
    checkpoint_bytes: float  # of one resumable checkpoint
    memory_gb: float  # of weights, gradients and optimiser, per card
    fits: bool | None  # whether that fits a card's memory; None: without a card, or its memory is not known


def training_cost(basis: Basis) -> TrainingCost:
    """Return what finetuning the planned model on the planned C* costs."""
    lines, query, shape = basis.assumptions, basis.query, basis.shape
    recipe = "Toolformer, App. B; the default of toolformer finetune"
    steps = lines.add("steps", 2000, "steps", PAPER, recipe)
    batch = lines.add("batch", 128, "texts", PAPER, recipe)
    length = lines.add("sequence_length", 1024, "tokens", PAPER, recipe, positive=True)
    every = lines.add("evaluate_every", 500, "steps", PAPER, recipe, positive=True)
    dev = lines.add("dev_documents", 1000, "documents", PAPER, recipe)
    forwards = lines.add(
        "training_passes",
        4,
        "forward passes",
        CONFIG,
        "forward, backward, and activations computed again (profile gpu)",
    )
    mfu = lines.add(
        "training_mfu",
        0.35,
        "share",
        ASSUMED,
        "of the card's bf16 rate, repeated activations counted as work; ZeRO-3 over a fast network",
        positive=True,
    )
    texts = sum(min(query.max_examples, query.documents * tool.examples) for tool in basis.tools)
    text_tokens = min(length, basis.text_tokens + basis.single("call_tokens"))
    trained = steps * batch * text_tokens
    dev_tokens = (1 + math.ceil(steps / every)) * dev * min(length, basis.text_tokens)
    flops = shape.flops_per_token(text_tokens / 2) * (forwards * trained + dev_tokens)
    gpu_hours = cpu_hours = 0.0
    if query.gpu:
        gpu_hours = flops / (1e12 * basis.tflops * mfu) / 3600
        hours = gpu_hours / query.gpu_count
    else:
        cpu_hours = flops / (1e9 * basis.single("cpu_gflops") * basis.single("cpu_mfu")) / 3600
        hours = cpu_hours / query.workers
    memory = _BYTES_A_WEIGHT * shape.parameters / (query.gpu_count if query.gpu else 1) / 1e9
    return TrainingCost(
        texts=texts,
        text_tokens=text_tokens,
        corpus_tokens=texts * text_tokens,
        steps=steps,
        trained_tokens=trained,
        passes=steps * batch / texts if texts else 0.0,
        dev_tokens=dev_tokens,
        gpu_hours=gpu_hours,
        cpu_hours=cpu_hours,
        hours=hours,
        checkpoint_bytes=_BYTES_A_SAVED_WEIGHT * shape.parameters,
        memory_gb=memory,
        fits=memory < basis.memory if basis.memory else None,
    )
