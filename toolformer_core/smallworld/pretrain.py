"""Train the embedded tokenizer and language model from nothing: `python -m toolformer_core.smallworld.pretrain`.

A Llama shape small enough for two CPU cores, a byte-level BPE that splits digits, and the texts of `lessons`. The
recipe is the same on a GPU, only faster. It knows nothing of the five tools; see `lessons` for what it must not know.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from toolformer_core.errors import UsageError
from toolformer_core.records import digest_of
from toolformer_core.smallworld.lessons import lessons
from toolformer_core.smallworld.muon import Muon
from toolformer_core.smallworld.qk_clip import QKClip
from toolformer_core.smallworld.unfinished import Reached, Unfinished

__all__ = ["lessons_digest", "main", "pretrain", "rare_pieces", "train_tokenizer"]

END = "<|end|>"
_FACTS = "pretraining.json"  # written last
_RARE = 1e-5  # of all tokens read
_KEPT = 0.05  # of a run, between two states kept
_WORDS = r"'(?:s|t|re|ve|m|ll|d)| ?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def train_tokenizer(seed: int = 0, texts: int = 20_000, vocabulary: int = 2_048) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE in which every digit is a token and " [" is one too."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(itertools.islice(lessons(seed), texts), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token=END, eos_token=END)  # type: ignore[no-untyped-call]


def rare_pieces(tokenizer: PreTrainedTokenizerFast, texts: int = 2_000) -> list[str]:
    """Return the tokens of two and more letters inside words that a text hardly has, in order.

    A merge that is a step to a longer one leaves such a token. It would stay as it was initialised, and yet be needed
    where a prompt has a word that pretraining had not: two of three models pretrained so could not copy "Calendar".
    """
    encoded = tokenizer(list(itertools.islice(lessons(0), texts)), add_special_tokens=False)["input_ids"]
    read = Counter(itertools.chain(*encoded))
    rare = read.total() * _RARE
    vocabulary = tokenizer.get_vocab()
    return sorted(t for t, i in vocabulary.items() if re.fullmatch("[A-Za-z]{2,}", t) and read[i] < rare)


def lessons_digest(seed: int) -> str:
    """Return the digest of a seed's lessons, whatever the tokenizer: it changes when the code that writes them does."""
    return digest_of(*itertools.islice(lessons(seed + 1), 64))[:16]


def _batches(
    tokenizer: PreTrainedTokenizerFast, texts: Iterator[str], rows: int, length: int
) -> Iterator[torch.Tensor]:
    """Yield packed batches (rows, length): texts one after another, each behind the end-of-text token."""
    end = tokenizer.bos_token_id
    buffer: list[int] = []
    while True:
        while len(buffer) < rows * length:
            for ids in tokenizer(list(itertools.islice(texts, 64)), add_special_tokens=False)["input_ids"]:
                buffer += (end, *ids)
        yield torch.tensor(buffer[: rows * length]).view(rows, length)
        del buffer[: rows * length]


@contextmanager
def _denormals_flushed() -> Iterator[None]:
    """Where attention is sharp, its small weights are denormal, and took half of a step."""
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)  # the process may have other work, which counts on them


@_denormals_flushed()
def pretrain(
    out: Path,
    *,
    minutes: float,
    tokens: int | None = None,
    seed: int = 0,
    hidden: int = 256,
    layers: int = 6,
    length: int = 640,
    rows: int = 16,
    learning_rate: float = 3e-3,
    muon: float | None = 0.02,
    logit_limit: float = 50.0,
    device: str = "cpu",
    start: Path | None = None,
    average: bool = False,
) -> float:
    """Train for `minutes` of wall time and save model and tokenizer to `out`.

    It can be stopped: called again with the same arguments, it goes on from the last twentieth that was finished.

    Args:
        tokens: train on so many instead, however long it takes: runs on different machines can be compared.
        hidden, layers: the Llama shape; heads of 64.
        length, rows: tokens a packed row, and rows a step.
        learning_rate: AdamW's peak, for embeddings and norms (and everything else without Muon).
        muon: Muon's peak for the matrices; None leaves them to AdamW.
        logit_limit: of attention (see `qk_clip`).
        start: go on from the model and tokenizer in this folder instead of from nothing (its shape is kept).
        average: save the mean of the weights that training started from and of those it ended with.

    Returns:
        The mean loss of the last 50 steps, in nats a token.

    Raises:
        UsageError: `out` holds a finished model, or an unfinished run with other arguments or texts; or `average`
            without `start`.
    """
    asked = {
        name: str(value)
        for name, value in locals().items()
        if name not in ("out", "device", "start")  # where it is done is not what is done
    }
    if tokens is not None:
        del asked["minutes"]
    if average and start is None:
        raise UsageError("--average is of a model that training started from: give --start")
    if (out / _FACTS).exists():
        raise UsageError(f"{out} holds a finished model: take another folder")
    torch.manual_seed(seed)
    tokenizer = train_tokenizer(seed) if start is None else PreTrainedTokenizerFast.from_pretrained(start)
    rare = rare_pieces(tokenizer)
    asked["texts"] = digest_of(*itertools.islice(lessons(seed + 1, rare), 64), tokenizer.backend_tokenizer.to_str())
    if start is not None:
        asked["start"] = digest_of((start / "model.safetensors").read_bytes())
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=hidden * 11 // 4,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 64,
        num_key_value_heads=hidden // 64,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        attention_dropout=0.0,
    )
    model: Any = LlamaForCausalLM(config)
    if start is not None:
        model = LlamaForCausalLM.from_pretrained(start, dtype=torch.float32)
    model.to(device)
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n and "lm_head" not in n]
    others = [p for n, p in model.named_parameters() if all(p is not q for q in matrices)]
    optimizers: list[torch.optim.Optimizer] = []
    if muon is None:
        others = list(model.parameters())
    else:
        optimizers.append(Muon(matrices, lr=muon))
    optimizers.append(torch.optim.AdamW(others, lr=learning_rate, betas=(0.9, 0.95), weight_decay=0.01))
    peaks = [[g["lr"] for g in o.param_groups] for o in optimizers]
    clip = QKClip(model, logit_limit)
    half = _has_bfloat16(device)
    parts = {"model": model} | {f"optimizer {n}": optimizer for n, optimizer in enumerate(optimizers)}
    unfinished = Unfinished(out, asked, parts)
    reached = unfinished.load()
    losses, first = reached.losses, reached.steps
    batches = _batches(tokenizer, lessons(seed + 1, rare), rows, length)
    for _ in range(first):
        next(batches)
    begin = time.monotonic() - reached.seconds
    saved: float | None = None
    for step, batch in enumerate(batches, first):
        seconds = time.monotonic() - begin
        done = step * rows * length / tokens if tokens else seconds / (60 * minutes)
        if done >= 1:
            break
        saved = done if saved is None else saved
        if done - saved >= _KEPT:
            saved = done
            _save(model, tokenizer, out)
            unfinished.save(Reached(step, seconds, losses))
        # warm up over 2 %, hold, and cool down linearly over the last 35 %: the end is a time, or a number of tokens
        scale = min(1.0, done / 0.02 + 0.02, max(0.02, (1 - done) / 0.35))
        for optimizer, peak in zip(optimizers, peaks, strict=True):
            for group, lr in zip(optimizer.param_groups, peak, strict=True):
                group["lr"] = lr * scale
        ids = batch.to(device)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=half):
            logits = model(ids[:, :-1], use_cache=False).logits  # (B, T-1, V)
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        logit = clip.clip()
        losses.append(float(loss.detach()))
        if not math.isfinite(losses[-1]):
            raise FloatingPointError(f"the loss is {losses[-1]} at step {step}")
        if step % 50 == 0:
            recent = sum(losses[-50:]) / len(losses[-50:])
            rate = (step + 1) * rows * length / (time.monotonic() - begin)
            print(f"step {step:5d}  {done:4.0%}  loss {recent:.4f}  {rate:,.0f} tokens/s  q.k {logit:.0f}", flush=True)  # noqa: T201
    final = sum(losses[-50:]) / len(losses[-50:])
    if average:
        _to_mean(model, start)
    _save(model, tokenizer, out)
    facts = {
        "seed": seed,
        "minutes": round((time.monotonic() - begin) / 60, 1),
        "steps": len(losses),
        "tokens": len(losses) * rows * length,
        "loss": final,
        "lessons": lessons_digest(seed),
        **({"average": True} if average else {}),
    }
    (out / _FACTS).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    unfinished.remove()
    return final


def _has_bfloat16(device: str) -> bool:
    """Whether the device multiplies in bfloat16 itself; a CPU that does not is three times slower than in float32."""
    return device != "cpu" or torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def _to_mean(model: Any, start: Path | None) -> None:
    """Put each weight half way between where it was and where training took it."""
    before = LlamaForCausalLM.from_pretrained(start, dtype=torch.float32).state_dict()
    with torch.no_grad():
        for name, value in model.named_parameters():  # tied weights once
            value.lerp_(before[name].to(value.device), 0.5)


def _save(model: Any, tokenizer: PreTrainedTokenizerFast, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    half = {name: value.detach().to("cpu", torch.bfloat16).clone() for name, value in model.state_dict().items()}
    model.save_pretrained(out, state_dict=half)
    tokenizer.save_pretrained(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for model and tokenizer; a run stopped there goes on"
    )
    parser.add_argument("--minutes", type=float, default=45.0, help="wall time to train (default 45)")
    parser.add_argument("--tokens", type=int, help="train on so many tokens instead, however long it takes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--rows", type=int, default=16, help="packed rows a step")
    parser.add_argument("--length", type=int, default=640, help="tokens a packed row")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--muon", type=float, default=0.02, help="Muon's learning rate; 0 uses AdamW for everything")
    parser.add_argument("--logit-limit", type=float, default=50.0, help="of attention's logits (default 50)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--start", type=Path, help="go on from this folder; give another --seed for other texts")
    parser.add_argument("--average", action="store_true", help="save the mean of --start's weights and the last ones")
    given = parser.parse_args()
    try:
        _pretrain(given)
    except UsageError as exc:
        parser.error(str(exc))


def _pretrain(a: argparse.Namespace) -> None:
    pretrain(
        a.out,
        minutes=a.minutes,
        tokens=a.tokens,
        seed=a.seed,
        hidden=a.hidden,
        layers=a.layers,
        rows=a.rows,
        length=a.length,
        learning_rate=a.lr,
        muon=a.muon or None,
        logit_limit=a.logit_limit,
        device=a.device,
        start=a.start,
        average=a.average,
    )


if __name__ == "__main__":
    main()
