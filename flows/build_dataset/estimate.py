"""What a build will cost, from the commits of earlier builds.

Estimates are sums over past commits of the same stage and tool, in proportion to the documents of a shard. Where those
were sampled with other k and m (positions per document, draws per position), they are taken in proportion to k * m too,
the draws asked for; a document is scanned once whatever these are, so small shares of large ones come out a little low.
What is to do is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tasks.run_shard import ShardSpec
from tasks.stage import LM_TOKENS
from tasks.stages import BUILD_STAGES
from warehouse.commits import Commit
from warehouse.schema import WHAT_IF
from warehouse.store import Store

__all__ = ["Estimate", "PastCommits", "Total", "total_of"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """What work is expected to take."""

    seconds: float  # of work, not of waiting: several shards are worked on at once
    lm_tokens: float  # passed through the model
    bytes: float  # of data written
    shards: int  # past commits it rests on
    same_model: bool  # those were made with the model that is asked for
    same_draws: bool = True  # ... and with k and m whose product is the one asked for; else they are scaled


@dataclass(frozen=True, slots=True)
class Total:
    """What all stages together are expected to take, as far as it is known."""

    seconds: float
    lm_tokens: float
    bytes: float
    lower_bound: bool  # a stage has no past run to estimate from, and is counted as nothing
    lm_tokens_unknown: bool  # that holds for every stage with work for the model


def total_of(estimates: Iterable[tuple[str, Estimate | None]]) -> Total:
    """Return the sum of some stages' estimates."""
    asking = {stage.name for stage in BUILD_STAGES if stage.needs == "model"}
    listed = list(estimates)
    known = [one for _, one in listed if one is not None]
    of_model = [one for stage, one in listed if stage in asking]
    return Total(
        seconds=sum(one.seconds for one in known),
        lm_tokens=sum(one.lm_tokens for one in known),
        bytes=sum(one.bytes for one in known),
        lower_bound=len(known) < len(listed),
        lm_tokens_unknown=bool(of_model) and not any(of_model),
    )


class PastCommits:
    """The commits of earlier builds."""

    def __init__(self, store: Store) -> None:
        self._of: dict[tuple[str, str, str], list[Commit]] = {}
        self._rows: dict[str, int] = {}  # digest of a file that holds a row per document -> rows
        self._draws: dict[str, int] = {}  # digest of a file of draws -> draws asked for per document, k * m
        completed = [r for r in store.runs() if r.state == "completed" and r.commits and r.flow != WHAT_IF]
        last = {key for run in completed[-1:] for key in run.commits}
        for commit in sorted(store.commits(), key=lambda c: (c.key in last, c.created)):
            self._of.setdefault((commit.stage, commit.tool, commit.shard), []).append(commit)
            if commit.stage in ("ingest", "prefilter"):
                self._rows |= {file.digest: file.rows for file in commit.files if file.path.startswith("shards/")}
            if commit.stage == "sample":
                self._draws |= {file.digest: _draws_asked(commit.config) for file in commit.files}

    def of(self, spec: ShardSpec) -> list[Commit]:
        """Return the commits of a shard, those of the last completed run last."""
        return self._of.get((spec.stage, spec.tool, spec.shard), [])

    def estimate(self, stage: str, tool: str, documents: int, model: str, draws: int = 0) -> Estimate | None:
        """Return what so many documents would take; by commits of the same model, k and m if there are any.

        Args:
            draws: k * m that are asked for; 0 for a stage that has nothing to do with draws.
        """
        own = [c for key, found in self._of.items() if key[:2] == (stage, tool) for c in found]
        alike = [c for c in own if c.parts.get("model", model) == model]
        among = alike or own
        chosen = [c for c in among if self._share_of_draws(c, draws) == 1.0] or among
        seen = sum(map(self._documents, chosen))
        if not seen:
            return None
        share = documents / seen
        scaled = [(c, share * self._share_of_draws(c, draws)) for c in chosen]
        return Estimate(
            seconds=sum(own_share * c.seconds for c, own_share in scaled),
            lm_tokens=sum(own_share * c.counters.get(LM_TOKENS, 0) for c, own_share in scaled),
            bytes=sum(own_share * file.bytes for c, own_share in scaled for file in c.files),
            shards=len(chosen),
            same_model=bool(alike),
            same_draws=all(own_share == share for _, own_share in scaled),
        )

    def _share_of_draws(self, commit: Commit, draws: int) -> float:
        """Return how many times as many draws are asked for as the commit's were; 1 where that is not known."""
        if commit.stage == "sample":
            before = _draws_asked(commit.config)
        else:
            before = next((self._draws[one] for one in commit.inputs if one in self._draws), 0)
        return draws / before if draws and before else 1.0

    def _documents(self, commit: Commit) -> int:
        if commit.stage == "ingest":
            return sum(file.rows for file in commit.files if file.path.startswith("shards/"))
        return max((self._rows.get(one, 0) for one in commit.inputs), default=0)


def _draws_asked(config: Mapping[str, Any]) -> int:
    """Return k * m of a config of `sample`; 0 where it does not say."""
    return int(config.get("top_k", 0)) * int(config.get("draws", 0))
