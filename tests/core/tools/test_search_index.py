import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolformer_core.errors import UsageError
from toolformer_core.records import ToolResponse, digest_of
from toolformer_core.tools.qa import QA
from toolformer_core.tools.search import index_writer, maxscore
from toolformer_core.tools.search.index_writer import IndexProgress, build_index, finished_index
from toolformer_core.tools.search.passage_sources import open_source
from toolformer_core.tools.search.passages import Hit, PassageIndex
from toolformer_core.tools.search.search_index import INFO, PROGRESS, SearchIndex, read_info
from toolformer_core.tools.wikisearch import WikiSearch

ROWS = [
    {"title": "Velden", "text": "Velden is a town in the north of Ostmark."},
    {"title": "Mira Holt", "section": "Life", "text": "Mira Holt was a painter who was born in Velden."},
    {"title": "Red Mill", "text": "The mill stands by the Sella. " * 4},
    *({"title": "Twin", "section": letter, "text": "Heron and reed."} for letter in "ABCDEFGHIJ"),
]


def write_rows(path: Path, rows: list[dict[str, str]]) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def words_of_zipf(seed: int, count: int) -> list[dict[str, str]]:
    """Passages of words whose frequencies fall as 1 / rank, so that some are in nearly all of them."""
    draw = random.Random(seed)
    vocabulary = [f"w{number}" for number in range(2_000)]
    weights = [1 / (number + 1) for number in range(2_000)]
    return [
        {
            "title": " ".join(draw.choices(vocabulary, weights, k=draw.randint(1, 3))),
            "text": " ".join(draw.choices(vocabulary, weights, k=draw.randint(20, 40))),
        }
        for _ in range(count)
    ]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rows(tmp_path_factory.mktemp("source") / "rows.jsonl", ROWS)


@pytest.fixture(scope="module")
def folder(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of many segments: each commit of two passages writes at least one."""
    folder = tmp_path_factory.mktemp("index")
    build_index(open_source(source), folder, commit_passages=2)
    return folder


def same_results(hits: list[Hit], expected: list[Hit]) -> bool:
    """The same passages in the same order; sums of 32-bit floats that were added in another order may round apart."""
    return [hit.passage for hit in hits] == [hit.passage for hit in expected] and all(
        abs(a.score - b.score) < 1.5e-4 for a, b in zip(hits, expected, strict=True)
    )


@pytest.mark.parametrize(
    "text", ["Mira Holt", "painters", "velden", '[Velden] AND "', "heron reed", "the mill by the river", "zebra", "?!"]
)
def test_results_are_those_of_the_index_in_ram(folder: Path, source: Path, text: str) -> None:
    for limit, boost in ((1, 2.0), (3, 2.0), (5, 1.0), (50, 0.5)):
        hits = SearchIndex(folder).search(text, limit, boost)
        assert same_results(hits, PassageIndex(source).search(text, limit, boost))


def test_of_many_equal_passages_the_first_are_returned(tmp_path: Path) -> None:
    # tantivy gives them in the order of its segments, which two threads fill in turn
    path = write_rows(tmp_path / "p.jsonl", [{"title": "Twin", "text": "Heron and reed."}] * 100)
    build_index(open_source(path), tmp_path / "index", commit_passages=10)
    index = SearchIndex(tmp_path / "index")
    for limit in (1, 5, 99):
        assert [hit.passage.row for hit in index.search("heron", limit)] == list(range(limit))


def test_words_of_several_tokens_are_phrases_as_in_ram(tmp_path: Path) -> None:
    rows = [{"title": "नमस्ते", "text": "a greeting"}, {"title": "b", "text": "नमस and ते apart"}, *ROWS]
    path = write_rows(tmp_path / "p.jsonl", rows)
    build_index(open_source(path), tmp_path / "index")
    hits = SearchIndex(tmp_path / "index").search("the नमस्ते greeting")
    assert [hit.passage.title for hit in hits[:1]] == ["नमस्ते"]
    assert same_results(hits, PassageIndex(path).search("the नमस्ते greeting"))


@pytest.mark.parametrize(
    ("first_postings", "growth", "frequent"), [(100, 8, 1_000), (1, 2, 1), (1, 2, 50), (10_000, 8, 1)]
)
def test_no_best_passage_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first_postings: int, growth: int, frequent: int
) -> None:
    monkeypatch.setattr(maxscore, "_FREQUENT", frequent)
    monkeypatch.setattr(maxscore, "_FIRST_POSTINGS", first_postings)
    monkeypatch.setattr(maxscore, "_GROWTH", growth)
    rows = words_of_zipf(1, 3_000)
    path = write_rows(tmp_path / "p.jsonl", rows)
    build_index(open_source(path), tmp_path / "index", commit_passages=500)
    index, in_ram = SearchIndex(tmp_path / "index"), PassageIndex(path)
    draw = random.Random(2)
    for _ in range(150):
        row = rows[draw.randrange(len(rows))]
        query = " ".join(draw.sample(f"{row['title']} {row['text']}".split(), draw.randint(2, 8)))
        for limit, boost in ((1, 2.0), (5, 1.0)):
            assert same_results(index.search(query, limit, boost), in_ram.search(query, limit, boost)), query


ANY_TEXT = st.text(st.characters(exclude_categories=())) | st.text(
    "abto []{}()\"':^~*?\\/+-&|!<> ANDORNOT", max_size=40
)


@given(ANY_TEXT)
def test_any_text_is_searched_for(folder: Path, source: Path, text: str) -> None:
    assert same_results(SearchIndex(folder).search(text), PassageIndex(source).search(text))


def test_the_tools_take_an_index(folder: Path) -> None:
    index = SearchIndex(folder)
    search, qa = WikiSearch(index), QA(index)
    assert search.run("painters") == ToolResponse("Mira Holt > Life > Mira Holt was a painter who was born in Velden.")
    assert qa.run("Where was Mira Holt born?") == ToolResponse("Velden")
    copy = pickle.loads(pickle.dumps(search))
    assert copy.fingerprint == search.fingerprint
    assert copy.run("velden") == search.run("velden")


def test_a_folder_is_opened_through_links(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    # a copy: a thread of an index that was opened before may still put a lock into `folder`
    copy = shutil.copytree(folder, tmp_path / "index", ignore=shutil.ignore_patterns(".*.lock"))
    index = SearchIndex(copy)
    assert index.load() == len(ROWS)
    assert not list(copy.glob(".*.lock"))  # tantivy took its lock elsewhere
    assert index.search("painters")[0].passage.title == "Mira Holt"


def test_what_the_folder_says(folder: Path, source: Path) -> None:
    info = read_info(folder)
    assert (info.source, info.passages, info.tokenizer, info.version) == ("rows.jsonl", 13, "en_stem", 1)
    digest = digest_of("passages", "1", "en_stem")
    for row in ROWS:
        digest = digest_of(digest, row["title"], row.get("section", ""), row["text"].strip())
    assert SearchIndex(folder).digest == info.digest == digest
    assert not (folder / PROGRESS).exists()
    modes = {file.stat().st_mode & 0o777 for file in folder.iterdir()}
    assert len(modes) == 1  # whoever may read one may read all


def test_a_finished_index_is_left_alone(folder: Path, source: Path) -> None:
    before = {file.name: file.stat().st_mtime_ns for file in folder.iterdir()}
    info = build_index(open_source(source), folder, on_progress=lambda _: pytest.fail("it is finished"))
    assert info == finished_index(open_source(source), folder)
    assert {file.name: file.stat().st_mtime_ns for file in folder.iterdir()} == before


class Killed(BaseException):
    """The end of a run."""


def build_until_killed(source: Path, folder: Path, record: int = 1, **options: Any) -> None:
    """Index a source until a record is read."""

    def kill(progress: IndexProgress) -> None:
        if progress.position.records == record:
            raise Killed

    with pytest.raises(Killed):
        build_index(open_source(source), folder, on_progress=kill, **options)


@pytest.mark.parametrize("record", range(1, len(ROWS) + 1))
def test_a_run_that_was_killed_is_gone_on_with(folder: Path, source: Path, tmp_path: Path, record: int) -> None:
    build_until_killed(source, tmp_path / "index", record, commit_passages=3)
    with pytest.raises(UsageError, match="is not finished: run the same toolformer index command again"):
        SearchIndex(tmp_path / "index").load()
    positions: list[int] = []
    index = tmp_path / "index"
    build_index(open_source(source), index, on_progress=lambda done: positions.append(done.position.records))
    # a commit comes before the callback: of 4 records 3 are committed, and it goes on with the 4th
    assert positions == list(range(record - record % 3 + 1, len(ROWS) + 1))
    assert_same_index(tmp_path / "index", folder)


def assert_same_index(folder: Path, other: Path) -> None:
    index, expected = SearchIndex(folder), SearchIndex(other)
    assert (index.load(), index.digest) == (expected.load(), expected.digest)
    for text in ("mira holt", "heron", "the mill", "velden in the north", "town painter born"):
        assert index.search(text, 20) == expected.search(text, 20)
        rows = [hit.passage.row for hit in index.search(text, 20)]
        assert len(rows) == len(set(rows))


@pytest.mark.parametrize("save", range(1, 6))
def test_a_run_that_was_killed_between_its_two_commits_is_gone_on_with(
    folder: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save: int
) -> None:
    saves = 0
    put = index_writer._put_json

    def killed(path: Path, value: dict[str, Any]) -> None:
        nonlocal saves
        saves += 1
        if saves > save:  # tantivy has more passages than progress.json knows of
            raise Killed
        put(path, value)

    monkeypatch.setattr(index_writer, "_put_json", killed)
    with pytest.raises(Killed):
        build_index(open_source(source), tmp_path / "index", commit_passages=3)
    monkeypatch.setattr(index_writer, "_put_json", put)
    build_index(open_source(source), tmp_path / "index", commit_passages=2)
    assert_same_index(tmp_path / "index", folder)


def test_a_process_that_is_killed_outright_loses_nothing(folder: Path, source: Path, tmp_path: Path) -> None:
    code = (
        "import os, pathlib, signal, sys\n"
        "from toolformer_core.tools.search.index_writer import build_index\n"
        "from toolformer_core.tools.search.passage_sources import open_source\n"
        "def kill(progress):\n"
        "    if progress.position.records == 8:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "source, folder = map(pathlib.Path, sys.argv[1:])\n"
        "build_index(open_source(source), folder, on_progress=kill, commit_passages=3)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code, source, tmp_path / "index"], timeout=60, check=False)
    assert ended.returncode == -signal.SIGKILL
    build_index(open_source(source), tmp_path / "index")
    assert_same_index(tmp_path / "index", folder)


def test_a_limit_cuts_within_a_record(tmp_path: Path) -> None:
    text = " ".join(["Word " + "word " * 98 + "word."] * 5)  # five passages of 100 words
    path = write_rows(tmp_path / "p.jsonl", [{"title": "a", "text": text}] * 2)
    assert build_index(open_source(path), tmp_path / "index", limit=7).passages == 7
    assert SearchIndex(tmp_path / "index").load() == 7
    assert build_index(open_source(path), tmp_path / "whole").passages == 10


def test_another_source_or_limit_is_an_error(folder: Path, source: Path, tmp_path: Path) -> None:
    other = write_rows(tmp_path / "other.jsonl", ROWS[:2])
    with pytest.raises(UsageError, match="holds the index of another file than"):
        build_index(open_source(other), folder)
    with pytest.raises(UsageError, match="was begun with no --limit"):
        build_index(open_source(source), folder, limit=3)
    build_until_killed(other, tmp_path / "index", limit=1)
    with pytest.raises(UsageError, match="holds the index of another file than"):
        build_index(open_source(source), tmp_path / "index", limit=1)
    with pytest.raises(UsageError, match="was begun with --limit 1; give the same"):
        build_index(open_source(other), tmp_path / "index")
    (tmp_path / "index" / PROGRESS).write_text("{}")
    with pytest.raises(UsageError, match=r"progress.json is damaged .*; remove .* and start again"):
        build_index(open_source(other), tmp_path / "index", limit=1)


def test_a_folder_of_other_files_is_not_written_to(source: Path) -> None:
    for place, wrong in ((source.parent, "is not empty and holds no index"), (source, "is a file; name a folder")):
        with pytest.raises(UsageError, match=wrong):
            build_index(open_source(source), place)


def test_two_runs_do_not_write_one_folder(source: Path, tmp_path: Path) -> None:
    def begin_another(progress: IndexProgress) -> None:
        with pytest.raises(UsageError, match="another process writes it"):
            build_index(open_source(source), tmp_path / "index")

    build_index(open_source(source), tmp_path / "index", on_progress=begin_another)


def test_a_source_without_passages_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text("\n\n", encoding="utf-8")
    with pytest.raises(UsageError, match="holds no passages"):
        build_index(open_source(path), tmp_path / "index")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: [file.unlink() for file in folder.iterdir()], "no search index in"),
        (lambda folder: (folder / INFO).write_text("{"), "index.json is damaged"),
        (lambda folder: (folder / INFO).write_text('{"version": 1}'), "index.json is damaged"),
        (lambda folder: replace_in_info(folder, "version", 2), "has format 2, this program reads 1"),
        (lambda folder: replace_in_info(folder, "passages", 12), "holds 13 passages, not 12"),
        (lambda folder: next(folder.glob("*.store")).unlink(), r"is damaged: \w+\.store is missing"),
        (lambda folder: next(folder.glob("*.idx")).write_bytes(b""), r"is damaged: \w+\.idx has another size"),
        (lambda folder: overwrite(folder / "meta.json"), "cannot be opened"),
        (lambda folder: overwrite(next(folder.glob("*.term"))), "cannot be opened"),
    ],
)
def test_a_damaged_folder_says_so(source: Path, tmp_path: Path, damage: object, message: str) -> None:
    build_index(open_source(source), tmp_path / "index")
    damage(tmp_path / "index")  # type: ignore[operator]
    with pytest.raises(UsageError, match=message):
        SearchIndex(tmp_path / "index").load()


def replace_in_info(folder: Path, name: str, value: object) -> None:
    info = json.loads((folder / INFO).read_text())
    (folder / INFO).write_text(json.dumps({**info, name: value}))


def overwrite(file: Path) -> None:
    file.write_bytes(b"x" * file.stat().st_size)


def test_many_threads_get_the_same_answer(folder: Path) -> None:
    index = SearchIndex(folder)
    with ThreadPoolExecutor(8) as pool:
        hits = list(pool.map(index.search, ["the mill", "Mira Holt"] * 64))
    assert hits == hits[:2] * 64


def test_two_processes_open_one_index(folder: Path) -> None:
    code = (
        "import sys, pathlib\n"
        "from toolformer_core.tools.search.search_index import SearchIndex\n"
        "index = SearchIndex(pathlib.Path(sys.argv[1]))\n"
        "print(index.load(), flush=True)\n"
        "sys.stdin.readline()\n"
        "print(index.search('mira holt')[0].passage.title)\n"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", code, folder], stdin=-1, stdout=-1, text=True) for _ in range(2)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "13\n"  # both have it open now
    for process in processes:
        out, _ = process.communicate("\n", timeout=60)
        assert (out, process.returncode) == ("Mira Holt\n", 0)
