"""How a text longer than the context is cut into windows, for scanning and for scoring.

    scan    windows of W tokens, an eighth of it on either side only seen, not scanned: every position has context on
            both sides, except at the text's ends
    score   a text's first token kept is a multiple of W/2 that depends on the position alone, so that the three losses
            of a call see the same text, with W/2 to W tokens of it on the left

Both rules are exact (one window, everything seen) for a text that fits. Only numbers here: no tokens, no model.
"""

from __future__ import annotations

__all__ = ["scan_windows", "score_start"]


def scan_windows(n: int, width: int) -> list[tuple[int, int, int, int]]:
    """Return windows (start, end, first, last) over n tokens: tokens [start, end) are seen, [first, last) scanned.

    The scanned parts are disjoint and cover 0..n.
    """
    if n <= width:
        return [(0, n, 0, n)]
    margin = width // 8
    step = width - 2 * margin
    out = []
    start = 0
    while True:
        end = min(start + width, n)
        first = start + margin if start else 0
        last = n if end == n else end - margin
        out.append((start, end, first, last))
        if end == n:
            return out
        start += step


def score_start(token: int, tokens: int, width: int) -> int:
    """Return the first text token that is kept when `tokens` tokens from `token` on are scored in `width` tokens."""
    excess = token + tokens - width
    half = max(1, width // 2)
    return 0 if excess <= 0 else -(-excess // half) * half
