"""The output layer, computed in blocks of the vocabulary: log p of given tokens, the most likely token, a draw.

A block of logits is reduced to sums while it is in the processor's cache; a draw computes the few around its token
again. An output layer that is more than a matrix (an adapter, offloaded weights) is called as it is.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch

_ROWS, _BLOCK = 384, 512  # measured: 0.8 MB of logits at a time fit into a core's cache together with their weights
_PIECE = 32  # logits that are summed together, and computed again for a draw; divides _BLOCK
_MAX_LOGITS = 1 << 26  # logits at a time if they are computed in one block


class LMHead:
    """The output layer of an `AutoModelForCausalLM`, looked up at every call."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.size = int(model.config.get_text_config().vocab_size)

    def log_p(self, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the natural log-probability of one target (N,) after each hidden state (N, D): float32 (N,)."""
        return self._log_p(hidden, lambda h, a, b: self._logits_at(h, targets[a:b, None])[:, 0])

    def most_likely(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the most likely token (N,) after each hidden state (N, D); the first of equally likely ones."""
        out = []
        for first, last in self._chunks(hidden):
            best = token = torch.empty(0)
            for at, logits in self._blocks(hidden[first:last]):
                value, index = logits.max(dim=1)
                better = value > best if at else torch.ones_like(index, dtype=torch.bool)
                best = torch.where(better, value, best) if at else value
                token = torch.where(better, index + at, token) if at else index
            out.append(token)
        return torch.cat(out)

    def draw(self, hidden: torch.Tensor, owner: torch.Tensor, u: torch.Tensor, temperature: float) -> torch.Tensor:
        """Draw one token per u, float64 in [0, 1): the first at which the cumulative distribution exceeds u.  (M,)

        For each draw, `owner` is the index of its hidden state (N, D), ascending; the temperature is above 0.
        """
        of_chunk = [(a, b, (owner >= a) & (owner < b)) for a, b in self._chunks(hidden)]
        return torch.cat([self._draw(hidden[a:b], owner[own] - a, u[own], temperature) for a, b, own in of_chunk])

    def log_p_among(self, hidden: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """Return the log-probability that distinct tokens (n,) have together after each hidden state (N, D): (N,)."""
        return self._log_p(hidden, lambda h, *_: self._logits_of(h, tokens).logsumexp(1))

    def _log_p(self, hidden: torch.Tensor, logit: Callable[[torch.Tensor, int, int], torch.Tensor]) -> torch.Tensor:
        """Return `logit` of hidden states [a, b) less the logarithm of the sum of all exponentials, float32 (N,)."""
        out = [hidden.new_zeros(0, dtype=torch.float32)]
        for a, b in self._chunks(hidden):
            top, sums = self._sums(hidden[a:b], 1.0, self.size)
            out.append(logit(hidden[a:b], a, b) - top - sums.sum(1).log().float())
        return torch.cat(out)

    def draw_among(
        self, hidden: torch.Tensor, owner: torch.Tensor, u: torch.Tensor, temperature: float, tokens: torch.Tensor
    ) -> torch.Tensor:
        """Draw as `draw`, restricted to some ascending tokens (n,); temperature 0 takes the likeliest.  (M,)"""
        logits = torch.cat([self._logits_of(hidden[first:last], tokens) for first, last in self._chunks(hidden)])
        if temperature == 0:
            return tokens[logits.argmax(1)][owner]
        edges = torch.softmax(logits / temperature, dim=1).double().cumsum(1)[owner]  # (M, n)
        at = torch.searchsorted(edges, u[:, None] * edges[:, -1:], right=True)
        return tokens[at.clamp_max(len(tokens) - 1)[:, 0]]

    def _draw(self, hidden: torch.Tensor, owner: torch.Tensor, u: torch.Tensor, temperature: float) -> torch.Tensor:
        top, sums = self._sums(hidden, temperature, _PIECE)
        edges = sums.cumsum(1)[owner]  # (M, pieces)
        target = u[:, None] * edges[:, -1:]
        piece = torch.searchsorted(edges, target, right=True).clamp_max(edges.shape[1] - 1)  # (M, 1)
        piece_sum = sums[owner].gather(1, piece)
        target -= edges.gather(1, piece) - piece_sum  # what remains of it inside the piece
        tokens = piece * _PIECE + torch.arange(_PIECE, device=hidden.device)
        logits = self._logits_at(hidden[owner], tokens.clamp_max(self.size - 1)) / temperature
        inner = (logits - top[owner, None]).exp().double().masked_fill_(tokens >= self.size, 0).cumsum(1)
        target *= inner[:, -1:] / piece_sum  # the same logits, but summed in a different order
        at = torch.searchsorted(inner, target, right=True).clamp_max(_PIECE - 1)
        return tokens.gather(1, at)[:, 0].clamp_max(self.size - 1)

    def _layer(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None] | None:
        """Return weights (V, D) and bias (V,) of a plain linear output layer on this device; None for any other."""
        layer = self.model.get_output_embeddings()
        if type(layer) is not torch.nn.Linear or layer.weight.device != hidden.device:
            return None
        return layer.weight, layer.bias

    def _chunks(self, hidden: torch.Tensor) -> list[tuple[int, int]]:
        small = hidden.device.type == "cpu" and self._layer(hidden) is not None
        rows = _ROWS if small else max(1, _MAX_LOGITS // self.size)
        pieces = -(-len(hidden) // rows)
        edges = [len(hidden) * i // pieces for i in range(pieces + 1)] if pieces else [0]
        return list(itertools.pairwise(edges))

    def _blocks(self, hidden: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
        """Yield the first token of each block and its logits, float32 (N, b); the next block may overwrite them."""
        if (layer := self._layer(hidden)) is None:
            yield 0, self._all_logits(hidden)
            return
        weight, bias = layer
        step = min(_BLOCK, self.size) if hidden.device.type == "cpu" else self.size
        buffer = hidden.new_empty(len(hidden) * step)
        for at in range(0, self.size, step):
            block = weight[at : at + step]
            logits = buffer[: len(hidden) * len(block)].view(len(hidden), len(block))
            torch.mm(hidden, block.t(), out=logits)
            if bias is not None:
                logits += bias[at : at + step]
            yield at, logits.float()

    def _all_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model.get_output_embeddings()(hidden)
        return logits.float().to(hidden.device)

    def _logits_at(self, hidden: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """Return the float32 logits of some tokens (N, n) after each hidden state (N, D)."""
        if (layer := self._layer(hidden)) is None:
            return self._all_logits(hidden).gather(1, tokens)
        weight, bias = layer
        logits = torch.bmm(weight[tokens], hidden[:, :, None])[..., 0].float()
        return logits if bias is None else logits + bias[tokens].float()

    def _logits_of(self, hidden: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """Return the float32 logits of the same tokens (n,) after each hidden state: (N, n)."""
        if (layer := self._layer(hidden)) is None:
            return self._logits_at(hidden, tokens.expand(len(hidden), -1))
        weight, bias = layer
        logits = torch.mm(hidden, weight[tokens].t()).float()
        return logits if bias is None else logits + bias[tokens].float()

    def _sums(self, hidden: torch.Tensor, temperature: float, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Sum exp(logit / temperature - top) over every `width` tokens, or over a block if that is smaller (N, P).

        The sums are float64; top, float32 (N,), is the largest logit of the first block, or of all if that overflows.
        """
        top, sums = self._sums_below(hidden, temperature, width, None)
        if not bool(sums.isfinite().all()):
            tops = [logits.amax(1, keepdim=True) / temperature for _, logits in self._blocks(hidden)]
            top, sums = self._sums_below(hidden, temperature, width, torch.cat(tops, dim=1).amax(1, keepdim=True))
        return top[:, 0], sums

    def _sums_below(
        self, hidden: torch.Tensor, temperature: float, width: int, top: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        sums: list[torch.Tensor] = []
        for _, logits in self._blocks(hidden):
            if temperature != 1:
                logits = logits.div_(temperature)
            if top is None:
                top = logits.amax(1, keepdim=True)
            exps = logits.sub_(top).exp_()
            even = exps.shape[1] // width * width
            if even:
                sums.append(torch.unflatten(exps[:, :even], 1, (-1, width)).sum(2))
            if even < exps.shape[1]:
                sums.append(exps[:, even:].sum(1, keepdim=True))
        return cast(torch.Tensor, top), torch.cat(sums, dim=1).double()
