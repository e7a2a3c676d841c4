"""Judge: kept calls of one tool in a random order, one at a time, and what people's ratings come to so far.

The order depends on a seed alone, so the calls that are judged are a random sample of the tool's kept calls.
"""

from collections.abc import Mapping
from typing import Any, get_args

from flows.report.judging import judgements
from toolformer_core.syntax import written_calls
from viewer.data import ViewedData
from viewer.query import NotThereError, Query, WrongQueryError
from warehouse.queries.calls import calls_of_documents
from warehouse.ratings import CallIdentity, Verdict, add_ratings, read_ratings, standing

_WIDTH = 600  # characters of text around the call
# verdict -> what the button says, and the key that presses it
VERDICTS: dict[Verdict, tuple[str, str]] = {
    "accept": ("Accept", "a"),
    "reject": ("Reject", "r"),
    "unsure": ("Unsure", "u"),
}


def page(viewed: ViewedData, query: Query, user: str) -> Mapping[str, Any]:
    now, names = viewed.thresholds().before, viewed.names()
    kept = [one.tool for one in viewed.yields_now() if one.calls]
    tool = query.choice("tool", now.tau_f) or next(iter(kept or now.tau_f))
    seed = query.whole("seed") or 0
    said = judgements(viewed.store, viewed.snapshot, ())
    own = [one.call for one in said.calls if user in one.verdicts and one.call.tool == tool]
    last = next((one for one in reversed(read_ratings(viewed.store)[0]) if one.user == user), None)
    last = last if last and last.verdict != "none" else None
    drawn = viewed.calls().draw(now, tool, seed, [(call.doc_id, call.position) for call in own], _WIDTH)
    shown: dict[str, Any] = {}
    if (found := drawn.call) is not None:
        call = CallIdentity(found.doc_id, tool, found.position, found.input, found.response)
        shown = {"written": written_calls(found.links, names), "digest": call.digest}
    return {
        "tool": tool,
        "tools": list(now.tau_f),
        "seed": seed,
        "call": found,
        "left": drawn.left,
        "total": drawn.total,
        "said": said,
        "tables": {"precisions": said.precisions, "agreements": said.agreements},
        "user": user,
        "verdicts": VERDICTS,
        "back": query.to("/judge"),
        "last": last,
        "last_written": last and written_calls([(last.call.tool, last.call.input, last.call.response)], names),
        "others": [one for one in kept if one != tool],
        **shown,
    }


def rate(viewed: ViewedData, form: Query, user: str) -> None:
    """Add a user's rating: `doc` is the document's id, `call` the digest of one of its calls."""
    verdict = next((one for one in get_args(Verdict) if one == form.text("verdict")), None)
    if verdict is None:
        raise WrongQueryError(f"verdict is one of {', '.join(get_args(Verdict))}")
    if verdict == "none":  # also where the current scores do not hold the call any more
        own = {one.call.digest: one.call for one in read_ratings(viewed.store)[0] if one.user == user}
        if rated := own.get(form.text("call")):
            add_ratings(viewed.store, user, [(rated, verdict)])
            return
    for row in calls_of_documents(viewed.snapshot, [form.text("doc")]):
        call = CallIdentity(row["doc_id"], row["tool"], row["position"], row["input"], row["response"])
        if call.digest == form.text("call"):
            add_ratings(viewed.store, user, [(call, verdict)])
            return
    raise NotThereError("the current scores do not hold this call any more")


def ratings_of(viewed: ViewedData, doc_id: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a call's panel needs to judge it: its digest, and each user's last verdict on it."""
    call = CallIdentity(doc_id, row["tool"], row["position"], row["input"], row["response"])
    ratings, _ = read_ratings(viewed.store)
    users = standing(one for one in ratings if one.call == call).get(call, {})
    return {"digest": call.digest, "users": dict(sorted(users.items())), "verdicts": VERDICTS}
