"""Near-duplicates by MinHash, by hand and by the plain definition, and the set of digests in which equal texts meet."""

import hashlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from toolformer_core.annotate.duplicates import BANDS, DigestSet, likeness, near_duplicates, signature_of

WORDS = [f"w{n}" for n in range(100)]


def likeness_of(one: str, other: str) -> float:
    first, second = (signature.sketch for text in (one, other) if (signature := signature_of(text)))
    return likeness(first, second)


def test_likeness_is_that_of_the_runs_of_five_words() -> None:
    text = " ".join(WORDS)
    changed = " ".join([*WORDS[:50], "other", *WORDS[51:]])
    # 96 runs each, of which the 5 with the changed word differ: 91 / (96 + 5) = 0.90, give or take 3 * 0.028
    assert abs(likeness_of(text, changed) - 91 / 101) < 0.09
    # the first half of the runs, 46 of 96: 0.48, give or take 3 * 0.047
    assert abs(likeness_of(text, " ".join(WORDS[:50])) - 46 / 96) < 0.15
    assert likeness_of(text, text.upper().replace(" ", ",\n")) == 1
    assert likeness_of(text, " ".join(f"v{n}" for n in range(100))) < 0.05
    assert signature_of("one two three four") is None
    assert signature_of("one two three four five") is not None


@given(st.lists(st.lists(st.integers(0, 5), min_size=BANDS, max_size=BANDS), max_size=8))
def test_a_document_is_dropped_if_an_earlier_kept_one_shares_a_band(rows: list[list[int]]) -> None:
    # most numbers are made different, so that few bands are shared
    bands = [[value if value < 1 else 100 * n + at for at, value in enumerate(row)] for n, row in enumerate(rows)]
    kept: list[int] = []
    expected: dict[int, int] = {}
    for n, own in enumerate(bands):
        like = [m for m in kept if any(a == b for a, b in zip(own, bands[m], strict=True))]
        if like:
            expected[n] = like[0]
        else:
            kept.append(n)
    assert near_duplicates(np.array(bands, np.uint64).reshape(-1, BANDS)) == expected


# Few first bytes, so that many digests have the same place.
FIRST, LAST = st.sampled_from([b"", b"\1", b"\xff\3"]), st.binary(min_size=7, max_size=7)
DIGESTS = st.builds(lambda first, last: first.ljust(8, b"\0") + last + b"\1", FIRST, LAST)


@given(st.lists(DIGESTS))
def test_it_is_a_set(digests: list[bytes]) -> None:
    plain: set[bytes] = set()
    own = DigestSet()
    for digest in digests:
        assert own.add(digest) == (digest not in plain)
        plain.add(digest)
        assert len(own) == len(plain)


def test_growing_loses_nothing() -> None:
    digests = [hashlib.blake2b(str(n).encode(), digest_size=16).digest() for n in range(5000)]
    own = DigestSet()
    assert [[own.add(digest) for digest in digests] for _ in range(2)] == [[True] * 5000, [False] * 5000]
