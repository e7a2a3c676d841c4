"""Exports of a small dataset, made by hand: what is written, what is left out, and that it is all or nothing."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.export.previews import preview
from flows.export.run import ExportResult, export_to
from flows.export.settings import ExportSettings
from tasks.shards.arrow import stage_table
from tests.support.commands import Run as Command
from tests.support.examples_of_c_star import BOOKS, CHATML, an_example
from tests.tiny import tokenizer
from tests.wh_fixtures import CREATED, make_commit, make_run
from toolformer_core.errors import UnknownNameError, UsageError
from toolformer_core.export.conversation import REQUEST, Requests
from toolformer_core.export.restore import restore
from toolformer_core.finetune.texts import encode_texts, held_out_share, training_text
from toolformer_core.records import Example
from toolformer_core.syntax import strip
from warehouse.commits import Dataset, dataset_version
from warehouse.store import Store

DATED = an_example("It is late, says the clock.", (11, "calendar", "", "Today is [Monday]."), doc_id="dated")
# One that has no turns: the call stands within a word.
GLUED = an_example("Half is 0.5.", (9, "calculator", "1 / 2", "0.50"), doc_id="glued")
EXAMPLES = [replace(BOOKS, doc_id="books"), DATED, GLUED]


def stored(folder: Path, *shards: list[Example], **parameters: Any) -> Store:
    """A store with a dataset of these examples, a file for each list."""
    store = Store(folder)
    files = tuple(
        store.write("assemble", "", f"s{i}", "f" * 32, stage_table("assemble", examples))
        for i, examples in enumerate(shards)
    )
    counts = {"calculator": 2, "calendar": 1}
    about = {"thresholds": {"calculator": 0.5, "calendar": 1.0}, "run_id": "r1", "model": "m", "corpus": "c"}
    store.commit(make_commit("assemble", "", "s0", files[:1]))
    store.write_run(make_run("r1", [], parameters={"tools": ["calculator", "calendar"], **parameters}))
    store.write_dataset(
        Dataset("cstar", dataset_version(files), files, counts, created=CREATED, licence="CC BY-SA 4.0", **about)
    )
    return store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return stored(tmp_path / "data", EXAMPLES[:2], EXAMPLES[2:])


@pytest.fixture
def coded(tmp_path: Path) -> str:
    """A folder with a tokenizer that has a chat template, and no model."""
    folder = tmp_path / "coded"
    own = tokenizer()
    own.chat_template = CHATML
    own.save_pretrained(folder)
    own.chat_template = None
    return str(folder)


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def exported(store: Store, out: Path, *settings: Any, **more: Any) -> tuple[ExportResult, list[dict[str, Any]]]:
    done = export_to(store, "cstar", out, ExportSettings(*settings, **more))
    return done, rows_of(out)


def loaded(path: Path, tmp_path: Path) -> list[dict[str, Any]]:
    datasets = pytest.importorskip("datasets", reason="the extra `hf` is not installed")
    datasets.disable_progress_bars()
    return list(datasets.load_dataset("json", data_files=str(path), split="train", cache_dir=str(tmp_path / "cache")))


def test_segments(store: Store, tmp_path: Path) -> None:
    done, rows = exported(store, tmp_path / "out.jsonl", "segments")
    assert [restore(row) for row in rows] == [example.text for example in EXAMPLES]
    assert rows[1]["segments"][1] == {"label": False, "text": "Today is (Monday)."}
    # masked: "529", "Today is (Monday)." and "0.50"
    assert done.counts["masked"] == 3 + 18 + 4
    assert done.counts["characters"] == sum(len(example.text) for example in EXAMPLES)
    assert loaded(tmp_path / "out.jsonl", tmp_path) == rows


def test_tokens_are_those_of_a_finetuning(store: Store, coded: str, tmp_path: Path) -> None:
    done, rows = exported(store, tmp_path / "out.jsonl", "tokens", tokenizer=coded)
    assert all(set(row) == {"input_ids", "attention_mask", "labels"} for row in rows)
    own = tokenizer()
    end = own.eos_token_id
    texts = [training_text(example, "toolformer") for example in EXAMPLES]
    pieces = encode_texts(own, texts, start=end, end=end, length=1_000)
    assert [row["input_ids"] for row in rows] == [piece.ids.tolist() for piece in pieces]
    for row in rows:
        assert (row["labels"][0], row["labels"][-1]) == (-100, end)
        assert all(label in (token, -100) for label, token in zip(row["labels"], row["input_ids"], strict=True))
    masked = [own.decode([t for t, x in zip(r["input_ids"], r["labels"], strict=True) if x == -100][1:]) for r in rows]
    # of this tokenizer, in whose texts no number follows an arrow, the space in front is a token by itself
    assert masked == ["529", "Today is (Monday).", "0.50"]
    assert done.counts["tokens"] == sum(len(row["input_ids"]) for row in rows)
    assert done.counts["trained"] + done.counts["masked"] == done.counts["tokens"]
    assert loaded(tmp_path / "out.jsonl", tmp_path) == rows


@pytest.mark.parametrize("arguments", ["json", "dict"])
def test_messages_are_the_same_once_datasets_has_read_them(store: Store, tmp_path: Path, arguments: Any) -> None:
    done, rows = exported(store, tmp_path / "out.jsonl", "chat", arguments=arguments)
    assert (done.examples, done.left_out) == (2, {"glued": 1})
    calls = [row["messages"][1]["tool_calls"][0]["function"]["arguments"] for row in rows]
    assert calls == (['{"input": "587 - 58"}', "{}"] if arguments == "json" else [{"input": "587 - 58"}, {}])
    assert rows[1]["messages"][2]["content"] == "Today is [Monday]."
    read = loaded(tmp_path / "out.jsonl", tmp_path)
    assert [restore(row) for row in read] == [example.text for example in EXAMPLES[:2]]
    assert [row["tools"] for row in read] == [row["tools"] for row in rows]
    functions = [tool["function"] for tool in json.loads(read[0]["tools"])]
    named = [(function["name"], list(function["parameters"]["properties"])) for function in functions]
    assert named == [("Calculator", ["input"]), ("Calendar", [])]
    assert functions[1]["description"].startswith("Takes no input")
    assert any("fills the dicts with nulls" in note for note in done.notes) is (arguments == "dict")


def test_sharegpt(store: Store, tmp_path: Path) -> None:
    exported(store, tmp_path / "out.jsonl", "chat", dialect="sharegpt", request="Write on:", next_request="And?")
    first, second = loaded(tmp_path / "out.jsonl", tmp_path)
    assert first["conversations"][0] == {"from": "human", "value": "Write on:\n\nOf 587 books 58 are lent, so"}
    assert json.loads(second["conversations"][1]["value"]) == {"name": "Calendar", "arguments": {}}
    assert restore(first, Requests("Write on:", "And?")) == BOOKS.text


def test_a_conversation_as_a_chat_template_writes_it(store: Store, coded: str, tmp_path: Path) -> None:
    _, rows = exported(store, tmp_path / "out.jsonl", "chat", dialect="text", tokenizer=coded)
    system, user, call, *turns = rows[0]["text"].split("<|im_end|>\n")
    assert system.startswith("<|im_start|>system\nCalculator: ")
    assert user == f"<|im_start|>user\n{REQUEST}\n\nOf 587 books 58 are lent, so"
    assert call.endswith('<tool_call>{"name": "Calculator", "arguments": {"input": "587 - 58"}}</tool_call>')
    assert turns == ["<|im_start|>tool\n529", "<|im_start|>assistant\n529 remain.", ""]


def test_a_text_with_a_special_token_is_not_rendered(coded: str, tmp_path: Path) -> None:
    marked = an_example("So <end> 1 is", (10, "calculator", "2 - 1", "1"), doc_id="marked")
    store = stored(tmp_path / "data", [BOOKS, marked])
    done, _ = exported(store, tmp_path / "out.jsonl", "chat", dialect="text", tokenizer=coded)
    assert done.left_out == {"special": 1}


@pytest.mark.parametrize("format_", ["text", "jsonl", "hf", "segments", "chat"])
def test_a_dev_split_holds_the_same_documents_in_every_format(tmp_path: Path, format_: Any) -> None:
    examples = [replace(BOOKS, doc_id=f"d{i}") for i in range(40)]
    store = stored(tmp_path / "data", examples[:7], examples[7:])
    done = export_to(store, "cstar", tmp_path / "out.jsonl", ExportSettings(format_, dev=0.05, seed=3))
    assert (done.examples, done.dev) == (40, 2)  # 5 % of 40
    held = held_out_share([example.doc_id for example in examples], 0.05, 3)
    if format_ == "jsonl":
        assert {row["doc_id"] for row in rows_of(tmp_path / "out.dev.jsonl")} == held
        assert len(rows_of(tmp_path / "out.jsonl")) == 38
    if format_ == "hf":
        rows = {file["name"]: file.get("rows") for file in done.manifest["files"]}
        assert (rows["out.jsonl/data-00000-of-00001.arrow"], rows["out.dev.jsonl/state.json"]) == (38, None)
        datasets = pytest.importorskip("datasets", reason="the extra `hf` is not installed")
        assert set(datasets.load_from_disk(str(tmp_path / "out.dev.jsonl"))["doc_id"]) == held
        assert len(datasets.load_from_disk(str(tmp_path / "out.jsonl"))) == 38


def test_a_share_is_rounded_and_at_least_one() -> None:
    assert [len(held_out_share(map(str, range(n)), 0.05, 0)) for n in (1, 9, 30, 50, 100)] == [1, 1, 2, 2, 5]
    ids = [str(i) for i in range(100)]
    assert held_out_share(ids, 0.05, 0) < held_out_share(ids, 0.1, 0)


def test_card_and_manifest(store: Store, tmp_path: Path) -> None:
    done = export_to(store, "cstar", tmp_path / "out.jsonl", ExportSettings("chat", dialect="sharegpt"))
    manifest = json.loads((tmp_path / "out.manifest.json").read_text(encoding="utf-8"))
    assert manifest == done.manifest
    assert manifest["examples"] == {"read": 3, "train": 2, "dev": 0, "left_out": {"glued": 1}}
    assert manifest["calls"] == {"calculator": 1, "calendar": 1}
    assert manifest["requests"]["first"] == REQUEST
    for file in manifest["files"]:
        data = (tmp_path / file["name"]).read_bytes()
        assert (file["bytes"], file["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
    assert [file["name"] for file in manifest["files"]] == ["out.jsonl", "out.card.md"]
    card = (tmp_path / "out.card.md").read_text(encoding="utf-8")
    _, header, body = card.split("---\n", 2)
    assert yaml.safe_load(header) == {
        "pretty_name": manifest["dataset"]["name"] + "@" + manifest["dataset"]["version"],
        "license": "cc-by-sa-4.0",
        "annotations_creators": ["machine-generated"],
        "task_categories": ["text-generation"],
        "tags": ["toolformer", "tool-use", "function-calling"],
        "size_categories": ["n<1K"],
        "configs": [{"config_name": "default", "data_files": [{"split": "train", "path": "out.jsonl"}]}],
    }
    for says in ("| left out | glued 1 |", "| calculator | 0.5 | 2 |", manifest["files"][0]["sha256"], "## Limits"):
        assert says in body
    again = export_to(store, "cstar", tmp_path / "again" / "out.jsonl", ExportSettings("chat", dialect="sharegpt"))
    assert [p.read_bytes() for p in again.files] == [p.read_bytes() for p in done.files]


def test_a_licence_that_the_hub_does_not_know_is_named(tmp_path: Path) -> None:
    store = stored(tmp_path / "data", [BOOKS])
    (dataset,) = store.datasets()
    for stated, header in (("", "license: unknown\n"), ("Ours: ask", "license: other\nlicense_name: 'Ours: ask'\n")):
        name = f"n{len(stated)}"
        store.write_dataset(replace(dataset, name=name, licence=stated))
        export_to(store, name, tmp_path / name, ExportSettings("text"))
        assert header in (tmp_path / f"{name}.card.md").read_text(encoding="utf-8")


def test_a_tool_that_cannot_be_built_is_described_by_its_name(tmp_path: Path) -> None:
    store = stored(tmp_path / "data", EXAMPLES[:2], tools=["calculator"], tool=["gone.py:miles"])
    (dataset,) = store.datasets()
    store.write_dataset(replace(dataset, name="own", thresholds={**dataset.thresholds, "miles": 1.0}))
    done = export_to(store, "own", tmp_path / "out.jsonl", ExportSettings("chat"))
    tools = json.loads(rows_of(tmp_path / "out.jsonl")[0]["tools"])
    assert [tool["function"]["name"] for tool in tools] == ["Calculator", "Calendar", "miles"]
    (note,) = done.notes
    assert note.startswith("the schema of miles has no description, because the tool could not be built here (")


@pytest.mark.parametrize("arguments", ["json", "dict"])
def test_calls_of_a_function_with_annotations_have_typed_arguments(tmp_path: Path, arguments: Any) -> None:
    (tmp_path / "shop.py").write_text("def convert(amount: float, unit: str = 'mi'): return ''\n", "utf-8")
    calls = ["amount=3, unit=km", "amount = 2", "26.2 miles"]  # the last is of an earlier function
    runs = [an_example("a run of 3 of it", (8, "convert", call, "5"), doc_id=call) for call in calls]
    named = {"tool": [f"{tmp_path}/shop.py:convert"], "tool_names": {"convert": "Convert"}}
    store = stored(tmp_path / "data", [EXAMPLES[0], *runs], **named)
    (dataset,) = store.datasets()
    counts = {"calculator": 1, "convert": 3}
    store.write_dataset(replace(dataset, name="own", thresholds=dict.fromkeys(counts, 1.0), counts=counts))
    done = export_to(store, "own", tmp_path / "out.jsonl", ExportSettings("chat", arguments=arguments))
    assert (done.examples, done.left_out) == (3, {"arguments": 1})
    assert any("fills the dicts with nulls" in note for note in done.notes) is (arguments == "dict")
    rows = rows_of(tmp_path / "out.jsonl")
    given = [row["messages"][1]["tool_calls"][0]["function"]["arguments"] for row in rows]
    read = given if arguments == "dict" else [json.loads(one) for one in given]
    assert read == [{"input": "587 - 58"}, {"amount": 3, "unit": "km"}, {"amount": 2}]
    texts = [example.text for example in [EXAMPLES[0], *runs[:2]]]
    assert [restore(row) for row in loaded(tmp_path / "out.jsonl", tmp_path)] == texts


def test_a_failure_leaves_nothing(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "new" / "out.jsonl"
    only_glued = stored(tmp_path / "glued", [GLUED])
    with pytest.raises(UsageError, match=r"no example of cstar@.* can be exported: of 1 left out: glued 1"):
        export_to(only_glued, "cstar", out, ExportSettings("chat"))
    assert list(out.parent.iterdir()) == []
    renamed = Path.rename

    def rename(self: Path, target: Path) -> Path:
        if target == out:
            raise OSError(28, "No space left on device")
        return renamed(self, target)

    monkeypatch.setattr(Path, "rename", rename)  # the last of all
    with pytest.raises(UsageError, match="cannot be written: No space left on device"):
        export_to(store, "cstar", out, ExportSettings(dev=0.5))
    assert list(out.parent.iterdir()) == []


def test_a_folder_that_is_there_and_a_split_that_takes_all(tmp_path: Path) -> None:
    store = stored(tmp_path / "data", [BOOKS])
    for out, dev, says in ((Path("."), 0.0, "exists already"), (tmp_path / "out", 0.05, "falls into the dev split")):
        with pytest.raises(UsageError, match=says):
            export_to(store, "cstar", out, ExportSettings(dev=dev))


@pytest.mark.parametrize("there", ["out.jsonl", "out.dev.jsonl", "out.card.md", "out.manifest.json"])
def test_nothing_is_written_over(store: Store, tmp_path: Path, there: str) -> None:
    (tmp_path / there).write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match=f"{there} exists already"):
        export_to(store, "cstar", tmp_path / "out.jsonl", ExportSettings(dev=0.5))
    assert (tmp_path / there).read_text(encoding="utf-8") == "mine"


def test_a_dev_split_without_a_row_is_no_file(tmp_path: Path) -> None:
    held = "glued"  # of the three documents, the one that seed 1 holds out
    (seed,) = [s for s in range(20) if held_out_share([e.doc_id for e in EXAMPLES], 0.05, s) == {held}][:1]
    store = stored(tmp_path / "data", EXAMPLES)
    done = export_to(store, "cstar", tmp_path / "out.jsonl", ExportSettings("chat", dev=0.05, seed=seed))
    assert (done.dev, done.notes) == (0, ("there is no dev split: none of its documents has a row",))
    assert not (tmp_path / "out.dev.jsonl").exists()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"format": "tokens"}, "--tokenizer: --format tokens needs a model's"),
        ({"format": "chat", "dialect": "text"}, "--tokenizer: --format chat --dialect text needs a model's"),
        ({"format": "jsonl", "tokenizer": "embedded"}, "--tokenizer belongs to --format tokens"),
        ({"format": "tokens", "dialect": "openai"}, "--dialect belongs to --format chat"),
        ({"format": "chat", "dialect": "sharegpt", "arguments": "dict"}, "--arguments belongs to"),
        ({"format": "chat", "next_request": "On."}, "--next-request belongs to --format chat --dialect sharegpt"),
        ({"format": "segments", "separator": "x"}, "--separator belongs to --format text"),
        ({"format": "text", "separator": " "}, "one line that is not blank"),
        ({"dev": float("nan")}, "at most 0.5"),
    ],
)
def test_settings_that_do_not_fit_together(given: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        ExportSettings(**given)


@pytest.mark.parametrize("name", ["format", "dialect", "arguments"])
def test_unknown_names(name: str) -> None:
    given: dict[str, Any] = {"format": "chat", name: "jsonn"}
    with pytest.raises(UnknownNameError, match="Valid: "):
        ExportSettings(**given)


def test_a_preview_shows_what_is_masked(store: Store, coded: str, tmp_path: Path) -> None:
    first, *others = preview(store, "cstar", ExportSettings("segments"))
    assert (first.parts[1], [one.doc_id for one in others]) == (("529", False), ["dated", "glued"])
    first, *_ = preview(store, "cstar", ExportSettings("tokens", tokenizer=coded))
    assert [text for text, trained in first.parts if not trained] == ["<end>", "529"]
    first, *others = preview(store, "cstar", ExportSettings("chat"))
    assert [one.doc_id for one in others] == ["dated"]
    assert [text for text, trained in first.parts if trained] == [" [Calculator(587 - 58)]", "529 remain."]
    assert len(preview(store, "cstar", ExportSettings("segments"), count=1)) == 1
    with pytest.raises(UsageError, match="nothing in them is masked"):
        preview(store, "cstar", ExportSettings("jsonl"))


def test_jsonl_gives_the_plain_text_back(store: Store, tmp_path: Path) -> None:
    _, (row, *_) = exported(store, tmp_path / "out.jsonl")
    assert restore(row) == BOOKS.text
    spans = [(call["start"], call["end"]) for call in row["calls"]]
    assert strip(row["text"], spans) == "Of 587 books 58 are lent, so 529 remain."


def test_the_command(run: Command, store: Store, tmp_path: Path) -> None:
    asked = ["export", "--data", store.local_folder]
    said = run(*asked, "--format", "chat", tmp_path / "out.jsonl")
    assert said.out == f"2 examples written to {tmp_path / 'out.jsonl'}\n1 left out: glued 1\n"
    said = run(*asked, "--format", "segments", "--dev", "0.4", "--json", tmp_path / "s.jsonl")
    told, names = json.loads(said.out), (".jsonl", ".dev.jsonl", ".manifest.json", ".card.md")
    assert told["examples"] == {"read": 3, "train": 2, "dev": 1, "left_out": {}}  # 1.2 documents are one
    assert set(told["out"]) == {str(tmp_path / f"s{name}") for name in names}
    said = run(*asked, "--format", "segments", "--preview")
    assert "Of 587 books 58 are lent, so [Calculator(587 - 58) -> ⟦529⟧] 529 remain.\n" in said.out
    said = run(*asked, "--format", "segments", "--preview", "--json")
    assert json.loads(said.out)[0]["parts"][1] == {"text": "529", "trained": False}
    said = run(*asked, "--format", "chat")
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("error: name the file to write")


def test_a_preview_in_colours(run: Command, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    said = run("export", "--data", store.local_folder, "--format", "segments", "--preview")
    assert "-> \x1b[0m\x1b[30;43m529\x1b[0m\x1b[32m] 529 remain." in said.out  # black on yellow, then green
    assert "⟦" not in said.out
