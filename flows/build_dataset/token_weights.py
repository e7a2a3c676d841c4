"""Other weights of the next tokens for what-if: another decay, or fewer tokens, as far as stored scores can answer.

    w~_t = max(0, 1 - decay t) for t < window, normalised to sum 1

Stored are the log-probabilities of the tokens to which the build's own decay gives a weight, so a window holds no more
than these. This module loads no model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from toolformer_core.annotate.losses import weights, window_weights
from toolformer_core.config import PAPER_DECAY
from toolformer_core.errors import UsageError
from warehouse.reweighting import skipped_calls
from warehouse.what_if import StoredScores


def stored_tokens(scores: StoredScores) -> tuple[float, int]:
    """Return the decay of a build's weights, and how many tokens it gives one.

    Raises:
        UsageError: its tools were scored with different ones, so that there is nothing to compare others with.
    """
    decays = {scores.decays.get(tool, PAPER_DECAY) for tool in scores.sampled} or {PAPER_DECAY}
    if len(decays) > 1:
        raise UsageError("the tools were scored with different decays: other weights cannot be compared with them")
    [decay] = decays
    return decay, len(weights(decay))


def other_weights(
    snapshot: str | Path, scores: StoredScores, decay: float | None, window: int | None
) -> tuple[float, ...] | None:
    """Return other weights of the next tokens; None if they are the build's own.

    Args:
        snapshot: path of the published snapshot.
        scores: how its scores were made.
        decay: decrease of the raw weight per token, in [0, 1]; None: the build's.
        window: tokens that may have a weight; None: as many as the decay gives one.

    Raises:
        UsageError: they need tokens that are not stored, or a value is out of range.
        SnapshotError: there is no snapshot.
    """
    if decay is None and window is None:
        return None
    own, stored = stored_tokens(scores)
    decay = own if decay is None else decay
    if not 0 <= decay <= 1:
        raise UsageError(f"--decay {decay:g}: the weight of a token decreases by 0 to 1 from one to the next")
    if window is not None and not 1 <= window <= stored:
        raise UsageError(
            f"--window {window}: the log-probabilities of {stored} tokens are stored, so give a number from 1 to "
            f"{stored}"
        )
    if window is None and (decay == 0 or math.ceil(1 / decay - 1e-9) > stored):
        raise UsageError(
            f"--decay {decay:g} gives more than {stored} tokens a weight, but the log-probabilities of {stored} are "
            f"stored: add --window {stored}"
        )
    found = tuple(float(w) for w in window_weights(decay, stored if window is None else window))
    return None if found == tuple(float(w) for w in weights(own)) else found


def skipped_note(snapshot: str | Path, weights: tuple[float, ...], tau_f: Mapping[str, float]) -> str:
    """Return what other weights leave unknown, in a sentence; "" if there is nothing.

    Raises:
        SnapshotError: there is no snapshot.
    """
    skipped = skipped_calls(snapshot, weights, tau_f)
    if not skipped:
        return ""
    by_tool = ", ".join(f"{tool} {calls:,}" for tool, calls in skipped.items())
    count = sum(skipped.values())
    return (
        f"{count:,} {'call' if count == 1 else 'calls'} ({by_tool}) may reach their threshold with these weights, but "
        "L(e(c, eps)) was not computed where the build's own weights could not lift a gain to 0: they count as not "
        "kept; a build with a lower --tau-f finds out"
    )
