"""A set of digests in one block of memory, for finding duplicates in a large corpus.

A Python set takes about a hundred bytes for a digest of sixteen. This one takes 21 to 43, because its table is three
eighths to three quarters full, and half as much again while it grows. It does not know what the digests are of; their
bits must be as good as random, because a digest's first bits are its place.
"""

from __future__ import annotations

_BYTES = 16
_NOTHING = bytes(_BYTES)  # an empty slot


class DigestSet:
    """A growing set of 16-byte digests: open addressing with linear probing."""

    __slots__ = ("_has_nothing", "_mask", "_size", "_slots")

    def __init__(self) -> None:
        self._slots = bytearray(1024 * _BYTES)
        self._mask = 1023
        self._size = 0
        self._has_nothing = False  # the digest of zeros, which looks like an empty slot

    def __len__(self) -> int:
        return self._size

    def add(self, digest: bytes) -> bool:
        """Add a digest of 16 bytes; return whether it is new."""
        if digest == _NOTHING:
            is_new, self._has_nothing = not self._has_nothing, True
        else:
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
