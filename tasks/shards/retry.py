"""A shard done once more, though nothing that it depends on has changed: transient failures of a tool, retried.

Another commit follows the earlier one, whose fingerprint is the part `follows` of its own. Every build takes the last
of such a chain; a run follows up only commits from before it.
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
