"""The documents nearest to a tool's description: by hand, and as laws."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from toolformer_core.errors import UsageError
from toolformer_core.grounding.relevance import most_relevant, relevance
from toolformer_core.grounding.scripted import ScriptedEncoder
from toolformer_core.records import Document

SCORES = st.lists(st.floats(-1, 1), max_size=40)
SHARES = st.floats(0.01, 1)


@pytest.mark.parametrize(
    ("share", "kept"),
    [
        (1.0, [True, True, True, True]),
        (0.5, [True, False, False, True]),  # 0.5 * 4 = 2: 0.9 and 0.5
        (0.51, [True, False, True, True]),  # ceil(2.04) = 3: 0.3 too
        (0.25, [True, False, False, False]),
        (0.01, [True, False, False, False]),  # ceil(0.04) = 1
    ],
)
def test_the_share_with_the_highest_scores_is_kept(share: float, kept: list[bool]) -> None:
    assert most_relevant([0.9, 0.1, 0.3, 0.5], share) == kept


def test_of_equal_scores_the_earlier_document_is_kept() -> None:
    assert most_relevant([0.2, 0.4, 0.4], 1 / 3) == [False, True, False]


def test_a_share_is_meant_as_it_is_written() -> None:
    # 0.07 * 100 is 7.000000000000001 as a double; seven documents are meant, not eight
    assert sum(most_relevant([0.0] * 100, 0.07)) == 7


@pytest.mark.parametrize("share", [0.0, -0.5, 1.5, math.nan])
def test_a_share_outside_its_bounds_is_refused(share: float) -> None:
    with pytest.raises(UsageError, match="share of relevant documents"):
        most_relevant([0.1], share)


@given(SCORES, SHARES, SHARES)
def test_a_larger_share_keeps_what_a_smaller_one_keeps(scores: list[float], one: float, other: float) -> None:
    small, large = sorted((one, other))
    kept, more = most_relevant(scores, small), most_relevant(scores, large)
    assert all(b for a, b in zip(kept, more, strict=True) if a)
    assert sum(kept) >= small * len(scores) - 1e-6


@given(SCORES, SHARES)
def test_what_is_kept_is_no_farther_than_what_is_dropped(scores: list[float], share: float) -> None:
    kept = most_relevant(scores, share)
    inside = [score for score, flag in zip(scores, kept, strict=True) if flag]
    outside = [score for score, flag in zip(scores, kept, strict=True) if not flag]
    assert not inside or not outside or min(inside) >= max(outside)


def test_relevance_is_the_cosine_and_a_document_is_embedded_once() -> None:
    near, far = Document("1", "sums", None, None, "c", 1), Document("2", "tales", None, None, "c", 2)
    encoder = ScriptedEncoder({"sums": (3, 4), "tales": (0, 5), "adds": (1, 0), "tells": (0, 1)})
    known: dict[str, NDArray[np.float32]] = {}
    # (3, 4) . (1, 0) / 5 = 0.6; (0, 5) . (1, 0) = 0
    assert relevance([near, far], "adds", encoder, known) == pytest.approx([0.6, 0.0])
    # (3, 4) . (0, 1) / 5 = 0.8; (0, 5) . (0, 1) / 5 = 1
    assert relevance([near, far], "tells", encoder, known) == pytest.approx([0.8, 1.0])
    assert encoder.asked == ["sums", "tales", "adds", "tells"]
    assert relevance([], "adds", encoder, known) == []
