"""A set of digests is a set: of any bytes, also those that meet in one slot, and while it grows."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from toolformer_core.annotate.duplicates import DigestSet

# Few first bytes, so that many digests have the same place; zeros, which an empty slot holds.
DIGESTS = st.builds(
    lambda first, last: first.ljust(8, b"\0") + last,
    st.sampled_from([b"", b"\1", b"\xff\3"]),
    st.binary(min_size=8, max_size=8),
)


@given(st.lists(DIGESTS | st.sampled_from([bytes(16), bytes(15) + b"\1"])))
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
    assert all(own.add(digest) for digest in [bytes(16), *digests])
    assert not any(own.add(digest) for digest in [bytes(16), *digests])
    assert len(own) == 5001
