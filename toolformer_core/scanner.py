"""Cuts a stream of bytes at markers or after a number of bytes, and counts lines, in the memory of one piece."""

from collections.abc import Iterator
from dataclasses import dataclass

from toolformer_core.compression import TruncatedError


@dataclass(frozen=True, slots=True)
class Piece:
    kept: bytes  # all of it, or its start if it is longer than what was to be kept
    size: int  # in bytes
    found: bool  # whether it ends as it should; otherwise the stream ended in it


class Scanner:
    """A place in a stream of chunks; a `TruncatedError` ends the stream, and `damage` says why."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._held = b""
        self._at = 0  # what is held before this was handed out
        self.line = 1  # of the next byte
        self.damage = ""

    def until(self, marker: bytes, keep: int) -> Piece:
        """Return what stands up to a marker and the marker, of which `keep` bytes and the marker's length are kept."""
        keep += len(marker)
        kept, size = bytearray(), 0
        while (found := self._held.find(marker, self._at)) < 0:
            size += self._take(max(self._at, len(self._held) - len(marker) + 1), keep, kept)
            if not self._more():  # what was held may have been the marker's start
                size += self._take(len(self._held), keep, kept)
                return Piece(bytes(kept), size, False)
        size += self._take(found + len(marker), keep, kept)
        return Piece(bytes(kept), size, True)

    def next_bytes(self, count: int, keep: int) -> Piece:
        """Return the next `count` bytes, of which at most `keep` are kept."""
        kept, size = bytearray(), 0
        while size < count:
            if self._at == len(self._held) and not self._more():
                return Piece(bytes(kept), size, False)
            size += self._take(min(len(self._held), self._at + count - size), keep, kept)
        return Piece(bytes(kept), size, True)

    def peek(self, count: int) -> bytes:
        """Return the next `count` bytes, or fewer at the end of the stream, without going on."""
        while len(self._held) - self._at < count and self._more():
            pass
        return self._held[self._at : self._at + count]

    def _take(self, end: int, keep: int, kept: bytearray) -> int:
        part = self._held[self._at : end]
        kept += part[: max(0, keep - len(kept))]
        self.line += part.count(b"\n")
        self._at = end
        return len(part)

    def _more(self) -> bool:
        try:
            chunk = next(self._chunks, b"")
        except TruncatedError as exc:
            self.damage = str(exc)
            return False
        self._held, self._at = self._held[self._at :] + chunk, 0
        return bool(chunk)
