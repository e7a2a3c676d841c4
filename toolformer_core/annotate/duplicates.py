"""Finding duplicates in a large corpus: a set of digests in one block of memory, and near-duplicates by MinHash.

The near-duplicates are found by a document's words, with datatrove's defaults: n-grams of five, and 14 bands of 8
hashes, of which two near-duplicates share one. Two documents of which a share s of all their n-grams is common
(Jaccard) share a band with the probability 1 - (1 - s^8)^14: 0.21 at s = 0.6, 0.56 at 0.7, 0.92 at 0.8, 0.9996 at 0.9.
Unlike datatrove's words, numbers stay what they are, as a call depends on them.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from toolformer_core.shared_words import words_in

NGRAM, BANDS, ROWS = 5, 14, 8
NAME = f"minhash-{NGRAM}-{BANDS}-{ROWS}"
_SEED = 1
_SKETCH = 256  # values of a hash in the sketch


@dataclass(frozen=True, slots=True)
class Signature:
    bands: bytes  # 8 bytes for each of the bands
    sketch: bytes  # a byte of each hash, to estimate how alike two documents are


@cache
def _empty() -> object:
    from datasketch import MinHash

    return MinHash(num_perm=BANDS * ROWS, seed=_SEED)


def signature_of(text: str) -> Signature | None:
    """Return a text's signature; None: it has too few words."""
    words = words_in(text)
    if len(words) < NGRAM:
        return None
    minhash = _empty().copy()  # type: ignore[attr-defined] # datasketch has no stubs
    minhash.update_batch({" ".join(words[at : at + NGRAM]).encode() for at in range(len(words) - NGRAM + 1)})
    values: NDArray[np.uint32] = minhash.hashvalues.astype("<u4")
    bands = (hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in values.reshape(BANDS, ROWS))
    return Signature(b"".join(bands), (values % _SKETCH).astype(np.uint8).tobytes())


def likeness(one: bytes, other: bytes) -> float:
    """Return the estimated share of common n-grams (Jaccard) of two sketches; its standard error is at most 0.05.

    Different hashes have the same byte one time in 256, which is taken out (b-bit minwise hashing, Li and König 2010).
    """
    equal = float(np.mean(np.frombuffer(one, np.uint8) == np.frombuffer(other, np.uint8)))
    return max(0.0, (equal - 1 / _SKETCH) / (1 - 1 / _SKETCH))


def near_duplicates(bands: NDArray[np.uint64]) -> dict[int, int]:
    """Return the near-duplicates among documents, each with the earliest kept document that it shares a band with.

    A document is kept unless it shares a band with an earlier one that is kept; documents stand in the order of the
    corpus, the rows of `bands` (documents, BANDS).
    """
    groups: dict[int, list[int]] = defaultdict(list)  # document -> groups of documents that share a band
    for number, members in enumerate(_sharing(bands)):
        for document in members:
            groups[document].append(number)
    kept: dict[int, int] = {}  # group -> the document of it that is kept
    near: dict[int, int] = {}
    for document in sorted(groups):
        earlier = [kept[group] for group in groups[document] if group in kept]
        if earlier:
            near[document] = min(earlier)
        else:
            kept |= dict.fromkeys(groups[document], document)
    return near


def _sharing(bands: NDArray[np.uint64]) -> Iterator[Sequence[int]]:
    """Yield the documents that share a band, for each value of each band that several have."""
    for column in bands.T:
        order = np.argsort(column, kind="stable")
        values = column[order]
        ends = np.append(np.flatnonzero(values[1:] != values[:-1]) + 1, len(values))
        starts = np.append(0, ends[:-1])
        several = ends - starts > 1
        for start, end in zip(starts[several].tolist(), ends[several].tolist(), strict=True):
            yield order[start:end].tolist()


def as_bands(signatures: bytes | bytearray) -> NDArray[np.uint64]:
    """Return the bands of signatures that follow each other as rows.  (documents, BANDS)"""
    return np.frombuffer(signatures, "<u8").reshape(-1, BANDS)


_BYTES = 16
_NOTHING = bytes(_BYTES)  # an empty slot


class DigestSet:
    """A growing set of 16-byte digests, whose first bits are random: open addressing with linear probing.

    A Python set takes about a hundred bytes for a digest; this one 21 to 43, half as much again while it grows.
    """

    __slots__ = ("_mask", "_size", "_slots")

    def __init__(self) -> None:
        self._slots = bytearray(1024 * _BYTES)
        self._mask = 1023
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, digest: bytes) -> bool:
        """Add a digest of 16 bytes, not all of them zero; return whether it is new."""
        is_new = _put(self._slots, self._mask, digest)
        self._size += is_new
        if 4 * self._size > 3 * self._mask:
            self._grow()
        return is_new

    def _grow(self) -> None:
        old, self._mask = self._slots, 2 * self._mask + 1
        self._slots = bytearray((self._mask + 1) * _BYTES)
        for at in range(0, len(old), _BYTES):
            digest = bytes(old[at : at + _BYTES])
            if digest != _NOTHING:
                _put(self._slots, self._mask, digest)


def _put(slots: bytearray, mask: int, digest: bytes) -> bool:
    """Write a digest into its slot, or into the next free one; return whether it was not there."""
    slot = int.from_bytes(digest[:8], "little") & mask
    while True:
        at = slot * _BYTES
        there = slots[at : at + _BYTES]
        if there == digest:
            return False
        if there == _NOTHING:
            slots[at : at + _BYTES] = digest
            return True
        slot = (slot + 1) & mask
