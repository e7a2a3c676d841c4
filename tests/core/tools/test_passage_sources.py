import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tests.support.corpus_formats import a_dump
from toolformer_core.errors import UsageError
from toolformer_core.tools.search.passage_sources import open_source
from toolformer_core.tools.search.sections import passages_of, sentences_of

JSONL = "\n".join(
    json.dumps(row)
    for row in (
        {"title": "Mira  Holt", "section": "Life", "text": "A painter.\nShe was born in Velden."},
        {"title": "Velden", "text": "word " * 99 + "end. " + "More " + "word " * 98 + "end."},  # 100 words twice
    )
)
KILT = json.dumps(
    {
        "_id": "1",
        "wikipedia_id": "1",
        "wikipedia_title": "Mira Holt",
        "text": [
            "Mira Holt\n",
            "Mira Holt was a painter.\n",
            "Section::::Life.\n",
            "She was born in Velden.\n",
            "BULLET::::- She moved in 1901.\n",
            "Section::::Life.:Later years.\n",
            "She painted mills.\n",
            "Section::::References.\n",
        ],
        "anchors": [],
    }
)
PSGS = 'id\ttext\ttitle\n1\t"Mira ""the mill"" Holt was"\tMira Holt\n2\ta painter.\tMira Holt\n'


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def passages(path: Path, format: str | None = None) -> list[tuple[str, str, str]]:
    return [passage for record in open_source(path, format).records() for passage in record.passages]


def test_jsonl_is_cut_into_passages(tmp_path: Path) -> None:
    first, *rest = passages(write(tmp_path / "p.jsonl", JSONL))
    assert first == ("Mira Holt", "Life", "A painter. She was born in Velden.")
    assert rest == [("Velden", "", "word " * 99 + "end."), ("Velden", "", "More " + "word " * 98 + "end.")]


def test_kilts_paragraphs_stand_in_their_sections(tmp_path: Path) -> None:
    assert passages(write(tmp_path / "kilt_knowledgesource.json", KILT)) == [
        ("Mira Holt", "", "Mira Holt was a painter."),
        ("Mira Holt", "Life", "She was born in Velden. She moved in 1901."),
        ("Mira Holt", "Life > Later years", "She painted mills."),
    ]


def test_psgs_passages_stay_as_they_are(tmp_path: Path) -> None:
    assert passages(write(tmp_path / "psgs_w100.tsv", PSGS)) == [
        ("Mira Holt", "", 'Mira "the mill" Holt was'),
        ("Mira Holt", "", "a painter."),
    ]


def test_a_dump_gives_its_articles_sections_and_counts_the_other_pages(tmp_path: Path) -> None:
    source = open_source(write(tmp_path / "wiki.xml.bz2", bz2.compress(a_dump())))
    records = list(source.records())
    assert [passage for record in records for passage in record.passages] == [
        ("Mira Holt", "", "Mira Holt was a painter."),
        ("Mira Holt", "Life", "She was born in Velden in 1871."),
        ("Mira Holt", "Life > Later years", "She painted mills."),
        ("Velden", "", "Velden is a town in Ostmark."),
    ]
    assert [record.left_out for record in records if record.left_out] == ["redirect", "other_namespace"]


@pytest.mark.parametrize(
    ("name", "content", "format"),
    [
        ("p.jsonl", JSONL, "jsonl"),
        ("p.jsonl", KILT, "kilt"),
        ("p.txt", PSGS, "psgs"),
        ("p.tsv", "7\tno header\tMira Holt\n", "psgs"),
        ("p.json", "\n" * 5000 + JSONL, "jsonl"),
    ],
)
def test_how_the_format_is_recognised(tmp_path: Path, name: str, content: str | bytes, format: str) -> None:
    assert open_source(write(tmp_path / name, content)).identity.format == format


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [
        (".gz", gzip.compress),
        (".bz2", bz2.compress),
        (".xz", lzma.compress),
        (".zst", zstandard.ZstdCompressor().compress),
        ("", gzip.compress),  # compressed, though the name does not say so
    ],
)
def test_compressed_files(tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]) -> None:
    plain = passages(write(tmp_path / "p.jsonl", JSONL))
    assert passages(write(tmp_path / f"q.jsonl{suffix}", pack(JSONL.encode()))) == plain


def test_format_overrides(tmp_path: Path) -> None:
    path = write(tmp_path / "p.jsonl", JSONL)
    with pytest.raises(UsageError, match=r"p\.jsonl: line 1 is not of the format kilt"):
        passages(path, "kilt")
    with pytest.raises(UsageError, match="no file at"):
        open_source(tmp_path / "none.jsonl")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.jsonl", "\n".join([JSONL, "", "  ", JSONL, JSONL]).encode()),
        ("p.json", f"{KILT}\n\n{KILT}\n".encode()),
        ("p.tsv", PSGS.replace("\n", "\r\n").replace("painter", "Künstler").encode()),
        ("p.jsonl.bz2", bz2.compress(("\n".join([JSONL] * 2000)).encode())),  # in chunks of 64 KiB
        ("p.xml", a_dump()),
        ("p.xml.bz2", bz2.compress(a_dump())),
    ],
)
def test_reading_goes_on_from_every_record(tmp_path: Path, name: str, content: bytes) -> None:
    source = open_source(write(tmp_path / name, content))
    records = list(source.records())
    places = range(len(records)) if len(records) < 100 else (0, 7, 1999, len(records) - 2)
    for place in places:
        rest = list(source.records(records[place].end))
        assert [(r.passages, r.end, r.left_out) for r in rest] == [
            (r.passages, r.end, r.left_out) for r in records[place + 1 :]
        ]


def test_how_much_is_read_is_told(tmp_path: Path) -> None:
    source = open_source(write(tmp_path / "p.jsonl", JSONL))
    assert [record.read for record in source.records()][-1] == source.identity.bytes == len(JSONL)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.jsonl", JSONL + '\n{"title": "a"}', "line 3 is not of the format jsonl: KeyError"),
        ("p.jsonl", '{"title": "a", "text": "\\ud800"}', "line 1 .*surrogate U.D800"),
        ("p.jsonl", b'{"title": "a", "text": "\xff"}', "line 1 .*UnicodeDecodeError"),
        ("p.json", '{"wikipedia_title": "a", "text": "no list"}', "line 1 is not of the format kilt"),
        ("p.tsv", PSGS + "3\tno title\n", "line 4 is not of the format psgs: .*2 columns"),
        ("p.jsonl.gz", gzip.compress(JSONL.encode())[:-20], "if it is cut off or damaged, download it again"),
        ("p.xml.bz2", bz2.compress(a_dump())[:-20], "if it is cut off or damaged, download it again"),
        ("p.xml", a_dump()[:-40], "if it is cut off or damaged, download it again"),
        ("p.xml", b"<?xml version='1.0'?><html><page></page></html>", "no MediaWiki dump"),
        ("p.bin", b"\x00\x01", "cannot tell the format of .*; say by --format"),
    ],
)
def test_a_broken_file_says_where(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    path = write(tmp_path / name, content)
    with pytest.raises(UsageError, match=message):
        passages(path)


def test_another_content_is_another_source(tmp_path: Path) -> None:
    path = write(tmp_path / "p.jsonl", JSONL)
    before = open_source(path).identity
    assert open_source(path).identity == before
    write(path, JSONL.replace("Velden", "Velten"))
    assert open_source(path).identity != before


def test_a_line_without_passages_is_a_record(tmp_path: Path) -> None:
    source = open_source(write(tmp_path / "p.json", '{"wikipedia_title": "a", "text": ["a\\n"]}\n\n'))
    assert [(r.passages, r.left_out) for r in source.records()] == [((), "no_text"), ((), "")]


def sentence(words: int, first: str = "Word") -> str:
    return " ".join([first, *["word"] * (words - 1)]) + "."


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One two. Three four! Five?", ["One two.", "Three four!", "Five?"]),
        ("He met Dr. Lind at No. 7. Then he left.", ["He met Dr. Lind at No. 7.", "Then he left."]),
        ("It cost approx. 3 crowns, e.g. in spring.", ["It cost approx. 3 crowns, e.g. in spring."]),
        ('"Is it true?" he asked. "It is." She left.', ['"Is it true?" he asked.', '"It is."', "She left."]),
        ("A list:\nHeron\nReed\nand water", ["A list:", "Heron", "Reed and water"]),  # a small letter goes on
        ("", []),
    ],
)
def test_sentences(text: str, sentences: list[str]) -> None:
    assert sentences_of(text) == sentences


@pytest.mark.parametrize(
    ("lengths", "passages"),
    [
        ([], []),
        ([60, 89], [149]),  # 149 words: 100 are reached only with the second sentence
        ([100, 49], [149]),  # a rest of 49 words goes to the passage before
        ([100, 50], [100, 50]),  # one of 50 is a passage
        ([40] * 6, [120, 120]),
        ([40] * 7, [120, 160]),  # 120 and 120, and a rest of 40
        ([300, 20], [320]),  # a long sentence stays whole
    ],
)
def test_the_rule_of_100_words(lengths: list[int], passages: list[int]) -> None:
    text = " ".join(sentence(n) for n in lengths)
    assert [len(passage.split()) for passage in passages_of(text)] == passages


WORDS = st.lists(
    st.sampled_from(["Heron", "reed", "water.", "Dr.", "Sella!", "mill,", "\n", "1901.", '"Yes."']), max_size=600
)


@given(WORDS)
def test_no_word_is_lost_and_no_passage_starts_within_a_sentence(words: list[str]) -> None:
    text = " ".join(words)
    passages = passages_of(text)
    assert " ".join(passages).split() == text.split()
    sentences = sentences_of(text)
    for passage in passages:
        taken = []
        while " ".join(taken) != passage:  # each is a run of whole sentences
            taken.append(sentences.pop(0))
    assert not sentences
    assert all(len(passage.split()) >= 50 for passage in passages[1:])
