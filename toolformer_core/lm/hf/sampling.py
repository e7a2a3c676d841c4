"""Samples calls from a scan's keys and values, one token of every call at a time, until a "]" in the text closes it.

Draws at the same position share a row as long as their texts are equal, and split when they differ. A draw's randomness
comes from its seed and the step only (`uniform` into an inverse CDF); step 0 is the first token that is drawn, also
after given ones (`prompt_tokenizer.Beginning`). So a seed gives the same draw, whatever else is in the batch.
"""

from collections.abc import Sequence

import numpy as np
import torch

from toolformer_core.lm.base import Draw, uniform
from toolformer_core.lm.hf.batches import KeyValues
from toolformer_core.lm.hf.model import HFModel
from toolformer_core.lm.hf.prefix_trial import can_share_prefix
from toolformer_core.lm.hf.prefixes import Continuation, CopiedPrefix, SharedPrefix
from toolformer_core.lm.prompt_tokenizer import Beginning
from toolformer_core.syntax import find_close, name_begun


def draw_calls(
    hf_model: HFModel,
    prefixes: Sequence[KeyValues],
    common: int,
    places: list[tuple[int, int]],
    seeds: list[int],
    max_tokens: int,
    temperature: float,
    *,
    many: bool = True,
    name: str = "",
    begin: str = "",
) -> list[tuple[Draw, list[int]]]:
    """Draw one continuation of " [" per place, as `Scan.draw`; return its text and its tokens.

    A place is (index of its prefix, how many of the prefix's tokens precede " ["); `common` leading tokens are the same
    in all prefixes, which are not changed. With `many` samples a document's share its keys and values; a single one is
    faster copied. The given tokens of `begin` pass through the model once per place, not once per draw.
    """
    beginning = hf_model.beginning(begin)
    if hf_model.shares_prefixes is None:
        (hf_model.shares_prefixes,) = hf_model.budget.in_parts([hf_model], lambda _: can_share_prefix(hf_model))
    shared = many and hf_model.shares_prefixes
    per_token = sum(2 * keys[0, :, 0].numel() * keys.element_size() for keys, _ in prefixes[0])
    # if keys and values are shared, samples of one document go together; if not, samples of one length
    order = sorted(range(len(places)), key=lambda i: places[i] if shared else (places[i][1], places[i][0]))

    def run(chunk: Sequence[int]) -> list[tuple[int, tuple[Draw, list[int]]]]:
        at = [places[i] for i in chunk]
        capacity = max(max_tokens, len(beginning.given)) + len(hf_model.trigger)
        given = (hf_model, prefixes, at, capacity)
        rows = SharedPrefix(*given, common) if shared else CopiedPrefix(*given)
        drawing = _Drawing(hf_model, rows, at, [seeds[i] for i in chunk], temperature, name, beginning)
        return list(zip(chunk, drawing.run(max_tokens), strict=True))

    out: dict[int, tuple[Draw, list[int]]] = {}
    start = 0
    while start < len(order):
        end = start + 1  # take as many samples as the cache budget allows for the keys and values they add
        while end < len(order):
            added = max_tokens if shared else places[order[end]][1] + max_tokens
            if (end + 1 - start) * added * per_token > hf_model.budget.cache:
                break
            end += 1
        for part in hf_model.budget.in_parts(order[start:end], run):
            out.update(part)
        start = end
    return [out[i] for i in range(len(places))]


class _Drawing:
    """The samples of one chunk in progress; samples with equal texts so far share a row."""

    def __init__(
        self,
        hf_model: HFModel,
        continuation: Continuation,
        places: list[tuple[int, int]],
        seeds: list[int],
        temperature: float,
        name: str,
        beginning: Beginning,
    ) -> None:
        self.hf_model = hf_model
        self.continuation = continuation
        self.temperature = temperature
        self.name = name
        self.given = given = beginning.given
        self.allowed = torch.tensor(beginning.allowed, dtype=torch.long, device=hf_model.device)
        self.seeds = np.asarray(seeds, dtype=np.uint64)
        # the tokens that each draw has room for; they do not depend on the rest of the batch
        self.room = [hf_model.context_length - n - len(hf_model.trigger) for _, n in places]
        index = {p: row for row, p in enumerate(dict.fromkeys(places))}
        self.row_of = [index[p] for p in places]  # the row of each active draw, ascending
        continuation.select(torch.tensor([places.index(p) for p in index], device=hf_model.device))
        for token in hf_model.trigger:
            self.hidden = continuation.feed(torch.full((len(index),), token, device=hf_model.device))
        log_p_given = np.zeros(len(index))
        for token in given:  # as many rows as places
            tokens = torch.full((len(index),), token, device=hf_model.device)
            log_p_given += hf_model.log_p(self.hidden, tokens)
            self.hidden = continuation.feed(tokens)
        self.log_p_begin: list[float | None] = [None] * len(places)  # per draw
        if len(self.allowed):
            log_p_given += hf_model.lm_head.log_p_among(self.hidden, self.allowed).cpu().numpy()
            self.log_p_begin = [float(log_p_given[row]) for row in self.row_of]
        self.named: set[int] = set()  # samples that begin as calls of the tool

    def _next_tokens(self, step: int, active: list[int]) -> list[int]:
        rows = torch.tensor(self.row_of, device=self.hidden.device)
        u = torch.from_numpy(uniform(self.seeds[active], step)).to(rows.device)
        head = self.hf_model.lm_head
        if step == 0 and len(self.allowed):
            return head.draw_among(self.hidden, rows, u, self.temperature, self.allowed).tolist()
        if self.temperature == 0:
            return head.most_likely(self.hidden)[rows].tolist()
        return head.draw(self.hidden, rows, u, self.temperature).tolist()

    def run(self, max_tokens: int) -> list[tuple[Draw, list[int]]]:
        """Return each draw with its tokens, those that were given included."""
        active = list(range(len(self.seeds)))
        written: list[list[int]] = [list(self.given) for _ in active]
        closed: dict[int, str] = {}  # texts of samples that a "]" has closed
        allowed = [min(max_tokens, room) for room in self.room]
        for step in range(max(allowed) - len(self.given)):
            unfinished: dict[tuple[int, int], list[int]] = {}  # (row, token) -> samples
            for draw, row, token in zip(active, self.row_of, self._next_tokens(step, active), strict=True):
                if token in self.hf_model.end_ids:
                    continue
                ids = written[draw]
                ids.append(token)
                text = self.hf_model.text(ids) if token in self.hf_model.closing_ids else ""
                if (close := find_close(text)) is not None:
                    closed[draw] = text[:close]
                elif len(ids) < allowed[draw] and self._can_be_call(draw, ids):
                    unfinished.setdefault((row, token), []).append(draw)
            if not unfinished:
                break
            active = [draw for samples in unfinished.values() for draw in samples]
            self.row_of = [row for row, samples in enumerate(unfinished.values()) for _ in samples]
            self._feed(list(unfinished))
        texts = [closed[i] if i in closed else self.hf_model.text(ids) for i, ids in enumerate(written)]
        samples = (Draw(text, i in closed, self.log_p_begin[i]) for i, text in enumerate(texts))
        return list(zip(samples, written, strict=True))

    def _can_be_call(self, draw: int, ids: list[int]) -> bool:
        """Return whether a draw can become a call of the tool; once its name is complete this is not checked again."""
        if not self.name or draw in self.named:
            return True
        if (begun := begun_name(self.hf_model, ids)) == self.name:
            self.named.add(draw)
        return begun in ("", self.name)

    def _feed(self, rows: list[tuple[int, int]]) -> None:
        """Continue with (row, token) pairs, sorted by row: finished rows are dropped, rows that split are repeated."""
        device = self.hf_model.device
        if [row for row, _ in rows] != list(range(len(self.hidden))):
            self.continuation.select(torch.tensor([row for row, _ in rows], device=device))
        self.hidden = self.continuation.feed(torch.tensor([token for _, token in rows], device=device))


def begun_name(hf_model: HFModel, ids: list[int]) -> str | None:
    """Return the name with which the tokens drawn so far begin; see `syntax.name_begun`."""
    return name_begun(hf_model.text(ids).rstrip("\ufffd"))  # the last token may hold a character's first bytes only
