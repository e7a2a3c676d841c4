"""Train the embedded tokenizer and language model from scratch: `python -m smallworld.pretrain`.

The model is a Llama shape small enough for two CPU cores, the tokenizer a byte-level BPE that splits digits, and the
texts are those of `lessons`, which do not contain the five tools.
"""

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

from smallworld.lessons import lessons
from toolformer_core.errors import UsageError
from toolformer_core.lm.load import cpu_has_bfloat16
from toolformer_core.records import digest_of

END = "<|end|>"
_SUMMARY = "pretraining.json"  # written last
_RARE = 1e-5  # a rarer token, as a share of all tokens read, is a rare one
_HIDDEN = 256  # heads have width 64
_LEARNING_RATE, _MUON = 3e-3, 0.02  # peak rates: AdamW's, for embeddings and norms; Muon's, for the matrices
_WORDS = r"'(?:s|t|re|ve|m|ll|d)| ?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def train_tokenizer(seed: int, texts: int = 20_000) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE in which every digit is a token, and so is " ["."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=2_048,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(itertools.islice(lessons(seed), texts), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token=END, eos_token=END)  # type: ignore[no-untyped-call]


def rare_pieces(tokenizer: PreTrainedTokenizerFast) -> list[str]:
    """Return the tokens of two letters or more inside words that hardly occur in texts; a prompt may need them."""
    encoded = tokenizer(list(itertools.islice(lessons(0), 2_000)), add_special_tokens=False)["input_ids"]
    read = Counter(itertools.chain(*encoded))
    rare = read.total() * _RARE
    vocabulary = tokenizer.get_vocab()
    return sorted(t for t, i in vocabulary.items() if re.fullmatch("[A-Za-z]{2,}", t) and read[i] < rare)


def lessons_digest(seed: int) -> str:
    return digest_of(*itertools.islice(lessons(seed + 1), 64))[:16]


def _batches(
    tokenizer: PreTrainedTokenizerFast, texts: Iterator[str], rows: int, length: int
) -> Iterator[torch.Tensor]:
    """Yield packed batches (rows, length): texts one after another, each after an end-of-text token."""
    end = tokenizer.bos_token_id
    buffer: list[int] = []
    while True:
        while len(buffer) < rows * length:
            for ids in tokenizer(list(itertools.islice(texts, 64)), add_special_tokens=False)["input_ids"]:
                buffer += (end, *ids)
        yield torch.tensor(buffer[: rows * length]).view(rows, length)
        del buffer[: rows * length]


class QKClip:
    """Keeps every head's logits within a limit, by scaling down queries and keys, which Muon's steps let grow too long.

    As QK-Clip of Kimi K2 (2025), but with an upper bound, so that attention's kernels need no change: a logit q.k /
    sqrt(d) is at most max |q| max |k| / sqrt(d), and RoPE changes no lengths. The model must have Llama's shape, as
    many key heads as query heads, and projections without bias.
    """

    def __init__(self, model: Any, limit: float) -> None:
        self._limit = limit
        self._head_dim = int(model.config.head_dim)
        self._pairs = [(a.q_proj, a.k_proj) for a in (layer.self_attn for layer in model.model.layers)]
        self._max_norms: dict[Any, torch.Tensor] = {}  # by projection; one value per head
        for pair in self._pairs:
            for projection in pair:
                projection.register_forward_hook(self._measure)

    def _measure(self, projection: Any, _: Any, out: torch.Tensor) -> None:
        heads = out.detach().view(*out.shape[:-1], -1, self._head_dim)  # (B, T, heads, d)
        self._max_norms[projection] = heads.float().norm(dim=-1).amax((0, 1))

    @torch.no_grad()
    def clip(self) -> float:
        """Scale down queries and keys of the heads above the limit; return the largest bound before that."""
        largest = 0.0
        for queries, keys in self._pairs:
            bound = self._max_norms[queries] * self._max_norms[keys] / self._head_dim**0.5  # (heads,)
            factor = (self._limit / bound.clamp(min=self._limit)).sqrt().repeat_interleave(self._head_dim)[:, None]
            queries.weight.mul_(factor)
            keys.weight.mul_(factor)
            largest = max(largest, float(bound.max()))
        return largest


@contextmanager
def _flush_denormals() -> Iterator[None]:
    """Flush denormal numbers to zero: sharp attention has denormal weights, which took half of a step's time."""
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)  # other code in this process may need them


@_flush_denormals()
def pretrain(
    out: Path,
    *,
    minutes: float = 45.0,
    tokens: int | None = None,
    seed: int = 0,
    layers: int = 6,
    length: int = 640,
    rows: int = 16,
    logit_limit: float = 50.0,
    device: str = "cpu",
    start: Path | None = None,
    average: bool = False,
) -> float:
    """Train for `minutes` of wall time, or on `tokens`, and save model and tokenizer to `out`.

    A step has `rows` of `length` tokens. `start` is a folder whose model and tokenizer, and their shape, it goes on
    from; `average` saves the mean of the weights there and at the end. Return the mean loss of the last 50 steps, in
    nats per token; a UsageError if `out` holds a finished model, or `average` is set without `start`.
    """
    if average and start is None:
        raise UsageError("--average needs the model that training started from: give --start")
    if (out / _SUMMARY).exists():
        raise UsageError(f"{out} holds a finished model: choose another folder")
    torch.manual_seed(seed)
    tokenizer = train_tokenizer(seed) if start is None else PreTrainedTokenizerFast.from_pretrained(start)
    rare = rare_pieces(tokenizer)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=_HIDDEN,
        intermediate_size=_HIDDEN * 11 // 4,
        num_hidden_layers=layers,
        num_attention_heads=_HIDDEN // 64,
        num_key_value_heads=_HIDDEN // 64,
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
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.Muon(matrices, lr=_MUON, weight_decay=0.0),
        torch.optim.AdamW(others, lr=_LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.01),
    ]
    peak_rates = [[g["lr"] for g in o.param_groups] for o in optimizers]
    clip = QKClip(model, logit_limit)
    use_bfloat16 = device != "cpu" or cpu_has_bfloat16()  # else it is three times slower than float32
    losses: list[float] = []
    begin = time.monotonic()
    for step, batch in enumerate(_batches(tokenizer, lessons(seed + 1, rare), rows, length)):
        done = step * rows * length / tokens if tokens else (time.monotonic() - begin) / (60 * minutes)
        if done >= 1:
            break
        # warm up over 2 %, hold, and cool down linearly over the last 35 %, of the time or of the tokens
        scale = min(1.0, done / 0.02 + 0.02, max(0.02, (1 - done) / 0.35))
        for optimizer, rates in zip(optimizers, peak_rates, strict=True):
            for group, lr in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = lr * scale
        ids = batch.to(device)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=use_bfloat16):
            logits = model(ids[:, :-1], use_cache=False).logits  # (B, T-1, V)
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        bound = clip.clip()
        losses.append(float(loss.detach()))
        if not math.isfinite(losses[-1]):
            raise FloatingPointError(f"the loss is {losses[-1]} at step {step}")
        if step % 50 == 0:
            recent = sum(losses[-50:]) / len(losses[-50:])
            rate = (step + 1) * rows * length / (time.monotonic() - begin)
            print(f"step {step:5d}  {done:4.0%}  loss {recent:.4f}  {rate:,.0f} tokens/s  q.k {bound:.0f}", flush=True)  # noqa: T201
    final = sum(losses[-50:]) / len(losses[-50:])
    if average:
        before = LlamaForCausalLM.from_pretrained(start, dtype=torch.float32).state_dict()
        with torch.no_grad():
            for name, value in model.named_parameters():  # tied weights once
                value.lerp_(before[name].to(value.device), 0.5)
    half = {name: value.detach().to("cpu", torch.bfloat16).clone() for name, value in model.state_dict().items()}
    model.save_pretrained(out, state_dict=half)
    tokenizer.save_pretrained(out)
    facts = {
        "seed": seed,
        "minutes": round((time.monotonic() - begin) / 60, 1),
        "steps": len(losses),
        "tokens": len(losses) * rows * length,
        "loss": final,
        "lessons": lessons_digest(seed),
        **({"average": True} if average else {}),
    }
    (out / _SUMMARY).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return final


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for model and tokenizer")
    parser.add_argument("--minutes", type=float, default=45.0, help="wall time to train (default 45)")
    parser.add_argument("--tokens", type=int, help="train on this number of tokens instead, however long it takes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--rows", type=int, default=16, help="packed rows per step")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--start", type=Path, help="start from this folder; set another --seed for other texts")
    parser.add_argument("--average", action="store_true", help="save the mean of --start's weights and the last ones")
    options = parser.parse_args()
    try:
        pretrain(**vars(options))
    except UsageError as exc:
        parser.error(str(exc))


if __name__ == "__main__":
    main()
