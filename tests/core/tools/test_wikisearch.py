import gzip
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolformer_core.errors import UsageError
from toolformer_core.records import ToolFailure, ToolResponse
from toolformer_core.tools.build import ToolSettings, build_tools
from toolformer_core.tools.search.passages import PassageIndex, query_words
from toolformer_core.tools.wikisearch import WikiSearch, snippet

ANY_TEXT = st.text(st.characters(exclude_categories=())) | st.text(
    "abto []{}()\"':^~*?\\/+-&|!<> ANDORNOT", max_size=40
)
ARCHIVE = gzip.compress(b"".join(b'{"title": "%d", "text": "b"}\n' % number for number in range(500)), mtime=0)
LONG = "The mill stands by the Sella. " * 20

ROWS = [
    {"title": "Velden", "text": "Velden is a town in the north of Ostmark."},
    {"title": "Mira Holt", "section": "Life", "text": "Mira Holt was a painter who was born in Velden."},
    {"title": "Red Mill", "text": LONG},
    {"title": "Twin", "section": "A", "text": "Heron and reed."},
    {"title": "Twin", "section": "B", "text": "Heron and reed."},
]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> PassageIndex:
    path = tmp_path_factory.mktemp("wiki") / "passages.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in ROWS), encoding="utf-8")
    return PassageIndex(path)


@pytest.mark.parametrize(
    ("term", "answer"),
    [
        ("Mira Holt", "Mira Holt > Life > Mira Holt was a painter who was born in Velden."),
        ("painters", "Mira Holt > Life > Mira Holt was a painter who was born in Velden."),  # stemmed
        ("velden", "Velden > Velden is a town in the north of Ostmark."),  # the title counts more
        ("heron reed", "Twin > A > Heron and reed."),  # equal scores: the first in the file
    ],
)
def test_the_best_passage_is_shown(index: PassageIndex, term: str, answer: str) -> None:
    assert WikiSearch(index).run(term) == ToolResponse(answer)


@pytest.mark.parametrize(("term", "reason"), [("", "empty_input"), ("?! []", "empty_input"), ("zebra", "no_result")])
def test_failures_are_typed(index: PassageIndex, term: str, reason: str) -> None:
    assert WikiSearch(index).run(term) == ToolFailure(reason)


def test_a_long_text_is_cut_at_a_sentence(index: PassageIndex) -> None:
    # "The mill stands by the Sella. " is 30 characters; ten of them less the last space are 299 <= 300
    assert WikiSearch(index).run("red mill") == ToolResponse("Red Mill > " + LONG[:299])


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("One two. Three four.", 100, "One two. Three four."),
        ("One two. Three four.", 12, "One two."),
        ("One two three four", 12, "One two..."),
        # 17 characters hold "Dr. Lind wrote a "
        ("Dr. Lind wrote a great many long letters", 20, "Dr. Lind wrote a..."),
        ("abcdefghijkl", 6, "abc..."),
    ],
)
def test_snippet(text: str, limit: int, expected: str) -> None:
    assert snippet(text, limit) == expected


@given(ANY_TEXT, st.integers(3, 40))
def test_a_snippet_is_never_longer_than_asked(text: str, limit: int) -> None:
    assert len(snippet(text, limit)) <= limit


def test_query_words_are_words_only() -> None:
    words = "title röntgen and x ray 2 or नमस्ते".split()
    assert query_words('Title:"Röntgen" AND (x-ray^2 \ud800 OR) \0 नमस्ते title') == words


def test_the_fingerprint_follows_the_passages(index: PassageIndex, tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps(ROWS[0]), encoding="utf-8")
    assert WikiSearch(PassageIndex(other)).fingerprint != WikiSearch(index).fingerprint
    assert WikiSearch(index, max_chars=100).fingerprint != WikiSearch(index).fingerprint


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"title": "a", "text": "b"}\n{"title": "a"}', "line 2 is not a passage"),
        (b'{"title": 1, "text": "b"}', "line 1 is not a passage"),
        (b"[" * 100_000, "line 1 is not a passage"),
        (b"\xff", "cannot read passages"),
        (b"\n", "holds no passages"),
        (ARCHIVE[: len(ARCHIVE) // 2] + bytes(40) + ARCHIVE[len(ARCHIVE) // 2 + 40 :], "passage"),
    ],
)
def test_a_broken_file_says_where_before_the_first_call(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / ("p.jsonl.gz" if content.startswith(b"\x1f\x8b") else "p.jsonl")
    path.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        build_tools(["qa"], ToolSettings(passages=path))
    with pytest.raises(UsageError, match=message):
        PassageIndex(path).load()


def test_many_threads_get_the_same_answer_from_one_index(index: PassageIndex) -> None:
    fresh = WikiSearch(PassageIndex(index.path))
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(fresh.run, ["Mira Holt"] * 64))) == 1
