"""A build's model that lives behind a server alone: which one it is, and the positions that its scans do not see.

The first build with a model records its probe among the run's parameters. Later builds in the same data folder take the
recorded one, so that the server's rounding does not make their results another model's
(`toolformer_core.lm.remote.identity`).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from flows.build_dataset.parameters import BuildParameters
from tasks.build_spec import BuildSpec
from tasks.settings import model_credentials
from tasks.stages.sample import POSITIONS, SAMPLE, UNSEEN_POSITIONS
from toolformer_core.errors import UsageError
from toolformer_core.lm.remote.engine import describe_remote
from toolformer_core.lm.remote.identity import MOST_LOGPROBS, RemoteModel
from toolformer_core.lm.served import served_model
from warehouse.commits import CommitKey
from warehouse.store import Store

REMOTE_MODEL = "remote_model"  # the parameter of a run that says which model the server served


def remote_model_of(p: BuildParameters) -> RemoteModel | None:
    """Return the model that a server serves, as it says now; None if the build's model is loaded here.

    Raises:
        UsageError: the server cannot be asked or serves something else, or the build wants what it cannot give.
    """
    served = served_model(p.model)
    if served is None or not served.remote:
        if p.tokenizer:
            raise UsageError(f"--tokenizer is for a model behind a server (remote+...); {p.model!r} has its own")
        return None
    folder = Path(p.tokenizer or served.model).expanduser()
    tokenizer = str(folder.absolute()) if folder.is_dir() else p.tokenizer
    now = describe_remote(served.name, tokenizer, model_credentials(p.model))
    return now.recognised(_known_models(Store(p.data)))


def _known_models(store: Store) -> Iterable[RemoteModel]:
    """Yield the models that earlier runs recorded, the last one first."""
    for run in reversed(store.runs()):
        if recorded := run.parameters.get(REMOTE_MODEL):
            yield RemoteModel.from_json(recorded)


def scan_notes(spec: BuildSpec) -> list[str]:
    """Return a note on tools whose tau_s is lower than what the server tells for certain.

    A token that is not among the N most likely ones has at most 1 / (N + 1) of the probability. So a scan is exact for
    every tau_s from there on.
    """
    if spec.remote is None:
        return []
    n = spec.remote.logprobs
    low = {tool: c.tau_s for tool, c in spec.sample.items() if c.tau_s * (n + 1) < 1}
    if not low:
        return []
    names = ", ".join(f"{tool} {tau_s:g}" for tool, tau_s in low.items())
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
