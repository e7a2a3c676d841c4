"""What a plan of a build holds: shards with their states, stages, and what they will cost by past commits."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.shards.run_shard import ShardSpec
from tasks.shards.stage import LM_TOKENS
from tasks.stages import BUILD_STAGES
from warehouse.commits import Commit
from warehouse.schema import WHAT_IF
from warehouse.store import Store


@dataclass(frozen=True, slots=True)
class Estimate:
    seconds: float  # of work; the build takes less time, as several shards are worked on at once
    lm_tokens: float  # passed through the model
    bytes: float  # of data written
    shards: int  # past commits that it is computed from
    same_model: bool  # whether these were made with the same model
    same_samples: bool = True  # whether these had the same k * m; otherwise they were scaled


@dataclass(frozen=True, slots=True)
class Total:
    """The expected cost of several stages together, as far as it is known."""

    seconds: float
    lm_tokens: float
    bytes: float
    lower_bound: bool  # a stage has no past run to estimate from, and is counted as nothing
    lm_tokens_unknown: bool  # no stage with work for the model has a past run


CACHED, TO_DO, DEPENDS = "cached", "to do", "depends"  # see `plan`


@dataclass(frozen=True, slots=True)
class PlannedShard:
    stage: str
    tool: str  # "" where the stage runs once for all tools
    shard: str
    state: str  # cached | to do | depends
    because: tuple[str, ...] = ()  # why it is not cached; a changed field of a config as `name: old -> new`
    documents: int = 0


@dataclass(frozen=True, slots=True)
class StagePlan:
    """A stage for one tool, over all shards."""

    stage: str
    tool: str
    shards: int
    cached: int
    to_do: int
    depends: int
    because: dict[str, int]  # reason -> number of shards that are not cached for this reason
    estimate: Estimate | None  # for the shards to do; None: no past run to estimate from, or nothing to do
    at_most: Estimate | None  # for the shards to do and those that depend


@dataclass(frozen=True, slots=True)
class Plan:
    stages: tuple[StagePlan, ...]
    shards: tuple[PlannedShard, ...]
    documents: int
    model: str
    data: str
    pilot: str = ""  # command of a small build to estimate from, if a stage has no past run
    notes: tuple[str, ...] = ()  # sentences for the user

    @property
    def nothing_to_do(self) -> bool:
        return all(shard.state == CACHED for shard in self.shards)

    @property
    def total(self) -> Total:
        """The estimate for the shards to do, over all stages."""
        return _total_of([(stage.stage, stage.estimate) for stage in self.stages if stage.to_do])

    @property
    def total_at_most(self) -> Total:
        """The estimate if every shard that depends on an earlier stage is to do as well."""
        return _total_of([(stage.stage, stage.at_most) for stage in self.stages if stage.to_do + stage.depends])


def _total_of(estimates: Sequence[tuple[str, Estimate | None]]) -> Total:
    known = [estimate for _, estimate in estimates if estimate is not None]
    model_stages = {stage.name for stage in BUILD_STAGES if stage.needs == "model"}
    with_model = [estimate for stage, estimate in estimates if stage in model_stages]
    return Total(
        seconds=sum(estimate.seconds for estimate in known),
        lm_tokens=sum(estimate.lm_tokens for estimate in known),
        bytes=sum(estimate.bytes for estimate in known),
        lower_bound=len(known) < len(estimates),
        lm_tokens_unknown=bool(with_model) and not any(with_model),
    )


class PastCommits:
    def __init__(self, store: Store) -> None:
        self._commits: dict[tuple[str, str, str], list[Commit]] = defaultdict(list)  # (stage, tool, shard) -> its own
        self._rows: dict[str, int] = {}  # digest of a file with one row per document -> rows
        self._samples: dict[str, int] = {}  # digest of a file of samples -> k * m
        completed = [r for r in store.runs() if r.state == "completed" and r.commits and r.flow != WHAT_IF]
        last = {key for run in completed[-1:] for key in run.commits}
        for commit in sorted(store.commits(), key=lambda c: (c.key in last, c.created)):
            self._commits[commit.stage, commit.tool, commit.shard].append(commit)
            if commit.stage in ("ingest", "prefilter"):
                self._rows |= {file.digest: file.rows for file in commit.files if file.path.startswith("shards/")}
            if commit.stage == "sample":
                self._samples |= {file.digest: _samples_per_document(commit.config) for file in commit.files}

    def commits_of(self, spec: ShardSpec) -> list[Commit]:
        """Return the commits of a shard, those of the last completed run last."""
        return self._commits[spec.stage, spec.tool, spec.shard]

    def estimate(self, stage: str, tool: str, documents: int, model: str, samples: int = 0) -> Estimate | None:
        """Return the expected cost of a stage and tool: that of past commits, scaled by documents and samples (k * m).

        Commits of the same model, and of as many samples, are preferred.
        """
        all_commits = [c for key, commits in self._commits.items() if key[:2] == (stage, tool) for c in commits]
        same_model = [c for c in all_commits if c.parts.get("model", model) == model]
        candidates = same_model or all_commits
        chosen = [c for c in candidates if self._samples_ratio(c, samples) == 1.0] or candidates
        past_documents = sum(map(self._documents, chosen))
        if not past_documents:
            return None
        ratios = [(c, self._samples_ratio(c, samples)) for c in chosen]
        ratio = documents / past_documents
        return Estimate(
            seconds=ratio * sum(own * c.seconds for c, own in ratios),
            lm_tokens=ratio * sum(own * c.counters.get(LM_TOKENS, 0) for c, own in ratios),
            bytes=ratio * sum(own * file.bytes for c, own in ratios for file in c.files),
            shards=len(chosen),
            same_model=bool(same_model),
            same_samples=all(own == 1.0 for _, own in ratios),
        )

    def _samples_ratio(self, commit: Commit, samples: int) -> float:
        if commit.stage == "sample":
            past_samples = _samples_per_document(commit.config)
        else:
            past_samples = next((self._samples[digest] for digest in commit.inputs if digest in self._samples), 0)
        return samples / past_samples if samples and past_samples else 1.0

    def _documents(self, commit: Commit) -> int:
        if commit.stage == "ingest":
            return sum(file.rows for file in commit.files if file.path.startswith("shards/"))
        return max((self._rows.get(digest, 0) for digest in commit.inputs), default=0)


def _samples_per_document(config: Mapping[str, Any]) -> int:
    """Return k * m of a config of `sample`; 0 if the config does not contain them."""
    return int(config.get("top_k", 0)) * int(config.get("samples", 0))
