"""Pushes to a stand-in for the Hugging Face hub: what arrives there, what is refused, what a user is told."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants
from wh_fixtures import a_training, make_run, put, snapshot_of

from flows.export.delivery import deliver
from flows.export.hub import MANIFEST, PushError, Repository, push
from flows.export.parameters import ExportParameters
from flows.export.run import Pushed
from tests.flows.test_export import EXAMPLES, stored
from tests.support.commands import Run as Command
from tests.support.hub_server import TOKEN, HubServer, Repo, hub_server
from toolformer_core.errors import UsageError
from warehouse.records import Certificate, Training, write_certificate, write_training
from warehouse.store import Store

NAME = "owner/cstar"
BOOKS_ITEM = "Books 58 are lent, so 529 remain? The answer is"  # seven words of the first example


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return stored(tmp_path / "data", EXAMPLES[:2], EXAMPLES[2:])


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HubServer]:
    """The hub that this process's `huggingface_hub` talks to: it reads the environment when it is imported."""
    with hub_server() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        files = f"{server.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", files)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # as the other tests have it
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield server


def asked(store: Store, out: Path, **changes: Any) -> ExportParameters:
    return ExportParameters(**{"data": store.root, "out": str(out), "push": NAME, **changes})


def test_files_card_and_manifest_arrive_in_one_commit(hub: HubServer, store: Store, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    done = deliver(asked(store, out, format="segments", dev=0.4))
    repo = hub.repos[NAME]
    files = {"out.jsonl": "out.jsonl", "out.dev.jsonl": "out.dev.jsonl"}
    files |= {"README.md": "out.card.md", MANIFEST: "out.manifest.json"}
    local = {name: (tmp_path / file).read_bytes() for name, file in files.items()}
    assert repo.files == {".gitattributes": b"", **local}
    (commit,) = repo.commits
    assert commit["summary"] == f"Export of {done.dataset} as segments"
    assert repo.private
    assert done.pushed == Pushed(NAME, f"{hub.url}/datasets/{NAME}", repo.sha, private=True, created=True)


def test_a_folder_keeps_its_files_names(hub: HubServer, store: Store, tmp_path: Path) -> None:
    deliver(asked(store, tmp_path / "cstar", format="hf"))
    parts = {f"cstar/{name}" for name in ("data-00000-of-00001.arrow", "dataset_info.json", "state.json")}
    assert hub.repos[NAME].files.keys() == {".gitattributes", "README.md", MANIFEST, *parts}


def test_the_next_push_replaces_and_removes_the_last_ones_files(hub: HubServer, store: Store, tmp_path: Path) -> None:
    deliver(asked(store, tmp_path / "1" / "out.jsonl", format="segments", dev=0.4))
    repo = hub.repos[NAME]
    repo.files["LICENSE"] = b"theirs"
    before = repo.sha
    done = deliver(asked(store, tmp_path / "2" / "out.jsonl", format="segments"))
    assert repo.files.keys() == {".gitattributes", "LICENSE", "README.md", MANIFEST, "out.jsonl"}
    assert repo.files["LICENSE"] == b"theirs"
    assert repo.files["out.jsonl"] == (tmp_path / "2" / "out.jsonl").read_bytes()
    assert (repo.commits[-1]["parentCommit"], repo.commits[-1]["deleted"]) == (before, ["out.dev.jsonl"])
    assert (done.pushed and done.pushed.created) is False


def test_the_same_export_again_is_no_commit(hub: HubServer, store: Store, tmp_path: Path) -> None:
    deliver(asked(store, tmp_path / "out.jsonl"))
    done = deliver(asked(store, tmp_path / "out.jsonl"))  # found, not written
    assert len(hub.repos[NAME].commits) == 1
    assert (done.pushed and done.pushed.commit) == hub.repos[NAME].sha


def test_a_failed_push_again(hub: HubServer, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out.jsonl"
    hub.refuse["/commit/main"] = 403
    with pytest.raises(PushError, match=r"owner/cstar: the hub at .* answered 403; the token may not write there"):
        deliver(asked(store, out, format="chat"))
    hub.refuse.clear()
    written = out.stat().st_mtime_ns
    done = deliver(asked(store, out, format="chat"))
    assert out.stat().st_mtime_ns == written
    assert (done.examples, done.left_out) == (2, {"glued": 1})
    assert hub.repos[NAME].files["out.jsonl"] == out.read_bytes()
    with pytest.raises(UsageError, match=r"out.jsonl exists already, and is not this export"):
        deliver(asked(store, out, format="segments"))
    out.write_text("altered", encoding="utf-8")
    with pytest.raises(UsageError, match=r"out.jsonl exists already, and is not this export"):
        deliver(asked(store, out, format="chat"))


def test_other_files_are_not_written_over(hub: HubServer, store: Store, tmp_path: Path) -> None:
    hub.repos[NAME] = Repo(True, {"README.md": b"theirs", "out.jsonl": b"theirs", "notes.txt": b"theirs"})
    out = tmp_path / "out.jsonl"
    with pytest.raises(UsageError, match=r"owner/cstar holds files .* \(README.md, notes.txt, out.jsonl\): name"):
        deliver(asked(store, out))
    assert not out.exists()  # it was looked at first
    deliver(asked(store, out, replace=True))
    files = hub.repos[NAME].files
    assert (files["notes.txt"], files["out.jsonl"]) == (b"theirs", out.read_bytes())


def test_a_file_of_that_name_in_no_manifest_is_not_written_over(hub: HubServer, store: Store, tmp_path: Path) -> None:
    deliver(asked(store, tmp_path / "1" / "first.jsonl"))
    hub.repos[NAME].files |= {"out.jsonl": b"theirs", "LICENSE": b"theirs"}
    with pytest.raises(UsageError, match=r"holds files .* \(out.jsonl\): name"):
        deliver(asked(store, tmp_path / "2" / "out.jsonl"))


@pytest.mark.parametrize("manifest", [b"no JSON", b'{"files": []}', b"[]"])
def test_anothers_manifest_says_nothing(hub: HubServer, store: Store, tmp_path: Path, manifest: bytes) -> None:
    hub.repos[NAME] = Repo(True, {MANIFEST: manifest})
    with pytest.raises(UsageError, match=rf"holds files .* \({MANIFEST}\)"):
        deliver(asked(store, tmp_path / "out.jsonl"))


def test_nothing_becomes_public_unasked(hub: HubServer, store: Store, tmp_path: Path) -> None:
    hub.repos[NAME] = Repo(private=False)
    with pytest.raises(UsageError, match="owner/cstar is public: add --public"):
        deliver(asked(store, tmp_path / "out.jsonl"))
    deliver(asked(store, tmp_path / "out.jsonl", public=True))
    done = deliver(asked(store, tmp_path / "out.jsonl", push="owner/open", public=True))
    assert (hub.repos["owner/open"].private, done.pushed and done.pushed.private) == (False, False)


@pytest.mark.parametrize(("name", "file"), [("a.jsonl", "gone"), (".git/a.jsonl", "there")])
def test_what_cannot_be_uploaded_is_one_error(hub: HubServer, tmp_path: Path, name: str, file: str) -> None:
    (tmp_path / "there").touch()
    with pytest.raises(PushError, match=f"{NAME} was not pushed"):
        push(Repository(NAME, "dataset", None), {name: tmp_path / file}, "an export")
    assert NAME not in hub.repos


def test_a_repository_that_is_written_to_meanwhile_is_left_alone(hub: HubServer, store: Store, tmp_path: Path) -> None:
    hub.repos[NAME] = Repo(True)
    hub.before_commit = lambda repo: repo.files.update({"theirs.txt": b"theirs"})
    with pytest.raises(PushError, match="answered 412; it was changed meanwhile: run the same command again"):
        deliver(asked(store, tmp_path / "out.jsonl"))
    assert hub.repos[NAME].commits == []


@pytest.mark.parametrize(
    ("end", "status", "says"),
    [
        ("/repos/create", 409, "it was changed meanwhile"),
        (f"/datasets/{NAME}", 429, "it has had too many requests"),
        (f"/datasets/{NAME}", 418, "so it was told"),
    ],
)
def test_refusals(hub: HubServer, store: Store, tmp_path: Path, end: str, status: int, says: str) -> None:
    hub.refuse[end] = status
    with pytest.raises(PushError, match=f"answered {status}; {says}"):
        deliver(asked(store, tmp_path / "out.jsonl"))


def test_no_token_and_no_network(hub: HubServer, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(error: type[Exception], says: str) -> str:
        with pytest.raises(error, match=says) as caught:
            deliver(asked(store, tmp_path / "out.jsonl"))
        return str(caught.value)

    monkeypatch.setenv("HF_TOKEN", "hf_other")
    told = refused(PushError, "answered 401; it does not accept the token: set HF_TOKEN")
    assert "hf_other" not in told
    monkeypatch.delenv("HF_TOKEN")
    refused(UsageError, "a push needs a token of the hub: set HF_TOKEN")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    refused(PushError, "owner/cstar cannot be pushed offline: unset HF_HUB_OFFLINE")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # the port of `discard`, where nobody listens
    refused(PushError, r"the hub at http://127.0.0.1:9 cannot be reached \(")
    assert not (tmp_path / "out.jsonl").exists()


def test_options_that_belong_to_a_push(store: Store, tmp_path: Path) -> None:
    for name in ("public", "replace", "dry_run"):
        with pytest.raises(UsageError, match=f"--{name.replace('_', '-')} belongs to --push"):
            deliver(asked(store, tmp_path / "out.jsonl", push=None, **{name: True}))
    with pytest.raises(UsageError, match="OWNER/NAME; got 'cstar'"):
        deliver(asked(store, tmp_path / "out.jsonl", push="cstar"))


def test_the_command_says_where_it_lies_and_nowhere_stands_the_token(
    run: Command, hub: HubServer, store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    out = tmp_path / "out.jsonl"
    words = ["export", "--data", store.root, "--format", "chat", out, "--push", NAME]
    said = run(*words)
    where = f"{hub.url}/datasets/{NAME} (made, private), commit {hub.repos[NAME].sha}"
    assert said.out.splitlines() == [f"2 examples written to {out}", "1 left out: glued 1", where]
    pushed = json.loads(run(*words, "--json").out)["pushed"]
    assert (pushed["repository"], pushed["commit"], pushed["private"]) == (NAME, hub.repos[NAME].sha, True)
    hub.refuse["/preupload/main"] = 403
    said = run(*words)
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith(f"error: {NAME}: the hub at {hub.url} answered 403; the token may not write there")
    assert TOKEN not in caplog.text
    held = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(TOKEN.encode() in data for data in held)


def test_a_dry_run_writes_files_and_asks_nothing(run: Command, hub: HubServer, store: Store, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    said = run("export", "--data", store.root, out, "--push", NAME, "--dry-run")
    sizes = [(tmp_path / name).stat().st_size for name in ("out.jsonl", "out.card.md", "out.manifest.json")]
    assert said.out.splitlines()[1:] == [
        *(f"{n:>15,} bytes  {name}" for n, name in zip(sizes, ("out.jsonl", "README.md", MANIFEST), strict=True)),
        "licence of the weights: not stated; of the texts: CC BY-SA 4.0",
        f"nothing was sent: without --dry-run these files go to the dataset repository {NAME}",
    ]
    assert hub.asked == []
    assert run("export", "--data", store.root, out, "--push", NAME).code == 0  # what was written is pushed as it is
    assert hub.repos[NAME].files["out.jsonl"] == out.read_bytes()


@pytest.fixture
def trained(store: Store, tmp_path: Path) -> Training:
    """A training in the data folder, of a base model whose README.md states a licence."""
    base = tmp_path / "small-lm"
    base.mkdir()
    (base / "README.md").write_text("---\nlicense: apache-2.0\n---\n", encoding="utf-8")
    model = Path(store.root) / "finetunes" / "cstar-toolformer-1" / "model"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}", encoding="utf-8")
    (model / "model.safetensors").write_bytes(b"weights")
    recipe = {"batch": 8, "sequence_length": 128, "learning_rate": 1e-5, "seed": 0}
    figures = {"steps": 40, "dev_perplexity": 2.72, "base_perplexity": 3.0, "recipe": recipe}
    version = store.datasets()[0].version
    training = a_training("cstar-toolformer-1", version=version, model=str(base), **figures)
    write_training(store, training)
    about = {"evaluation": "e", "task": "svamp", "arm": "toolformer", "k": 0, "model": str(model), "model_digest": "m"}
    row = {"evaluation": "e", "task": "svamp", "prompt": BOOKS_ITEM, "answers": ["9"]}
    rows = [{**row, "item_id": n, "correct": n == "1"} for n in "12"]
    commit = put(store, "evaluate", "", "e", rows, config=about)
    store.write_run(make_run("r9", [commit.key], flow="evaluate"))
    key = ("e", "svamp", "toolformer", 0, training.dataset, training.version)
    write_certificate(store, Certificate(*key, "b", 13, 2, 0.5, ["1"], 0.0))
    snapshot_of(store)
    return training


def test_a_models_card_names_both_licences(run: Command, hub: HubServer, store: Store, trained: Training) -> None:
    words = ["push", trained.job, NAME, "--data", store.root]
    said = run(*words, "--dry-run")
    assert said.out.splitlines()[-2] == "licence of the weights: apache-2.0; of the texts: CC BY-SA 4.0"
    assert hub.asked == []
    assert run(*words).out.splitlines() == [f"{hub.url}/{NAME} (made, private), commit {hub.repos[NAME].sha}"]
    repo = hub.repos[NAME]
    assert (repo.kind, repo.private) == ("model", True)
    assert repo.files["model.safetensors"] == b"weights"
    card = repo.files["README.md"].decode()
    assert card.startswith("---\nlicense: apache-2.0\nlibrary_name: transformers\n")
    assert "| licence of the texts | CC BY-SA 4.0 |" in card
    assert "| perplexity of held-out texts | 3.00 before, 2.72 after, tools off |" in card
    assert "| svamp | toolformer | 0 | 2 | 50.0 | 1 | 0.0 |" in card  # it knew the one that it answered right
    assert "| licence of the corpus | CC BY-SA 4.0 |" in card  # the dataset's own card
    told = {one["name"]: one["bytes"] for one in json.loads(repo.files[MANIFEST])["files"]}
    assert told == {name: len(data) for name, data in repo.files.items() if name not in (MANIFEST, ".gitattributes")}
    (Path(store.root) / trained.checkpoint / "model.safetensors").unlink()
    assert run(*words).code == 0  # the next push removes what is gone
    assert repo.files.keys() == {".gitattributes", "config.json", "README.md", MANIFEST}


def test_a_model_without_a_licence_or_a_training_is_not_pushed(run: Command, store: Store, trained: Training) -> None:
    Path(trained.model, "README.md").write_text("no header", encoding="utf-8")
    for job, says in (
        ("cstar-toolformer-2", "Did you mean 'cstar-toolformer-1'?"),
        (trained.job, "name it with --licence\n"),
    ):
        said = run("push", job, NAME, "--data", store.root, "--dry-run")
        assert (said.code, says in said.err) == (2, True)
    said = run("push", trained.job, NAME, "--data", store.root, "--dry-run", "--licence", "mit")
    assert "licence of the weights: mit;" in said.out
