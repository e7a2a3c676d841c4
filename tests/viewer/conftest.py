"""A hand-made data folder: five documents in two shards, their calls, one version of C*, and hostile texts."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from wh_fixtures import CREATED, make_run, put, put_dataset, scored, snapshot_of

from viewer.app import make_app
from warehouse.store import Store

APPLES = "Two and two make 4 apples, so 4 in all."
HOSTILE = "<script>alert(1)</script> & [QA(1) -> 2] \u202eback\u202c שלום"
INPUT = '"><img src=x onerror=alert(2)>'
LONG = "word " * 25_000  # 125,000 characters
ORIGIN = "http://127.0.0.1:8001"
ROWS: dict[str, list[str]] = {"s0": ["apples", "hostile", "long"], "s1": ["plain", "unlucky"]}
TEXTS = {"apples": APPLES, "hostile": HOSTILE, "long": LONG}
TEXTS |= {"plain": "Nothing to count.", "unlucky": "Ten of these 7 failed."}

# Weights 5, 4, 3, 2, 1 fifteenths. L(eps) = (3 * 5 + 4 + 3 + 2 + 1) / 15 = 25/15, L(e(c, eps)) = (13.5 + 10) / 15,
# L+ = (1.5 + 4 + 3 + 2 + 2 * 1) / 15 = 12.5/15: the gain is (23.5 - 12.5) / 15 = 11/15.
BEST: dict[str, Any] = {
    "loss_plain": 25 / 15,
    "loss_call": 23.5 / 15,
    "loss_response": 12.5 / 15,
    "log_p_plain": [-3.0, -1.0, -1.0, -1.0, -1.0],
    "log_p_call": [-2.7, -1.0, -1.0, -1.0, -1.0],
    "log_p_response": [-0.3, -1.0, -1.0, -1.0, -2.0],
}

CALLS = {
    "calculator": [
        scored("apples", "calculator", 16, 11 / 15, input="2 + 2", response="4", **BEST),
        scored("apples", "calculator", 16, 0.6, input="2 * 2", response="4"),
        scored("apples", "calculator", 29, 0.1, input="3 + 1", response="4"),
        scored("hostile", "calculator", 25, 2.0, input=INPUT, response="<b>bold</b>"),
        scored("long", "calculator", 110_000, 1.5, input="9" * 100_000, response="1"),
    ],
    "qa": [scored("apples", "qa", 16, 0.2, input="How many apples?", response="4")],
}


def _put_shard(store: Store, shard: str) -> list[Any]:
    ids = ROWS[shard]
    documents = [
        {"doc_id": one, "text": TEXTS[one], "source": "a.jsonl", "line": line}
        | {"url": f"https://www.{one}.example/page", "created": f"20{10 + len(one)}-01-02"}
        for line, one in enumerate(ids)
    ]
    first = put(store, "ingest", "", shard, documents)
    after = {"inputs": (first.files[0].digest,)}
    commits = [first]
    for tool, calls in CALLS.items():
        own = [call for call in calls if call["doc_id"] in ids]
        kept = [{"doc_id": one, "tool": tool, "kept": one != "plain", "reason": "no_number"} for one in ids]
        drawn = [{**call, "rank": 0, "raw": call["input"], "outcome": "ok", "log_p": -1.0, "count": 2} for call in own]
        drawn = [{**row, "rank": 1} if row["position"] == 29 else row for row in drawn]
        answers = [{"tool": tool, "input": call["input"], "response": call["response"]} for call in own]
        if shard == "s1" and tool == "calculator":
            drawn += [
                {"doc_id": "unlucky", "tool": tool, "position": 3, "raw": "1 +", "outcome": "unparsable", "count": 3},
                {"doc_id": "unlucky", "tool": tool, "position": 3, "raw": "7 / 0", "outcome": "ok", "input": "7 / 0"},
            ]
            answers += [{"tool": tool, "input": "7 / 0", "failure": "division_by_zero", "detail": "0"}]
        commits.append(put(store, "prefilter", tool, shard, kept, **after))
        sampling = {"top_k": 5, "tau_s": 0.0, "samples": 5}
        commits.append(put(store, "sample", tool, shard, drawn, config=sampling, **after))
        commits.append(put(store, "execute", tool, shard, answers, **after))
        commits.append(put(store, "score", tool, shard, own, config={"decay": 0.2, "floor": 0.0}, **after))
    best = [CALLS["calculator"][at] for at in (0, 3, 4) if CALLS["calculator"][at]["doc_id"] in ids]
    examples = [_example(call) for call in best]
    return [*commits, put(store, "assemble", "", shard, examples, config={"max_examples": 25_000}, **after)]


def _example(call: dict[str, Any]) -> dict[str, Any]:
    written = f" [Calculator({call['input']}) -> {call['response']}]"
    at, text = call["position"], TEXTS[call["doc_id"]]
    span = {name: call[name] for name in ("tool", "position", "input", "response", "gain")}
    inserted = {**span, "start": at, "end": at + len(written)}
    return {"doc_id": call["doc_id"], "text": text[:at] + written + text[at:], "calls": [inserted]}


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = Store(tmp_path_factory.mktemp("viewed") / "data")
    commits = [commit for shard in ROWS for commit in _put_shard(store, shard)]
    told = {"finished": CREATED, "parameters": {"tools": list(CALLS)}, "model": "embedded"}
    store.write_run(make_run("r1", [commit.key for commit in commits], **told))
    examples = [commit for commit in commits if commit.stage == "assemble"]
    figures = {"counts": {"calculator": 3, "qa": 0}, "thresholds": {"calculator": 0.5, "qa": 1.0}}
    put_dataset(store, "cstar", examples, model="embedded", corpus="a.jsonl", **figures)
    snapshot_of(store)
    return Path(store.root)


@contextmanager
def pages(folder: Path, headers: dict[str, str] | None = None) -> Iterator[TestClient]:
    with TestClient(make_app(str(folder)), base_url=ORIGIN, headers=headers) as found:
        yield found


def changed(data: Path, folder: Path, change: Callable[[Store], object] = lambda _: None) -> Path:
    """Return a copy of a data folder that was changed and published anew."""
    store = Store(shutil.copytree(data, folder / "data"))
    change(store)
    (Path(store.root) / "warehouse.duckdb").unlink()
    snapshot_of(store)
    return Path(store.root)


@pytest.fixture(scope="session")
def version(data: Path) -> str:
    [dataset] = Store(data).datasets()
    return f"{dataset.name}@{dataset.version}"


@pytest.fixture(scope="module")
def client(data: Path) -> Iterator[TestClient]:
    with pages(data) as found:
        yield found


@pytest.fixture(scope="module")
def page(client: TestClient) -> Callable[..., str]:
    def get(path: str, **query: Any) -> str:
        answer = client.get(path, params=query or None)
        assert answer.status_code == 200, answer.text
        return answer.text

    return get
