"""Positions at which a model behind a server does not tell p(" ["): not tried, and counted where they may be likely."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from tests.core.annotate.test_sample import TEXT, positions, run, scripted
from tests.fakes import a_document, a_verdict
from toolformer_core.lm.base import Draw, DrawRequest, Scan, ScanWrapper
from toolformer_core.records import Prompt

# TEXT has tokens at 0, 1, 6, 9, 14, 18, 23 and 26; " [" is told at three of them, and elsewhere at most
TOLD = {1: math.log(0.01), 9: math.log(0.4), 26: math.log(0.06)}
AT_MOST = {0: 0.001, 6: 0.04, 14: 0.2, 18: 0.001, 23: 0.001}


class PartlySeen(ScanWrapper[Scan]):
    """A scan with bounds."""

    def __init__(self, inner: Scan) -> None:
        super().__init__(inner)
        self.bounds = [
            np.array([TOLD.get(at, math.log(AT_MOST.get(at, 1))) for at in of_text.tolist()], dtype=np.float32)
            for of_text in inner.positions
        ]

    def draw(self, requests: Sequence[DrawRequest], **how) -> list[Draw]:
        return self.inner.draw(requests, **how)


class PartlySeeing:
    """A scripted model whose scans have bounds."""

    def __init__(self, inner):
        self._inner = inner
        self.name = self.digest = "partly"
        self.log_probs = inner.log_probs

    def scan(self, prompt: Prompt, texts: Sequence[str]) -> Iterator[Scan]:
        for scan in self._inner.scan(prompt, texts):
            yield PartlySeen(scan)


@pytest.mark.parametrize(
    ("tau_s", "tried", "unseen"),
    [
        (0.0, [1, 9, 26], 5),  # all that is not told
        (0.03, [9, 26], 2),  # 6 may have 0.04, and 14 0.2
        (0.05, [9, 26], 1),  # 14
        (0.2, [9], 0),  # 14 has at most that
    ],
)
def test_what_is_not_told_and_may_exceed_tau_s_is_counted(tau_s, tried, unseen):
    (got,) = run(PartlySeeing(scripted(TOLD)), [a_document(TEXT)], tau_s=tau_s)
    assert (positions(got), got.positions, got.unseen) == (tried, 8, unseen)


def test_a_position_where_no_call_may_stand_is_not_counted():
    text = TEXT + "  "
    document = a_document(text)
    lm = PartlySeeing(scripted({1: TOLD[1], 9: TOLD[9]}, text=text[:14]))
    (got,) = run(lm, [(document, a_verdict(document, spans=((0, 14),)))])
    assert (got.positions, got.unseen) == (4, 2)  # 0, 1, 6, 9, and of these 0 and 6


def test_a_model_that_tells_all_counts_nothing():
    (got,) = run(scripted(TOLD), [a_document(TEXT)])
    assert (got.positions, got.unseen) == (0, 0)
    (scan,) = scripted(TOLD).scan(Prompt("calculator", "", ""), [TEXT])
    assert scan.bounds is None
    assert ScanWrapper(scan).bounds is None
    assert ScanWrapper(PartlySeen(scan)).bounds is not None
