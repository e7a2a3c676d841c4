"""Plain text as a corpus, and which files of a mixed folder count."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.core.annotate.corpora import documents, lines, read
from tests.support.corpus_formats import COMPRESS, wet
from toolformer_core.annotate.ingest import corpus_files, other_files

POEM = b"\xef\xbb\xbf\n  One\r\ntwo\r\n \r\n\r\nthree  \nfour"


def test_a_file_is_a_document_and_loses_only_its_mark_and_last_line_end(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(POEM)
    (tmp_path / "b.txt").write_bytes(b"line\r\n")
    (tmp_path / "c.txt").write_bytes(b"two ends\n\n")
    assert [(d.text, d.source, d.line, d.url) for d in documents(tmp_path)] == [
        ("\n  One\r\ntwo\r\n \r\n\r\nthree  \nfour", "a.txt", 1, None),
        ("line", "b.txt", 1, None),
        ("two ends\n", "c.txt", 1, None),
    ]


BAD = [(b"", "empty_text"), (b" \n", "empty_text"), (b"caf\xe9", "not_utf8"), ("é".encode("utf-16"), "not_utf8")]


@pytest.mark.parametrize(("data", "reason"), [*BAD, (b"a" * 101, "too_long"), (b"a" * 2_000_000, "too_long")])
def test_a_bad_file_is_one_rejected_row(tmp_path: Path, data: bytes, reason: str) -> None:
    (tmp_path / "a.txt").write_bytes(data)
    (tmp_path / "b.txt").write_bytes(b"good")
    bad, good = read(tmp_path, max_chars=100)
    assert (bad.source, bad.line, bad.reason, good.text) == ("a.txt", 1, reason, "good")


@pytest.mark.parametrize("suffix", [suffix for suffix in COMPRESS if suffix])
def test_a_file_cut_short_is_one_rejected_row(tmp_path: Path, suffix: str) -> None:
    texts = [f"Text {i}, {i * i * 7919 % 100_003}." for i in range(30_000)]
    data = COMPRESS[suffix]("\n\n".join(texts).encode())
    (tmp_path / f"a.txt{suffix}").write_bytes(data[: len(data) * 2 // 3])
    found = read(tmp_path, max_chars=10**7)
    assert [row.reason for row in found] == ["truncated"]


def test_a_folder_is_read_in_the_first_group_of_formats_that_it_holds(tmp_path: Path) -> None:
    def names(files: list[Path]) -> list[str]:
        return [file.relative_to(tmp_path).as_posix() for file in files]

    (tmp_path / "sub").mkdir()
    for name, data in [
        ("README.txt", b"Read me."),
        ("LICENSE", b"Licence."),
        ("sub/notes.txt.bz2", COMPRESS[".bz2"](b"Notes.")),
        (".hidden.txt", b"x"),
    ]:
        (tmp_path / name).write_bytes(data)
    assert names(corpus_files(tmp_path)) == ["README.txt", "sub/notes.txt.bz2"]
    assert names(other_files(tmp_path)) == ["LICENSE"]

    (tmp_path / "sub/urls.csv").write_bytes(b"text\nA.\n")
    assert names(corpus_files(tmp_path)) == ["sub/urls.csv"]
    assert names(other_files(tmp_path)) == ["LICENSE", "README.txt", "sub/notes.txt.bz2"]

    (tmp_path / "a.wet").write_bytes(wet(["B."]))
    assert names(corpus_files(tmp_path)) == ["a.wet"]

    (tmp_path / "sub/b.jsonl").write_bytes(lines({"text": "C."}))
    assert [d.text for d in documents(tmp_path)] == ["C."]
    assert names(other_files(tmp_path)) == ["LICENSE", "README.txt", "a.wet", "sub/notes.txt.bz2", "sub/urls.csv"]
    assert [d.text for d in documents(tmp_path / "a.wet")] == ["B."]  # by its name it is read all the same
