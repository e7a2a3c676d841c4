"""Decoys: wrong responses with which a call is scored as well, to learn how often a wrong one seems to help.

A decoy of (c, r) is the same call at the same place with a response r' that the same tool gave in another document of
the shard. Its gain is L- - L(e(c, r')), with the L- of the call. As a decoy has nothing to do with the text, the share
of decoys that pass a threshold estimates how often a response passes for no good reason; `false_discovery` does that.

r' is never r, nor any other response that the tool gave in the same document, which may be right for the place. Which
ones are taken follows from a seed, so they are the same in every run over the same shard. Where a shard has fewer
different responses than requested, those of `reserve` fill up: made-up responses of the paper's tools. A tool of
one's own has no reserve, and such a call gets fewer decoys, or none.

This module knows no model and no losses.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from toolformer_core.config import ScoreConfig
from toolformer_core.records import DrawnCall, digest_of, numbers_of

RESERVE_NAME = "reserve/1"  # recorded with the scores: the number is raised when a response of `decoys.toml` changes


@cache
def reserve() -> dict[str, list[str]]:
    """Return the responses that fill up where a shard has too few, by the key of the tool (`decoys.toml`)."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


class DecoyPool:
    """The (document id, response) pairs of one tool in one shard, and at most `decoys` decoys of each of its calls."""

    def __init__(
        self,
        answered: Iterable[tuple[str, str]],
        *,
        decoys: int,
        seed: int = 0,
        reserve: Sequence[str] = (),
    ) -> None:
        self._decoys, self._seed = decoys, seed
        self._own: dict[str, set[str]] = {}  # document -> its responses
        for doc_id, response in answered:
            self._own.setdefault(doc_id, set()).add(response)
        self._responses = sorted(set().union(*self._own.values()))
        self._reserve = sorted(set(reserve) - set(self._responses))
        self.from_shard = 0  # decoys given out so far
        self.from_reserve = 0

    @classmethod
    def of(cls, config: ScoreConfig, tool: str, answered: Iterable[tuple[str, str]]) -> DecoyPool | None:
        """Return the pool of a tool, by its key, as a config asks for it; None if it asks for no decoys."""
        if not config.decoys:
            return None
        responses = reserve().get(tool, ())
        return cls(answered, decoys=config.decoys, seed=config.decoy_seed, reserve=responses)

    def decoys_of(self, drawn: DrawnCall, response: str) -> tuple[str, ...]:
        """Return a call's decoys, each a different response."""
        _, *numbers = numbers_of(
            "decoys",
            str(self._seed),
            digest_of(drawn.doc_id, drawn.tool, str(drawn.position), drawn.input, response),
            count=1 + 2 * self._decoys,
        )
        own = self._own[drawn.doc_id]
        chosen = _choose(self._responses, own, numbers[: self._decoys])
        self.from_shard += len(chosen)
        if len(chosen) < self._decoys:
            reserve = _choose(self._reserve, own, numbers[self._decoys :])[: self._decoys - len(chosen)]
            self.from_reserve += len(reserve)
            chosen += reserve
        return tuple(chosen)


def _choose(responses: Sequence[str], forbidden: set[str], numbers: Sequence[int]) -> list[str]:
    """Return a different allowed response for each number, as long as there are any.

    This draws without replacement (a Fisher-Yates shuffle of the indices that stores only the moved ones), so that it
    costs as much as there are numbers and forbidden responses, not as there are responses.
    """
    moved: dict[int, int] = {}
    left, chosen = len(responses), []
    for number in numbers:
        while left:
            at = number % left
            left -= 1
            candidate = responses[moved.get(at, at)]
            moved[at] = moved.get(left, left)
            if candidate not in forbidden:
                chosen.append(candidate)
                break
    return chosen
