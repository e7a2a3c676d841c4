"""Makes the texts of each arm, and turns texts into micro-batches: encodes and cuts them, packs them into rows.

    piece   [start] text [end], cut into runs of at most `sequence_length` tokens; each run except the first repeats the
            last token of the previous one, so that every token is a target exactly once
    row     one piece, or several consecutive ones; positions start at 0 with each piece

Which pieces a step holds depends only on seed and step, never on the number of processes or on the packing.
"""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolformer_core.errors import CorpusError, ModelError, UsageError
from toolformer_core.finetune.recipe import Recipe
from toolformer_core.lm.tokens import tokenize
from toolformer_core.records import Example, digest_of
from toolformer_core.syntax import strip

_SHARE = 10  # at most every tenth document is held out
_OFFSETS_OF = 1000  # texts tokenized at a time: a token's offsets take several times the memory of its id


@dataclass(frozen=True, slots=True)
class Piece:
    ids: NDArray[np.int64]  # (n,)
    targets: NDArray[np.bool_]  # (n,) whether token j is predicted from the previous ones; never the first

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class MicroBatch:
    ids: NDArray[np.int64]  # (B, T)
    positions: NDArray[np.int64]  # (B, T) from 0 within each piece; padding continues after the last piece
    weights: NDArray[np.float32]  # (B, T) 1 if the token is a target


def held_out(doc_ids: Iterable[str], most: int, seed: int) -> frozenset[str]:
    """Choose the development documents by a seeded digest: `most` (paper: 1,000), but at most a tenth of all."""
    order = _in_order(doc_ids, seed)
    return frozenset(order[: min(most, len(order) // _SHARE)])


def held_out_share(doc_ids: Iterable[str], share: float, seed: int) -> frozenset[str]:
    """Choose a share of the documents, rounded to whole ones but at least one, in the order of `held_out`."""
    order = _in_order(doc_ids, seed)
    return frozenset(order[: max(1, round(share * len(order)))])


def _in_order(doc_ids: Iterable[str], seed: int) -> list[str]:
    return [doc_id for _, doc_id in sorted((digest_of("dev", str(seed), doc_id), doc_id) for doc_id in doc_ids)]


def training_text(example: Example, arm: str) -> str:
    """Return the training text of a document of C*: x* for the arm `toolformer`, x for `cc` (M + CC, section 4.1)."""
    return example.text if arm == "toolformer" else strip(example.text, [(c.start, c.end) for c in example.calls])


def read_texts(path: Path) -> list[str]:
    """Read the `text` of every line of a JSONL file; a CorpusError if it cannot be read, or a line has none."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as exc:
        raise CorpusError(f"the texts {path} cannot be read: {exc.strerror}") from exc
    texts: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            text = json.loads(line)["text"]
        except (ValueError, KeyError, TypeError):
            text = None
        if not isinstance(text, str):
            raise CorpusError(f"{path}, line {number} is not a JSON object with a text")
        texts.append(text)
    return texts


def encode_texts(
    tokenizer: Any, texts: Sequence[str], *, start: int | None, end: int | None, length: int, score_end: bool = True
) -> list[Piece]:
    """Encode texts, with calls in the tokens in which decoding writes them; cut them into pieces of at most `length`.

    Without a token `start` before each text, its first token is no target. The token `end` after each text is one
    unless `score_end` is False, for perplexity. A UsageError if there is no token to predict, a ModelError if the
    tokenizer is not a fast one.
    """
    if not getattr(tokenizer, "is_fast", True):
        raise ModelError("the model has no fast tokenizer, whose offsets tell where calls and responses begin")
    pieces = []
    before, after = ([] if token is None else [token] for token in (start, end))
    batches = (list(texts[at : at + _OFFSETS_OF]) for at in range(0, len(texts), _OFFSETS_OF))
    for ids in (tokens.ids for batch in batches for tokens in tokenize(tokenizer, batch)):
        whole = np.asarray([*before, *ids, *after], dtype=np.int64)
        targets = np.asarray([*[True] * (len(before) + len(ids)), *[score_end] * len(after)], dtype=np.bool_)
        targets[:1] = False
        for at in range(0, max(len(whole) - 1, 0), length - 1):
            piece_targets = targets[at : at + length].copy()
            piece_targets[0] = False
            if piece_targets.any():
                pieces.append(Piece(whole[at : at + length], piece_targets))
    if not pieces:
        raise UsageError("there is nothing to train on: no text holds a token to predict")
    return pieces


def step_pieces(piece_count: int, batch_size: int, step: int, seed: int) -> list[int]:
    """Return the indices of a step's pieces (step 1 is the first): consecutive shuffled epochs, cut into batches."""
    first, out = (step - 1) * batch_size, []
    for epoch in range(first // piece_count, (first + batch_size - 1) // piece_count + 1):
        order = np.random.default_rng([seed, epoch]).permutation(piece_count)
        begin = max(first - epoch * piece_count, 0)
        out += order[begin : first + batch_size - epoch * piece_count].tolist()
    return out


def pack(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Return rows of pieces of at most `capacity` tokens: longest first, each in the fullest row that has room."""
    rows: list[list[int]] = []
    room: list[list[int]] = [[] for _ in range(capacity + 1)]  # rows by the tokens that still fit
    for (index,) in one_per_row(lengths):
        n = lengths[index]
        left = next((r for r in range(n, capacity + 1) if room[r]), None)
        if left is None:
            rows.append([])
            row, left = len(rows) - 1, capacity
        else:
            row = room[left].pop()
        rows[row].append(index)
        room[left - n].append(row)
    return rows


def one_per_row(lengths: Sequence[int]) -> list[list[int]]:
    """Put each piece into its own row, longest first: the first pass of a step takes the most memory."""
    return [[index] for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))]


def micro_batches(
    rows: Sequence[Sequence[int]], rank: int, world_size: int, micro_batch: int
) -> Iterator[list[Sequence[int]]]:
    """Yield the micro-batches of one process, of which all get the same number; it takes every `world_size`-th row."""
    process_rows = rows[rank::world_size]
    for at in range(0, math.ceil(len(rows) / world_size), micro_batch):
        yield list(process_rows[at : at + micro_batch])


def batches_of(pieces: Sequence[Piece], recipe: Recipe, rank: int, world_size: int) -> Iterator[MicroBatch]:
    """Yield the micro-batches in which one process reads some pieces."""
    lengths = [len(piece) for piece in pieces]
    rows = pack(lengths, recipe.sequence_length) if recipe.packing else one_per_row(lengths)
    for batch in micro_batches(rows, rank, world_size, recipe.micro_batch):
        yield make_micro_batch([[pieces[i] for i in row] for row in batch])


def make_micro_batch(pieces: Sequence[Sequence[Piece]]) -> MicroBatch:
    """Make a micro-batch of rows of pieces; if there are none, one row of two tokens without a target."""
    width = max((sum(len(p) for p in row) for row in pieces), default=2)
    shape = (max(len(pieces), 1), width)
    ids, positions = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    weights = np.zeros(shape, dtype=np.float32)
    for r, row in enumerate(pieces):
        at = 0
        for piece in row:
            end = at + len(piece)
            ids[r, at:end] = piece.ids
            positions[r, at:end] = np.arange(len(piece))
            weights[r, at:end] = piece.targets
            at = end
        last = len(row[-1]) if row else 0
        positions[r, at:] = np.arange(last, last + width - at)  # after every token, so no token attends to padding
    if not pieces:
        positions[0] = np.arange(width)
    return MicroBatch(ids, positions, weights)
