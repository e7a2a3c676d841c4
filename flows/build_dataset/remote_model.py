"""A build's model that lives behind a server alone: which one it is, and the positions that its scans do not see."""

import math
from collections.abc import Iterable

from flows.build_dataset.record import BuildRecord
from tasks.settings import model_credentials
from tasks.specs.build_spec import BuildSpec
from tasks.stages.sample import POSITIONS, SAMPLE, UNSEEN_POSITIONS
from toolformer_core.lm.reference import ModelRef
from toolformer_core.lm.remote.engine import describe_remote
from toolformer_core.lm.remote.identity import MOST_LOGPROBS, RemoteModel
from warehouse.commits import CommitKey
from warehouse.store import Store


def remote_model_of(model: ModelRef, store: Store) -> RemoteModel | None:
    """Return the model that a server serves; None if the build's model is loaded here.

    An earlier build's record of the same model is returned, so that the server's rounding makes no other model of it.
    """
    if model.kind != "remote":
        return None
    earlier = (BuildRecord(run.parameters).remote for run in reversed(store.runs()))
    known = (recorded for recorded in earlier if recorded is not None)
    return describe_remote(model, model_credentials(model)).recognised(known)


def scan_notes(spec: BuildSpec) -> list[str]:
    """Return a note on tools whose tau_s is lower than 1 / (N + 1), the most of a token outside the N reported."""
    n = math.inf if spec.remote is None else spec.remote.logprobs
    names = ", ".join(f"{tool} {c.tau_s:g}" for tool, c in spec.sample.items() if c.tau_s * (n + 1) < 1)
    if spec.remote is None or not names:
        return []
    most = "" if n == MOST_LOGPROBS else " or start the server with a larger --max-logprobs"
    return [
        f"the server tells the {n:,} most likely tokens of a position, so that scanning is exact for a tau_s of at "
        f"least {1 / (n + 1):.2g} ({names}): where ' [' is not among them, no call is tried; the build counts these "
        f"positions. Set --tau-s higher{most}"
    ]


def unseen_notes(store: Store, keys: Iterable[CommitKey], tools: Iterable[str]) -> list[str]:
    """Return a note per tool on the positions that the scans of a run did not see, though they may exceed tau_s."""
    counts = {tool: [0, 0] for tool in tools}
    for key in keys:
        if key.stage == SAMPLE.name and (commit := store.read_commit(key)) is not None:
            counts[key.tool][0] += int(commit.counters.get(UNSEEN_POSITIONS, 0))
            counts[key.tool][1] += int(commit.counters.get(POSITIONS, 0))
    return [
        f"{tool}: at {unseen:,} of {positions:,} positions the server did not tell p(' ['), which may exceed tau_s "
        "there; no call was tried"
        for tool, (unseen, positions) in counts.items()
        if unseen
    ]
