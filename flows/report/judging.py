"""What people's ratings say of the calls: how precise each tool is at a threshold, and how far two people agree."""

import datetime as dt
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Literal

from flows.forms.calls import Ratings
from tasks.specs.rating_filter import Keep, RatingFilter
from toolformer_core.config import tau_f_for
from toolformer_core.errors import UsageError
from toolformer_core.evaluate.statistics import cohens_kappa, wilson
from warehouse.queries.calls import calls_of_documents
from warehouse.ratings import CallIdentity, Verdict, read_ratings, standing
from warehouse.store import Store
from warehouse.what_if import stored_scores

Judgement = Literal["right", "wrong", "open"]


@dataclass(frozen=True, slots=True)
class JudgedCall:
    """A call that somebody has rated."""

    call: CallIdentity
    verdicts: Mapping[str, Verdict]  # user -> the last one
    gain: float | None  # nats, in the current scores; None: they do not hold this call

    @property
    def judgement(self) -> Judgement:
        return judge(self.verdicts.values())


@dataclass(frozen=True, slots=True)
class Precision:
    """The judged calls of a tool that gain at least a threshold; they speak for all only if chosen at random."""

    tool: str
    tau_f: float  # nats
    is_current: bool  # the threshold of the current C*
    right: int
    wrong: int
    open: int
    precision: float  # right / (right + wrong); nan if there are none
    low: float  # of Wilson's interval, 95 %
    high: float


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far two users agree on the calls that both have rated."""

    first: str
    second: str
    calls: int
    same: int  # to which they gave the same verdict
    kappa: float  # Cohen's; nan if chance would agree as well


@dataclass(frozen=True, slots=True)
class Judgements:
    calls: tuple[JudgedCall, ...]  # by document, tool, position
    damaged: int  # lines of the files that are no ratings
    precisions: tuple[Precision, ...]  # by tool and threshold
    agreements: tuple[Agreement, ...]  # of every two users with a call in common

    @property
    def users(self) -> dict[str, int]:
        """How many calls each user has rated."""
        return dict(sorted(Counter(user for call in self.calls for user in call.verdicts).items()))


def judge(verdicts: Iterable[Verdict]) -> Judgement:
    """Return what several users' verdicts on one call come to: right if more accept than reject it, open if as many."""
    counts = Counter(verdicts)
    if counts["accept"] == counts["reject"]:
        return "open"
    return "right" if counts["accept"] > counts["reject"] else "wrong"


def rating_filter(store: Store, keep: Keep, until: str | None = None) -> RatingFilter:
    """Return which calls take part in C*, if only those do that are not rejected, or only those that are accepted.

    Ratings count up to the time `until`, in ISO UTC text; None: all.
    """
    ratings = read_ratings(store, until)[0]
    last = ratings[-1].at if ratings else dt.datetime.now(dt.UTC).isoformat(timespec="microseconds")
    wanted = "wrong" if keep == "not-rejected" else "right"
    verdicts = standing(ratings)
    calls = frozenset(call.digest for call, users in verdicts.items() if judge(users.values()) == wanted)
    return RatingFilter(keep, until or last, calls)  # every rating that follows has a later time, whatever clocks say


def chosen_ratings(store: Store, ratings: Ratings) -> RatingFilter | None:
    """Return the filter that a user's option asks for; None for `all`."""
    if ratings == "all":
        return None
    found = rating_filter(store, ratings)
    if ratings == "accepted" and not found.calls:
        raise UsageError(f"--ratings accepted would keep nothing: nobody has accepted a call of {store.root} yet")
    return found


def judgements(store: Store, snapshot: str | Path, thresholds: Sequence[float] = (0.5, 1.0, 2.0)) -> Judgements:
    """Return what the ratings in a data folder say of the calls of its current scores.

    Precision is that at `thresholds`, in nats, besides each tool's own (default: Toolformer, Table 2).
    """
    ratings, damaged = read_ratings(store)
    verdicts = standing(ratings)
    gains = {
        CallIdentity(row["doc_id"], row["tool"], row["position"], row["input"], row["response"]): row["gain"]
        for row in calls_of_documents(snapshot, {call.doc_id for call in verdicts})
    }
    calls = tuple(JudgedCall(call, verdicts[call], gains.get(call)) for call in sorted(verdicts))
    current = stored_scores(snapshot).assembled.get("tau_f", {})
    precisions = [
        _precision(tool, tau_f, tau_f == own, calls)
        for tool in sorted({call.call.tool for call in calls})
        for own in [tau_f_for(tool, current)]
        for tau_f in sorted({own, *thresholds})
    ]
    return Judgements(calls, damaged, tuple(precisions), tuple(_agreements(calls)))


def _precision(tool: str, tau_f: float, is_current: bool, calls: Iterable[JudgedCall]) -> Precision:
    passing = (call for call in calls if call.call.tool == tool and call.gain is not None and call.gain >= tau_f)
    said = Counter(call.judgement for call in passing)
    right, n = said["right"], said["right"] + said["wrong"]
    share, low, high = (right / n, *wilson(right, n)) if n else (math.nan,) * 3
    return Precision(tool, tau_f, is_current, right, said["wrong"], said["open"], share, low, high)


def _agreements(calls: Sequence[JudgedCall]) -> Iterable[Agreement]:
    users = sorted({user for call in calls for user in call.verdicts})
    for first, second in combinations(users, 2):
        both = [call.verdicts for call in calls if first in call.verdicts and second in call.verdicts]
        if both:
            pairs = [(verdicts[first], verdicts[second]) for verdicts in both]
            yield Agreement(first, second, len(both), sum(one == other for one, other in pairs), cohens_kappa(pairs))
