"""CSV and TSV as corpora: header, quotes, bad records, bounded memory."""

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.annotate.corpora import documents, incompressible, read, rejected
from tests.support.corpus_formats import COMPRESS, delimited, with_peak
from toolformer_core import compression
from toolformer_core.annotate.readers.delimited import records_of
from toolformer_core.records import Document


def test_the_header_names_the_columns_as_in_json(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text(
        'id,text,url,created\n1,"One, two\n""three""",https://a.org/x,2019-04-25T12:57:54Z\n2,Plain,,\n'
    )
    first, second = read(tmp_path)
    assert (first.text, first.line) == ('One, two\n"three"', 2)
    assert (first.url, first.created) == ("https://a.org/x", "2019-04-25")
    assert (second.text, second.url, second.created, second.line) == ("Plain", None, None, 4)


HEADS = ["\ufefftext,n\na,1\n", "text;n\r\na;1\r\n", "text\tn\na\t1", " text , n \na,1\n", "\n\ntext,n\na,1\n"]


@pytest.mark.parametrize(
    ("name", "data"), [*(("c.csv", head) for head in HEADS), ("c.tsv", "text\tn;m,o\na\t1"), ("c.TSV", "text\tn\na\t1")]
)
def test_the_delimiter_is_that_of_the_first_line(tmp_path: Path, name: str, data: str) -> None:
    (tmp_path / name).write_bytes(data.encode())
    assert [d.text for d in documents(tmp_path)] == ["a"]


@pytest.mark.parametrize("mark", ["sep=^", '"sep=^"', "sep=^\r", "\ufeffsep=^"])
def test_a_first_line_may_name_the_delimiter(tmp_path: Path, mark: str) -> None:
    (tmp_path / "c.csv").write_bytes(f'{mark}\ntext^n\n"a^b, c"^1\nsep=;^2\n'.encode())
    assert [(d.text, d.line) for d in documents(tmp_path)] == [("a^b, c", 3), ("sep=;", 4)]


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("end", ["", "\r"])
def test_lines_may_end_in_a_carriage_return_alone(tmp_path: Path, suffix: str, end: str) -> None:
    data = f'\ufeffsep=;\rtext;n\r"a\nb\rc";1\r\rlast;2{end}'
    (tmp_path / f"c.csv{suffix}").write_bytes(COMPRESS[suffix](data.encode()))
    first, blank, last = read(tmp_path)
    # line 1: sep=, 2: the header, 3 and 4: the text with a carriage return in it, 5: blank
    assert (first.text, first.line, blank.reason, last.text, last.line) == ("a\nb\rc", 3, "blank", "last", 6)


ESCAPED = [
    (r"He said \"hi\" there.", 'He said "hi" there.'),
    (r"\"Hi\", he said, \"you\"", '"Hi", he said, "you"'),
    (r"C:\new\\", "C:\\new\\"),  # a backslash at the end of a field
    (r"a\\\"b", 'a\\"b'),  # a backslash before a quote
    (r"C:\new \\ x", r"C:\new \\ x"),  # elsewhere backslashes stand for themselves
    ('doubled ""too""', 'doubled "too"'),
]


@pytest.mark.parametrize("read_bytes", [1, 2, 5, 1 << 16])
def test_quotes_may_be_escaped_by_backslashes(tmp_path: Path, monkeypatch, read_bytes: int) -> None:
    monkeypatch.setattr(compression, "_READ", read_bytes)
    monkeypatch.setattr("toolformer_core.annotate.readers.delimited._START", 20)  # evidence stands in them
    rows = "".join(f'"{written}",{n}\n' for n, (written, _) in enumerate(ESCAPED))
    (tmp_path / "c.csv").write_text(f"text,n\n{rows}")
    assert [d.text for d in documents(tmp_path)] == [text for _, text in ESCAPED]


def test_a_backslash_before_a_quote_that_ends_a_field_is_a_backslash(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text('n,text\n1,"C:\\"\n2,"in ""C:\\"""\n3,6\\" pipe\n')
    assert [d.text for d in documents(tmp_path)] == ["C:\\", 'in "C:\\"', '6\\" pipe']


BAD = [
    (b"", "blank"),
    (b"a", "wrong_columns"),
    (b"a,b,c", "wrong_columns"),
    (b"caf\xe9,1", "not_utf8"),
    (b"a\rb,1", "broken_csv"),
    (b" ,1", "empty_text"),
    (b"sound,2", "duplicate"),
    (b"a" * 101 + b",1", "too_long"),
    (b'"' + b"a\n" * 1_100_000 + b'",1', "too_long"),  # over 12 * 100 + 1,048,576 bytes
    (b"a" * 1_200_000 + b',"', "truncated"),  # the quote takes the next record along
]


@pytest.mark.parametrize(("record", "reason"), BAD)
def test_a_bad_record_is_rejected_and_the_run_goes_on(tmp_path: Path, record: bytes, reason: str) -> None:
    (tmp_path / "c.csv").write_bytes(b"text,n\nsound,1\n" + record + b"\nlast,1")
    first, bad, *last = read(tmp_path, max_chars=100)
    assert (first.text, bad.line, bad.reason) == ("sound", 3, reason)
    assert len(bad.raw) <= 2_000
    if reason == "truncated":
        assert bad.detail == "a quote that opens here is never closed: 1,200,009 bytes from here on are no rows"
        assert last == []
    else:
        assert [(d.text, d.line) for d in last] == [("last", 4 + record.count(b"\n"))]


@pytest.mark.parametrize("header", [b"caf\xe9,text", b'text,"n', b"text\rn,m", b"a" * 1_200_000 + b",text"])
def test_a_file_whose_header_cannot_be_read_is_one_bad_row(tmp_path: Path, header: bytes) -> None:
    (tmp_path / "c.csv").write_bytes(header + b"\na,1\nb,2\n")
    assert rejected(tmp_path, max_chars=100) == [(1, "no_header")]


@pytest.mark.parametrize("suffix", [suffix for suffix in COMPRESS if suffix])
def test_of_a_file_cut_in_its_headers_first_block_nothing_is_there_to_be_read(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"c.csv{suffix}").write_bytes(COMPRESS[suffix](delimited(incompressible(9)))[:30])
    assert [reason for _, reason in rejected(tmp_path)] in (["truncated"], ["no_header"])


def test_a_field_is_as_long_as_a_text_may_be(tmp_path: Path) -> None:
    long = "word " * 39_999  # the csv module's own limit is 131,072 characters
    (tmp_path / "c.csv").write_bytes(delimited([long, "next"]))
    assert [d.text for d in documents(tmp_path)] == [long, "next"]


def test_memory_holds_no_field_that_is_too_long(tmp_path: Path) -> None:
    # a quoted field goes on: its quotes are doubled
    start, million, end = map(COMPRESS[".bz2"], (b'text,n\nfirst,1\n"', b'a,b\n""' * 166_667, b'",2\nlast,3\n'))
    (tmp_path / "c.csv.bz2").write_bytes(start + 12 * million + end)
    found, peak = with_peak(lambda: read(tmp_path, max_chars=1_000))
    assert [d.text if isinstance(d, Document) else d.reason for d in found] == ["first", "too_long", "last"]
    assert peak < 6_000_000  # of 12 million


_csv_bytes = st.lists(st.sampled_from(['"', '""', ",", "\n", "a", "b c", "\r\n"]), max_size=25).map("".join)


@given(_csv_bytes, st.integers(1, 7))
def test_records_end_where_the_csv_module_ends_them(data: str, size: int) -> None:
    raw = data.encode()
    found = list(records_of((raw[i : i + size] for i in range(0, len(raw), size)), b",", 1_000))
    whole = [record for _, record in found if isinstance(record, bytes)]
    cells = [next(csv.reader([record.decode()])) for record in whole]
    expected = list(csv.reader(io.StringIO(data, newline="")))
    assert cells == expected[: len(cells)]
    # what is not whole is one record: the last one, in which a quote stays open
    assert len(expected) - len(cells) == len(found) - len(whole) <= 1
    ends = [sum(record.count(b"\n") + 1 for record in whole[:i]) for i in range(len(found))]
    assert [line for line, _ in found] == [1 + before for before in ends]


@given(_csv_bytes.map(lambda data: data.replace("\r", "").encode()), st.integers(1, 7))
def test_records_end_at_carriage_returns_as_they_do_at_line_feeds(data: bytes, size: int) -> None:
    def lines_and_records(line_end: bytes) -> list[tuple[int, bytes | None]]:
        raw = data.replace(b"\n", line_end)
        rows = records_of((raw[i : i + size] for i in range(0, len(raw), size)), b",", 1_000, line_end)
        return [(line, row.replace(b"\r", b"\n") if isinstance(row, bytes) else None) for line, row in rows]

    assert lines_and_records(b"\r") == lines_and_records(b"\n")
