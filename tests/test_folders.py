"""Folders with links that loop, lead elsewhere or nowhere, and with what is no file: pipes, devices, sockets."""

import os
import socket
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.build_dataset.notes import notes_on_build
from flows.build_dataset.parameters import BuildParameters
from ops.arrivals import Arrivals
from tasks.specs.evaluation_spec import source_digest
from tests.core.annotate.corpora import documents, lines, read
from toolformer_core.annotate.ingest import corpus_files, other_files
from toolformer_core.errors import CorpusError
from toolformer_core.evaluate.readers.files import benchmark_files
from toolformer_core.evaluate.readers.texts import text_items
from toolformer_core.evaluate.tasks import task_named
from toolformer_core.folders import regular_files, walk
from toolformer_core.lm.load import model_digests
from toolformer_core.tools.hf.checkpoint import find_checkpoint
from warehouse.files.base import LocalFiles


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """a.jsonl and sub/b.jsonl, with one link to the folder itself."""
    folder = tmp_path / "corpus"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.jsonl").write_bytes(lines({"text": "a"}))
    (folder / "sub" / "b.jsonl").write_bytes(lines({"text": "b"}))
    (folder / "loop").symlink_to(".")
    return folder


@pytest.fixture
def no_files(tmp_path: Path) -> Iterator[Path]:
    """Names of corpus files behind which no file stands: a pipe, a device, a socket, links to nowhere and in a ring."""
    folder = tmp_path / "special"
    folder.mkdir()
    os.mkfifo(folder / "pipe.jsonl")
    (folder / "zero.jsonl").symlink_to("/dev/zero")
    (folder / "gone.jsonl").symlink_to("nowhere.jsonl")
    (folder / "ring.jsonl").symlink_to("ring.jsonl")
    with socket.socket(socket.AF_UNIX) as opened:
        place = os.open(folder, os.O_RDONLY)  # a socket's path may have 107 bytes
        opened.bind(f"/proc/self/fd/{place}/socket.jsonl")
        os.close(place)
        yield folder


def names(files: list[Path], folder: Path) -> list[str]:
    return [file.relative_to(folder).as_posix() for file in files]


def test_each_file_is_read_once_though_links_lead_back(corpus: Path, tmp_path: Path) -> None:
    assert [(row.source, row.text) for row in read(corpus)] == [("a.jsonl", "a"), ("sub/b.jsonl", "b")]
    arrivals = Arrivals(corpus, tmp_path / "note.json")
    (corpus / "new.jsonl").write_bytes(lines({"text": "new"}))
    assert [arrivals.look(), arrivals.look()] == [[], [corpus / "new.jsonl"]]


def test_two_links_that_lead_back_end(corpus: Path) -> None:
    (corpus / "sub" / "up").symlink_to("..")
    assert [here for here, _, _ in islice(walk(corpus), 5)] == [corpus, corpus / "sub"]


def test_a_folder_or_file_behind_several_links_counts_once_and_where_it_stands(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "c.jsonl").write_bytes(lines({"text": "c"}))
    for link, target in {"0-sub": "sub", "near": "../far", "other": "../far", "0.jsonl": "sub/b.jsonl"}.items():
        (corpus / link).symlink_to(target)
    os.link(corpus / "a.jsonl", corpus / "hard.jsonl")
    assert names(corpus_files(corpus), corpus) == ["a.jsonl", "near/c.jsonl", "sub/b.jsonl"]
    assert other_files(corpus) == []


def test_what_is_no_file_is_never_opened_and_named_in_one_line(no_files: Path) -> None:
    with pytest.raises(CorpusError, match=r"no corpus file in .*; .*gone.jsonl is a link that leads nowhere\."):
        corpus_files(no_files)
    for name in os.listdir(no_files):
        flaw = "a link that leads nowhere" if name in ("gone.jsonl", "ring.jsonl") else "a pipe, device or socket"
        with pytest.raises(CorpusError, match=f"{name} is {flaw}: name a file or a folder"):
            corpus_files(no_files / name)
    (no_files / "a.jsonl").write_bytes(lines({"text": "a"}))
    (no_files / "notes.txt").write_text("")
    assert [d.text for d in documents(no_files)] == ["a"]
    assert notes_on_build(BuildParameters(corpus=str(no_files), tools=["calculator"])) == [
        "1 files of the corpus are of other kinds and are not read (.txt 1): notes.txt",
        "5 names in the corpus are no files and are not read (a pipe, device or socket 3, a link that leads nowhere 2)"
        ": gone.jsonl, pipe.jsonl, ring.jsonl and 2 more",
    ]


def test_benchmarks_are_found_behind_links_and_their_digest_covers_them(corpus: Path, no_files: Path) -> None:
    folder = no_files.parent / "benchmark"
    folder.mkdir()
    (folder / "linked").symlink_to(corpus)
    assert names(benchmark_files(folder, ("b*", "*")), folder) == ["linked/sub/b.jsonl"]
    os.mkfifo(corpus / "pipe.txt")
    (corpus / "t.txt").write_text("text")
    task = task_named("wikitext")
    before = source_digest(task, folder)
    assert [item.prompt for item in text_items(task.name, folder)] == ["text"]
    (corpus / "t.txt").write_text("another text")
    assert source_digest(task, folder) != before


def test_the_data_folder_is_listed_without_entering_links(tmp_path: Path) -> None:
    (tmp_path / "shards" / "ingest").mkdir(parents=True)
    (tmp_path / "shards" / "ingest" / "a").write_bytes(b"abc")
    (tmp_path / "shards" / "loop").symlink_to(".")
    files = LocalFiles(tmp_path)
    assert [(path, size) for path, (size, _) in files.stats("shards")] == [("shards/ingest/a", 3)]
    assert list(files.walk("shards")) == ["shards/ingest/a"]


_steps = st.lists(st.sampled_from(["a", "b", "c"]), max_size=3).map("/".join)


@given(st.lists(_steps, max_size=6), st.lists(st.tuples(_steps, st.sampled_from("xyz"), _steps), max_size=6))
def test_every_real_folder_is_entered_exactly_once(tmp_path_factory, folders, links) -> None:
    root = tmp_path_factory.mktemp("tree")
    for folder in folders:
        (root / folder).mkdir(parents=True, exist_ok=True)
    real = sorted({here for here, _, _ in os.walk(root)})
    for here, name, target in links:  # to one of the folders, or to nowhere
        if (root / here).is_dir() and not os.path.lexists(root / here / name):
            (root / here / name).symlink_to(root / target)
    assert sorted(str(here) for here, _, _ in walk(root)) == real
    assert regular_files(root) == []


def test_a_models_digest_is_of_its_files_alone(no_files: Path) -> None:
    (no_files / "config.json").write_text("{}")
    before = model_digests(str(no_files)), find_checkpoint(str(no_files)).digest
    os.mkfifo(no_files / "model.safetensors")
    (no_files / "tokenizer.json").symlink_to("nowhere")
    assert (model_digests(str(no_files)), find_checkpoint(str(no_files)).digest) == before
