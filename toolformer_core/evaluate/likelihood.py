"""Measures texts' likelihood with calls disabled, in batches: p(" [") = 0 unless the text has that token.

A text longer than the context is read in windows that overlap by half.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from toolformer_core.evaluate.items import Item

if TYPE_CHECKING:
    from toolformer_core.lm.hf.engine import TransformersLM
    from toolformer_core.lm.hf.model import HFModel


@dataclass(frozen=True, slots=True)
class Likelihood:
    item_id: str
    source: str
    nll: float  # summed over the tokens, nats
    tokens: int  # predicted tokens; without a beginning-of-text token, the first one is not predicted
    characters: int
    problem: str = ""


def likelihoods(lm: TransformersLM, items: Sequence[Item]) -> list[Likelihood]:
    """Return each item's negative log-likelihood; an empty text has a `problem`."""
    windows = [list(_windows(lm.hf_model, item.prompt)) for item in items]
    scores = iter(log_likelihoods(lm.hf_model, [window for of_item in windows for window in of_item]))
    out = []
    for item, of_item in zip(items, windows, strict=True):
        nll = sum((-next(scores)[0] for _ in of_item), 0.0)
        tokens = sum(predicted for _, predicted in of_item)
        problem = "" if tokens else "no_tokens"
        out.append(Likelihood(item.item_id, item.source, nll, tokens, len(item.prompt), problem))
    return out


def _windows(hf_model: HFModel, content: str) -> Iterator[tuple[list[int], int]]:
    """Cut a text into windows (token ids, how many of the last ones are predicted), each token predicted in one."""
    lead = [] if hf_model.bos is None else [hf_model.bos]
    ids = hf_model.encode(content)
    width = hf_model.context_length - len(lead)
    step = max(1, width // 2)
    done = 0 if lead else min(1, len(ids))  # without a bos token, the first token has no probability
    start = 0
    while done < len(ids):
        end = min(start + width, len(ids))
        yield [*lead, *ids[start:end]], end - done
        done, start = end, end - width + step  # the next window has `step` new tokens


def log_likelihoods(hf_model: HFModel, rows: Sequence[tuple[list[int], int]]) -> list[tuple[float, bool]]:
    """Return log p of the last n tokens of each (ids, n), calls disabled, and whether all were the most likely ones."""
    from toolformer_core.lm.hf.batches import by_budget

    out = [(0.0, True)] * len(rows)
    order = sorted((i for i, (_, n) in enumerate(rows) if n), key=lambda i: len(rows[i][0]))
    for batch in by_budget([len(rows[i][0]) for i in order], hf_model.budget.tokens):
        chosen = [order[b] for b in batch]
        for i, score in zip(chosen, _score_batch(hf_model, [rows[i] for i in chosen]), strict=True):
            out[i] = score
    return out


def _score_batch(hf_model: HFModel, rows: Sequence[tuple[list[int], int]]) -> Iterator[tuple[float, bool]]:
    import torch

    from toolformer_core.lm.hf.batches import pad

    *before, last = hf_model.trigger
    at, targets, excluded = [], [], []
    for b, (ids, n) in enumerate(rows):
        for j in range(len(ids) - n, len(ids)):
            at.append((b, j - 1))
            targets.append(ids[j])
            opens = not before or ids[max(0, j - len(before)) : j] == before
            excluded.append(opens and ids[j] != last)
    with hf_model.lock, torch.inference_mode():
        device = hf_model.device
        inputs, mask = pad([np.asarray(ids[:-1], dtype=np.int64) for ids, _ in rows], device)
        position = torch.arange(inputs.shape[1], device=device).expand(len(rows), -1)
        row, column = torch.tensor(at, device=device).T
        hidden = hf_model.hidden(inputs, mask, position, None)[row, column]  # (N, D)
        log_p, best = _log_p_without_calls(hf_model, hidden, torch.tensor(targets), torch.tensor(excluded))
    start = 0
    for _, n in rows:
        yield float(log_p[start : start + n].sum()), bool(best[start : start + n].all())
        start += n


def _log_p_without_calls(hf_model: HFModel, hidden: Any, targets: Any, excluded: Any) -> tuple[Any, Any]:
    """Return log p of targets and whether each is the likeliest; " [" cannot end where `excluded`.  (N,)"""
    import torch

    chunk = max(1, (1 << 24) // hf_model.model.config.get_text_config().vocab_size)  # no (N, V) tensor is ever held
    log_p, best = [], []
    for at in range(0, len(hidden), chunk):
        logits = hf_model.logits(hidden[at : at + chunk])
        target, mask = (x[at : at + chunk].to(logits.device) for x in (targets, excluded))
        logits[:, hf_model.trigger[-1]] = logits[:, hf_model.trigger[-1]].masked_fill(mask, -torch.inf)
        log_p.append(logits.gather(1, target[:, None]).squeeze(1) - torch.logsumexp(logits, dim=1))
        best.append(logits.argmax(dim=1) == target)
    return torch.cat(log_p).double().cpu().numpy(), torch.cat(best).cpu().numpy()
