"""What holds for the corpus formats alike: the same texts, every row accounted for, and no damage that is fatal."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.annotate.corpora import documents, incompressible, lines, read, rejected
from tests.strategies import encodable_texts
from tests.support.corpus_formats import COMPRESS, delimited, dump, json_array, jsonl, page, response, wet, write_texts
from toolformer_core.annotate.ingest import corpus_files, other_files, read_corpus
from toolformer_core.config import IngestConfig
from toolformer_core.records import Document, Rejection, document_id

FORMATS: dict[str, Callable[[list[str]], bytes]] = {
    "c.jsonl": jsonl,
    "c.json": json_array,
    "c.csv": delimited,
    "c.tsv": lambda texts: delimited(texts, "\t"),
    "c.wet": wet,
}

# The separators of a file's last line are lost in WET and plain text, as is a byte order mark at its start.
_texts = encodable_texts.filter(lambda text: text.strip() and not text.startswith("\ufeff") and not text.endswith("\r"))
_words = st.text("abc déß漢", min_size=1, max_size=30).map(lambda s: " ".join(s.split())).filter(bool)


def _write(folder: Path, name: str, data: bytes, suffix: str = "") -> Path:
    path = folder / f"{name}{suffix}"
    path.write_bytes(COMPRESS[suffix](data))
    return path


@given(st.lists(_texts, min_size=1, max_size=6, unique=True), st.sampled_from(sorted(COMPRESS)))
def test_the_same_documents_have_the_same_texts_and_ids_in_every_format(tmp_path_factory, texts, suffix) -> None:
    folder = tmp_path_factory.mktemp("c")
    expected = [(document_id(text, None), text) for text in texts]
    for name, form in FORMATS.items():
        path = _write(folder, name, form(texts), suffix)
        assert [(d.doc_id, d.text) for d in documents(path)] == expected, name
    in_files = documents(write_texts(folder / "texts", texts))
    assert [(d.doc_id, d.text) for d in in_files] == expected


@given(st.lists(st.tuples(_words, _words), min_size=1, max_size=6, unique=True), st.sampled_from(sorted(COMPRESS)))
def test_articles_without_markup_are_their_titles_and_texts(tmp_path_factory, named, suffix) -> None:
    folder = tmp_path_factory.mktemp("c")
    path = _write(folder, "dewiki.xml", dump(*(page(title, text) for title, text in named)), suffix)
    in_lines = _write(folder, "c.jsonl", jsonl(f"{title}\n\n{text}" for title, text in named), suffix)
    assert [d.text for d in documents(path)] == [d.text for d in documents(in_lines)]


@given(st.lists(encodable_texts | st.just("x" * 101), max_size=8), st.sampled_from(sorted(FORMATS)))
def test_every_row_is_a_document_or_rejected(tmp_path_factory, texts, name) -> None:
    path = _write(tmp_path_factory.mktemp("c"), name, FORMATS[name](texts) or b"\n")
    found = read(path, max_chars=100)
    kept = [row for row in found if isinstance(row, Document)]
    lost = [row for row in found if isinstance(row, Rejection)]
    assert len(kept) + len(lost) == (len(texts) if FORMATS[name](texts) else 1 if name == "c.jsonl" else 0)
    assert {row.reason for row in lost} <= {"empty_text", "too_long", "duplicate", "blank"}
    assert len({d.doc_id for d in kept}) == len(kept)


ROWS = [f"Text number {i} of some, with words." for i in range(12)]
WHOLE = {
    **{name: form(ROWS) for name, form in FORMATS.items()},
    "c.xml": dump(*(page(f"T{i}", f"== A ==\n{text} {{{{t}}}} [[a|b]]") for i, text in enumerate(ROWS))),
    "c.warc": b"".join(response(f"http://a.org/{i}", f"<p>{text}</p>".encode()) for i, text in enumerate(ROWS)),
    "c.txt": "\n\n".join(ROWS).encode(),
}


@settings(max_examples=300)
@given(st.data())
def test_no_damage_is_fatal_or_makes_up_documents_twice(tmp_path_factory, data) -> None:
    name = data.draw(st.sampled_from(sorted(WHOLE)))
    suffix = data.draw(st.sampled_from(sorted(COMPRESS)))
    at_first = data.draw(st.booleans())  # before it is compressed, or behind
    whole = bytearray(WHOLE[name] if at_first else COMPRESS[suffix](WHOLE[name]))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(whole)))
        whole[start : start + data.draw(st.integers(0, 40))] = data.draw(st.binary(max_size=12))
    path = tmp_path_factory.mktemp("c") / f"{name}{suffix}"
    path.write_bytes((COMPRESS[suffix](bytes(whole)) if at_first else bytes(whole)) or b" ")
    found = list(read_corpus(path, IngestConfig(max_chars=2_000)))
    kept = [row.doc_id for row in found if isinstance(row, Document)]
    assert len(set(kept)) == len(kept)
    assert sum(row.reason == "truncated" for row in found if isinstance(row, Rejection)) <= 1


@pytest.mark.parametrize("name", sorted(WHOLE))
@pytest.mark.parametrize("suffix", [".gz", ".zst", ".bz2", ".xz"])
def test_several_streams_and_padding_are_read(tmp_path: Path, name: str, suffix: str) -> None:
    data, pack = WHOLE[name], COMPRESS[suffix]
    (tmp_path / f"{name}{suffix}").write_bytes(pack(data[:300]) + pack(b"") + pack(data[300:]) + b"\0" * 8)
    (plain := tmp_path / "plain").mkdir()
    found = read(tmp_path / f"{name}{suffix}")
    assert [getattr(row, "text", None) or row.reason for row in found] == [
        row.text for row in documents(_write(plain, name, data))
    ]


@pytest.mark.parametrize("suffix", [".gz", ".zst", ".bz2", ".xz"])
@pytest.mark.parametrize(("name", "first"), [("c.jsonl", 1), ("c.json", None), ("c.csv", 2), ("c.wet", None)])
def test_a_damaged_file_is_rejected_once_and_what_stands_before_is_kept(tmp_path: Path, suffix, name, first) -> None:
    texts = incompressible(3_000)
    data = COMPRESS[suffix](FORMATS[name](texts))
    most = len(data) * 5 // 6
    for damage in (b"", b"\xff" * 4096 + data[most:]):  # cut, garbled
        (tmp_path / f"{name}{suffix}").write_bytes(data[:most] + damage)
        *good, bad = read(tmp_path)
        assert [d.text for d in good if isinstance(d, Document)][:1_000] == texts[:1_000]
        assert [bad.reason, *(row.reason for row in good if isinstance(row, Rejection))].count("truncated") == 1
        if not damage:
            assert [d.text for d in good] == texts[: len(good)]
            assert first is None or [row.line for row in (*good, bad)] == list(range(first, first + len(good) + 1))


def test_a_dump_that_is_none_is_one_rejected_row(tmp_path: Path) -> None:
    _write(tmp_path, "sitemap.xml", b"<urlset><url>x</url></urlset>")
    _write(tmp_path, "dewiki-pages-articles1.xml-p1p99", dump(page("T", "Text."), page("E", "{{x}}")), ".bz2")
    assert [d.text for d in documents(tmp_path)] == ["T\n\nText."]
    assert [reason for _, reason in rejected(tmp_path)] == ["empty_text", "not_a_dump"]


TEXTS = {"\ufeff\n  One\r\ntwo\r\n \r\n\r\nthree  \nfour": "\n  One\r\ntwo\r\n \r\n\r\nthree  \nfour"}
TEXTS |= {"line\r\n": "line", "two ends\n\n": "two ends\n"}


def test_a_file_is_a_document_and_loses_only_its_mark_and_last_line_end(tmp_path: Path) -> None:
    for number, text in enumerate(TEXTS):
        (tmp_path / f"{number}.txt").write_bytes(text.encode())
    assert [(d.text, d.source, d.line) for d in documents(tmp_path)] == [
        (text, f"{number}.txt", 1) for number, text in enumerate(TEXTS.values())
    ]


BAD = [(b"", "empty_text"), (b" \n", "empty_text"), (b"caf\xe9", "not_utf8"), ("é".encode("utf-16"), "not_utf8")]
BAD += [(b"a" * 101, "too_long"), (b"a" * 2_000_000, "too_long")]


def test_a_bad_file_is_one_rejected_row(tmp_path: Path) -> None:
    for number, (data, _) in enumerate(BAD):
        (tmp_path / f"{number}.txt").write_bytes(data)
    cut = COMPRESS[".gz"]("\n".join(incompressible(30)).encode())[:-99]
    (tmp_path / "cut.txt.gz").write_bytes(cut)
    assert rejected(tmp_path, max_chars=100) == [(1, reason) for _, reason in (*BAD, (cut, "truncated"))]


def test_a_folder_is_read_in_the_first_group_of_formats_that_it_holds(tmp_path: Path) -> None:
    def names(files: list[Path]) -> list[str]:
        return [file.relative_to(tmp_path).as_posix() for file in files]

    for name in ("README.txt", "LICENSE", "sub/notes.txt.bz2", ".hidden.txt", "_tmp/3.jsonl", "sub/state.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    assert names(corpus_files(tmp_path)) == ["README.txt", "sub/notes.txt.bz2"]
    assert names(other_files(tmp_path)) == ["LICENSE", "sub/state.json"]

    (tmp_path / "sub/urls.csv").write_bytes(b"text\nA.\n")
    assert names(corpus_files(tmp_path)) == ["sub/urls.csv"]

    (tmp_path / "a.wet").write_bytes(wet(["B."]))
    assert names(corpus_files(tmp_path)) == ["a.wet"]

    (tmp_path / "sub/b.jsonl").write_bytes(lines({"text": "C."}))
    assert [d.text for d in documents(tmp_path)] == ["C."]
    others = ["LICENSE", "README.txt", "a.wet", "sub/notes.txt.bz2", "sub/state.json", "sub/urls.csv"]
    assert names(other_files(tmp_path)) == others
    assert [d.text for d in documents(tmp_path / "a.wet")] == ["B."]  # by its name it is read all the same
