"""A shard done once more, though nothing that it depends on has changed: transient failures of a tool, retried.

Commits are immutable, so the earlier commit stays as it is, and another one follows it. The part `follows` of its
fingerprint is the earlier one's fingerprint, and the earlier one's data is among its inputs. So the commits of a shard
form a chain from which every build, whether it asks again or not, takes the last: what was mended once stays mended.
Two flows that follow up the same commit at the same time compute one shard, with one key and one claim.

    part-00000-a1b2   follows nothing     7 failures transient
    part-00000-c3d4   follows a1b2...     2 failures transient
    part-00000-e5f6   follows c3d4...     0: nothing can follow it

A run follows a commit up only if the commit was there before the run began. So within a run a shard has one result,
even if its task is run twice. Only a commit with transient failures is looked behind: the others cost no reading.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tasks.specs.build_spec import BuildSpec
from warehouse.commits import Commit

if TYPE_CHECKING:
    from tasks.shards.stage import Inputs, Stage

TRANSIENT = "transient"  # the counter of a commit of `execute`: failures that need not come again


def transient_failures(commit: Commit) -> int:
    return int(commit.counters.get(TRANSIENT, 0))


def asks_again(spec: BuildSpec, commit: Commit) -> bool:
    return commit.run_id != spec.run_id and commit.created < spec.retry_failures_before


def last_inputs(stage: Stage[Any], inputs: Inputs[Any]) -> Inputs[Any]:
    """Return the inputs of the last commit of a shard's chain, or of the one that is to follow it."""
    if stage.follow is None:
        return inputs
    store = inputs.spec.store()
    commit = store.read_commit(stage.shard_spec(inputs).key)
    while commit is not None and transient_failures(commit):
        following = replace(inputs, follows=commit, files={**inputs.files, stage.name: commit.files})
        later = store.read_commit(stage.shard_spec(following).key)
        if later is None:
            asks = stage.follow(inputs, commit) and not store.damage(commit)  # a damaged one is done anew
            return following if asks else inputs
        inputs, commit = following, later
    return inputs
