"""The output layer, a piece of the vocabulary at a time: log p of given tokens, the likeliest token, a draw.

The logits of a batch, (N, V) in float32, are the largest thing a language model computes and nobody wants them: here a
piece of them is made, reduced to sums while it lies in the processor's cache, and overwritten by the next. A draw finds
its token by those sums, and computes the few logits around it again. On a GPU the pieces are large.

It knows no sequences, seeds or texts. An output layer that is more than a matrix (an adapter, weights elsewhere) is
asked itself, for all logits of some rows at a time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, cast

import torch

__all__ = ["Vocabulary"]

_ROWS, _BLOCK = 384, 512  # measured: 0.8 MB of logits at a time, which a core's own cache holds beside their weights
_NEAR = 32  # logits computed again for a draw; divides _BLOCK
_WHOLE = 1 << 26  # logits at a time where they are made in one piece


class Vocabulary:
    """The output layer of a model.

    Args:
        model: an `AutoModelForCausalLM`; its output layer is looked up at every call.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.size = int(model.config.get_text_config().vocab_size)

    def log_p(self, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Natural log-probability of one target (N,) behind each hidden state (N, D): float32 (N,)."""
        out = []
        for first, last in self._chunks(hidden):
            h = hidden[first:last]
            top, sums = self._sums(h, 1.0, self.size)
            told = self._logits_at(h, targets[first:last, None])[:, 0]
            out.append(told - top - sums.sum(1).log().float())
        return torch.cat(out) if out else hidden.new_zeros(0, dtype=torch.float32)

    def likeliest(self, hidden: torch.Tensor) -> torch.Tensor:
        """The likeliest token (N,) behind each hidden state (N, D); of equally likely ones the first."""
        out = []
        for first, last in self._chunks(hidden):
            best = token = torch.empty(0)
            for at, logits in self._blocks(hidden[first:last]):
                value, where = logits.max(dim=1)
                better = value > best if at else torch.ones_like(where, dtype=torch.bool)
                best = torch.where(better, value, best) if at else value
                token = torch.where(better, where + at, token) if at else where
            out.append(token)
        return torch.cat(out)

    def draw(self, hidden: torch.Tensor, owner: torch.Tensor, u: torch.Tensor, temperature: float) -> torch.Tensor:
        """The tokens (M,) at which the distribution functions behind hidden states pass u.

        Args:
            hidden: (N, D).
            owner: for each draw the index of its hidden state, ascending (M,).
            u: a number for each draw in [0, 1), float64 (M,).
            temperature: what logits are divided by, > 0.
        """
        out = []
        for first, last in self._chunks(hidden):
            some = (owner >= first) & (owner < last)
            out.append(self._draw(hidden[first:last], owner[some] - first, u[some], temperature))
        return torch.cat(out)

    def _draw(self, hidden: torch.Tensor, owner: torch.Tensor, u: torch.Tensor, temperature: float) -> torch.Tensor:
        top, sums = self._sums(hidden, temperature, _NEAR)
        edges = sums.cumsum(1)[owner]  # (M, pieces)
        aim = u[:, None] * edges[:, -1:]
        piece = torch.searchsorted(edges, aim, right=True).clamp_max(edges.shape[1] - 1)  # (M, 1)
        own = sums[owner].gather(1, piece)
        aim -= edges.gather(1, piece) - own  # what is left of it inside the piece
        tokens = piece * _NEAR + torch.arange(_NEAR, device=hidden.device)
        logits = self._logits_at(hidden[owner], tokens.clamp_max(self.size - 1)) / temperature
        inner = (logits - top[owner, None]).exp().double().masked_fill_(tokens >= self.size, 0).cumsum(1)
        aim *= inner[:, -1:] / own  # the same logits, summed in another order
        at = torch.searchsorted(inner, aim, right=True).clamp_max(_NEAR - 1)
        return tokens.gather(1, at)[:, 0].clamp_max(self.size - 1)

    def _layer(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None] | None:
        """Weights (V, D) and bias (V,) of an output layer that is no more than these, beside the hidden states."""
        layer = self.model.get_output_embeddings()
        if type(layer) is not torch.nn.Linear or layer.weight.device != hidden.device:
            return None
        return layer.weight, layer.bias

    def _chunks(self, hidden: torch.Tensor) -> list[tuple[int, int]]:
        """Cut hidden states into runs as even as possible."""
        small = hidden.device.type == "cpu" and self._layer(hidden) is not None
        rows = _ROWS if small else max(1, _WHOLE // self.size)
        pieces = -(-len(hidden) // rows)
        edges = [len(hidden) * i // pieces for i in range(pieces + 1)] if pieces else [0]
        return list(itertools.pairwise(edges))

    def _blocks(self, hidden: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
        """The first token of each block and its logits, float32 (N, b), which the next block may overwrite."""
        layer = self._layer(hidden)
        if layer is None:
            yield 0, self.model.get_output_embeddings()(hidden).float().to(hidden.device)
            return
        weight, bias = layer
        step = min(_BLOCK, self.size) if hidden.device.type == "cpu" else self.size
        room = hidden.new_empty(len(hidden) * step)
        for at in range(0, self.size, step):
            piece = weight[at : at + step]
            logits = room[: len(hidden) * len(piece)].view(len(hidden), len(piece))
            torch.mm(hidden, piece.t(), out=logits)
            if bias is not None:
                logits += bias[at : at + step]
            yield at, logits.float()

    def _logits_at(self, hidden: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """Float32 logits of some tokens (N, n) behind each hidden state (N, D)."""
        layer = self._layer(hidden)
        if layer is None:
            logits = self.model.get_output_embeddings()(hidden).float().to(hidden.device)
            return logits.gather(1, tokens)  # type: ignore[no-any-return]
        weight, bias = layer
        logits = torch.bmm(weight[tokens], hidden[:, :, None])[..., 0].float()
        return logits if bias is None else logits + bias[tokens].float()

    def _sums(self, hidden: torch.Tensor, temperature: float, near: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Sums of exp(logit / temperature - top) over every `near` tokens, or over a block where that is less.

        Returns:
            top, float32 (N,): the largest of the first block, of all blocks where that would give infinite sums;
            and the sums, float64 (N, pieces).
        """
        top, sums = self._sums_below(hidden, temperature, near, None)
        if not bool(sums.isfinite().all()):
            whole = [logits.amax(1, keepdim=True) / temperature for _, logits in self._blocks(hidden)]
            top, sums = self._sums_below(hidden, temperature, near, torch.cat(whole, dim=1).amax(1, keepdim=True))
        return top[:, 0], sums

    def _sums_below(
        self, hidden: torch.Tensor, temperature: float, near: int, top: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        found: list[torch.Tensor] = []
        for _, logits in self._blocks(hidden):
            if temperature != 1:
                logits = logits.div_(temperature)
            if top is None:
                top = logits.amax(1, keepdim=True)
            exps = logits.sub_(top).exp_()
            whole = exps.shape[1] // near * near
            if whole:
                found.append(torch.unflatten(exps[:, :whole], 1, (-1, near)).sum(2))
            if whole < exps.shape[1]:
                found.append(exps[:, whole:].sum(1, keepdim=True))
        return cast(torch.Tensor, top), torch.cat(found, dim=1).double()
