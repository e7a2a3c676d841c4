"""Compressed streams: chunks of bounded size, several streams, padding, damage."""

import io
import zlib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.corpus_formats import COMPRESS
from toolformer_core.compression import TruncatedError, chunks_of, without_compression

PACKED = [suffix for suffix in COMPRESS if suffix]


def until_damage(data: bytes, suffix: str) -> Iterator[bytes]:
    """The chunks of a file that is cut short."""
    chunks = chunks_of(io.BytesIO(data), suffix)
    try:
        yield from chunks
    except TruncatedError:
        return
    pytest.fail("the cut was not noticed")


@pytest.mark.parametrize(("suffix", "most"), [(".gz", 1 << 20), (".bz2", 1 << 16), (".xz", 1 << 16), (".zst", 1 << 27)])
def test_one_stream_that_expands_a_thousandfold_comes_in_small_chunks(suffix: str, most: int) -> None:
    data = COMPRESS[suffix](b"a" * 20_000_000)
    sizes = [len(chunk) for chunk in chunks_of(io.BytesIO(data), suffix)]
    assert len(data) < 30_000
    assert sum(sizes) == 20_000_000
    assert max(sizes) <= most


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=4), st.integers(0, 9), st.sampled_from(PACKED), st.data())
def test_streams_one_after_the_other_are_read_and_a_cut_is_noticed(parts, padding, suffix, data) -> None:
    whole = b"".join(map(COMPRESS[suffix], parts))
    assert b"".join(chunks_of(io.BytesIO(whole + b"\0" * padding), suffix)) == b"".join(parts)
    last = COMPRESS[suffix](parts[-1])
    cut = data.draw(st.integers(1, len(last) - 1))
    found = b"".join(until_damage(whole[:-cut], suffix))
    assert b"".join(parts).startswith(found)
    assert found.startswith(b"".join(parts[:-1]))


def test_what_came_before_a_cut_is_handed_out() -> None:
    stream = zlib.compressobj(wbits=31)
    begun = stream.compress(b"a" * 3_000_000) + stream.flush(zlib.Z_SYNC_FLUSH)
    assert sum(map(len, until_damage(begun, ".gz"))) == 3_000_000


def test_other_bytes_are_damage() -> None:
    for suffix in PACKED:
        with pytest.raises(TruncatedError, match="damaged"):
            list(chunks_of(io.BytesIO(b"no such stream at all"), suffix))


def test_a_name_loses_the_suffix_of_its_compression_alone() -> None:
    names = ["a.xml.bz2", "a.JSONL.GZ", "a.txt", "a.gz.xz"]
    assert [without_compression(name) for name in names] == ["a.xml", "a.JSONL", "a.txt", "a.gz"]
