"""Many short continuations of few long prefixes: attention that reads each prefix once, however many rows share it.

Drawing m calls at k positions of a document gives k m rows that share the document's keys and values up to their own
position. Here those stay where the scan left them; a row adds only the tokens it writes. A step reads the prefix once
per document instead of once per row, as one matrix product for all of the document's rows.

It plugs into Hugging Face's attention interface, so the model's own layers run unchanged. Models that do not use that
interface, or ask for more than masking (soft caps, sinks), are found out by `works_for` and go the plain way. It does
not sample and knows no text.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from transformers import AttentionInterface, DynamicCache
from transformers.cache_utils import DynamicLayer

from toolformer_core.lm.agreement import agree, difference, tolerance
from toolformer_core.lm.batches import KeyValues, fork, key_values
from toolformer_core.lm.memory import out_of_memory
from toolformer_core.lm.network import Network

__all__ = ["Branches", "works_for"]

_NAME = "toolformer_branches"
_LOG = logging.getLogger(__name__)
_PREFIX, _SHORT, _STEPS = 8, 5, 4  # of a trial: tokens of the prefix, those that one row sees of it, tokens written


class _OwnLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """The tokens that rows have written themselves, in a buffer that is filled in place.  (R, H, S, D)"""

    keys: Any
    values: Any

    def __init__(self, room: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.room = room
        self.filled = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        rows, heads, _, width = key_states.shape
        self.keys = key_states.new_empty(rows, heads, self.room, width)
        self.values = value_states.new_empty(rows, heads, self.room, value_states.shape[-1])
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self.filled + key_states.shape[-2]
        self.keys[:, :, self.filled : end] = key_states
        self.values[:, :, self.filled : end] = value_states
        self.filled = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_seq_length(self) -> int:
        return self.filled

    def select(self, rows: torch.Tensor) -> None:
        if self.is_initialized:
            self.keys, self.values = (self._moved(x, rows.to(x.device)) for x in (self.keys, self.values))

    def _moved(self, held: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Rows into a buffer of their own; only what is filled is copied."""
        moved = held.new_empty(len(rows), *held.shape[1:])
        moved[:, :, : self.filled] = held[rows, :, : self.filled]
        return moved


class _Group(NamedTuple):
    """Rows [first, last) that see columns [start, end) of one prefix, some of them not all."""

    prefix: int
    first: int
    last: int
    start: int
    end: int
    hidden: torch.Tensor | None  # added to the scores (n, end - start)


class _Part(NamedTuple):
    """Attention over a part of what rows see: their largest scores, the sums of their weights, and values mixed."""

    top: torch.Tensor  # (R, H, per, 1)
    total: torch.Tensor  # (R, H, per, 1)
    mixed: torch.Tensor  # (R, H, per, D)

    def nowhere(self) -> _Part:
        """A part of which nothing is seen."""
        return _Part(
            torch.full_like(self.top, torch.finfo(self.top.dtype).min),
            torch.zeros_like(self.total),
            torch.zeros_like(self.mixed),
        )


class Branches:
    """Rows that continue prefixes held elsewhere.

    Args:
        network: the model.
        prefixes: keys and values of each, per layer (1, H, T, D); not changed and not copied.
        places: per row (index of its prefix, how many of the prefix's tokens it continues), sorted by index.
        room: tokens a row may add.
        common: how many of their first tokens all prefixes have in common; those are read once for all rows.
    """

    def __init__(
        self,
        network: Network,
        prefixes: Sequence[KeyValues],
        places: Sequence[tuple[int, int]],
        room: int,
        common: int = 0,
    ) -> None:
        self.network = network
        self.prefixes = prefixes
        self.common = common
        self.owner = [b for b, _ in places]
        self.length = torch.tensor([n for _, n in places], device=network.device)  # (R,)
        self.cache = DynamicCache()
        self.cache.layers = [_OwnLayer(room) for _ in prefixes[0]]
        self.cache.layer_class_to_replicate = None
        self.step = 0
        self._group()

    def _group(self) -> None:
        """What all rows have in common, and runs of rows with the same prefix for the rest of it."""
        rows = len(self.owner)
        edges = [row for row in range(1, rows) if self.owner[row] != self.owner[row - 1]]
        self.groups = [self._run(0, rows, 0, self.common)] if self.common else []
        for first, last in itertools.pairwise([0, *edges, rows]):
            if (columns := int(self.length[first:last].max())) > self.common:
                self.groups.append(self._run(first, last, self.common, columns))

    def _run(self, first: int, last: int, start: int, end: int) -> _Group:
        column = torch.arange(start, end, device=self.length.device)
        beyond = column >= self.length[first:last, None]  # (n, end - start)
        hidden = torch.zeros(beyond.shape, device=beyond.device).masked_fill_(beyond, -torch.inf)
        return _Group(self.owner[first], first, last, start, end, hidden if bool(beyond.any()) else None)

    def feed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Add one token to every row (R,); return the hidden states after it (R, D)."""
        where = self.length + self.step
        config = self.network.model.config.get_text_config()
        usual = config._attn_implementation
        config._attn_implementation = _NAME
        try:
            hidden = self.network.hidden(tokens[:, None], None, where[:, None], self.cache, branches=self)
        finally:
            config._attn_implementation = usual
        self.step += 1
        return hidden[:, -1]

    def select(self, rows: torch.Tensor) -> None:
        """Keep these rows (repeats allowed); they must stay sorted by prefix."""
        kept = rows.tolist()
        self.owner = [self.owner[row] for row in kept]
        self.length = self.length[rows]
        layers: Any = self.cache.layers
        for layer in layers:
            layer.select(rows)
        self._group()

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        scaling: float,
        window: int | None,
    ) -> torch.Tensor:
        """Attention of one new token per row over its prefix and its own tokens.

        Args:
            query: (R, Hq, D). keys, values: the rows' own, (R, H, S, D); Hq is a multiple of H.
            window: tokens a query may look back at, itself included; None: all.

        Returns:
            (R, Hq, D).
        """
        rows, q_heads, width = query.shape
        heads, own = keys.shape[1], keys.shape[2]
        per = q_heads // heads
        q = (query * scaling).view(rows, heads, per, width)
        scores = (q @ keys.transpose(2, 3)).float()  # (R, H, per, own)
        if window is not None and own > window:
            scores[..., : own - window] = -torch.inf
        top = scores.amax(dim=-1, keepdim=True)
        weights = scores.sub_(top).exp_()
        mine = _Part(top, weights.sum(dim=-1, keepdim=True), (weights.to(values.dtype) @ values).float())
        common, alone = mine.nowhere(), mine.nowhere()
        for group in self.groups:
            k, v = (x[0, :, group.start : group.end] for x in self.prefixes[group.prefix][layer])
            part = q[group.first : group.last].transpose(0, 1).reshape(heads, -1, width)  # (H, n per, D)
            scores = (part @ k.transpose(1, 2)).float()
            by_row = scores.view(heads, -1, per, group.end - group.start)
            if group.hidden is not None:
                by_row += group.hidden.to(scores.device)[:, None]
            if window is not None:
                last = self.length[group.first : group.last, None] + own - 1
                column = torch.arange(group.start, group.end, device=last.device)
                by_row.masked_fill_((last - column >= window).to(scores.device)[:, None], -torch.inf)
            top = scores.amax(dim=-1, keepdim=True).clamp_min_(torch.finfo(scores.dtype).min)
            weights = scores.sub_(top).exp_()
            mixed = (weights.to(v.dtype) @ v).float()
            kept = common if group.start < self.common else alone
            for whole, found in zip(kept, (top, weights.sum(dim=-1, keepdim=True), mixed), strict=True):
                whole[group.first : group.last] = found.view(heads, -1, per, found.shape[-1]).transpose(0, 1)
        return _joined([mine, common, alone]).to(values.dtype).reshape(rows, q_heads, -1)


def _joined(parts: Sequence[_Part]) -> torch.Tensor:
    """Attention over several parts, as if their scores had stood in one row."""
    top = torch.stack([p.top for p in parts]).amax(dim=0)
    shares = [(p.top - top).exp_() for p in parts]
    total = sum(share * p.total for share, p in zip(shares, parts, strict=True))
    return cast(torch.Tensor, sum(share * p.mixed for share, p in zip(shares, parts, strict=True)) / total)


def _attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    branches: Branches | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Hugging Face's attention interface: (R, Hq, 1, D) in, (R, 1, Hq, D) out."""
    if branches is None or attention_mask is not None or kwargs.get("softcap") or kwargs.get("s_aux") is not None:
        raise NotImplementedError("this model asks its attention for more than branches can do")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    out = branches.attend(module.layer_idx, query[:, :, 0], key, value, scale, sliding_window)
    return out[:, None], None


AttentionInterface.register(_NAME, _attention)


def works_for(network: Network) -> bool:
    """Return whether a model's next tokens are the same this way as the plain way, by trying it on a few tokens.

    If they are not, a warning says why, and what it costs.

    Raises:
        torch.OutOfMemoryError, RuntimeError, MemoryError: there was no memory to try it, which says nothing of the
            model.
    """
    vocabulary = network.model.config.get_text_config().vocab_size
    device = network.device
    ids = torch.arange(1, _PREFIX + 1, device=device)[None] % vocabulary
    # a token of its own for each row and step: keys and values that are all alike would hide which of them are seen
    tokens = (torch.arange(2 * _STEPS, device=device).view(_STEPS, 2) + _PREFIX + 1) % vocabulary
    prefix = DynamicCache()
    where = torch.arange(_PREFIX, device=device)[None]
    with torch.inference_mode():
        network.hidden(ids, torch.ones_like(ids), where, prefix)
        kv = key_values(prefix)
        places = [(0, _SHORT), (0, _PREFIX)]
        try:
            branches = Branches(network, [kv], places, room=_STEPS, common=_SHORT - 2)
            got = [network.logits(branches.feed(fed)) for fed in tokens]
        except (NotImplementedError, TypeError, AttributeError, RuntimeError, ValueError, KeyError) as exc:
            if out_of_memory(exc):
                raise
            return _does_not(network, f"its attention is not called as this needs it: {type(exc).__name__}")
        plain, mask = fork([kv], [0, 0], [_SHORT, _PREFIX])
        for step, logits in enumerate(got):
            mask = torch.cat([mask, mask.new_ones(2, 1)], dim=1)
            at = torch.tensor([[_SHORT + step], [_PREFIX + step]], device=device)
            wanted = network.logits(network.hidden(tokens[step][:, None], mask, at, plain)[:, -1])
            if not agree(logits, wanted, network.model.dtype):
                apart, most = difference(logits, wanted), tolerance(network.model.dtype)
                return _does_not(
                    network, f"in a trial its logits differ by {apart:.2g} of their size, {most:.2g} allowed"
                )
    return True


def _does_not(network: Network, why: str) -> bool:
    _LOG.warning(
        "model %r: the calls drawn from a document cannot share its keys and values (%s); each draw takes a copy of "
        "them, which is as correct, but slower and takes more memory",
        network.name,
        why,
    )
    return False
