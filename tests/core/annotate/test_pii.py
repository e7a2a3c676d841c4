"""E-mail addresses and telephone numbers: what counts as one, and what masking leaves."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolformer_core.annotate.pii import KINDS, kinds_in, masked

E_MAIL, TELEPHONE = KINDS


@pytest.mark.parametrize(
    ("text", "stars"),  # how many characters of each stretch are masked
    [
        ("Write to jane.doe+x@mail.example.com.", [27]),  # 10 + 1 + 16 characters; the full stop stays
        ("**jo@ex.org** or müller@ex.de", [2 + 9 + 2, 12]),  # the marks of bold type are stars, too
        ("@handle, a@b, 3 @ 5.00 each, x@1.5", []),  # without a domain
        ("Call +44 20 7946 0958, or (555) 010-4477!", [16, 14]),
        ("1-555-010-4477 and 555.010.4477", [14, 12]),
        ("020 7946 0958, 030/1234567 or (01440) 783281", [13, 11, 14]),
        ("555-010-4477(555) 010-4477", [26]),  # one after the other
        ("On 2010-08-08 or 05-06-2016 at 12:30", []),
        ("1,234,567 of 5550104477 are 978-0-306-40615-7", []),
        ("3+12345678 = x, 555-010-44771, version 10.0.19045", []),
        ("Dan has 8 pens and gives 3 of them away: 8 - 3 = 5", []),
    ],
)
def test_what_is_masked(text: str, stars: list[int]) -> None:
    out = masked(text)
    assert [len(run) for run in "".join(c if c == "*" else " " for c in out).split()] == stars
    assert all(one in (other, "*") for one, other in zip(out, text, strict=True))


def test_kinds_are_told_apart() -> None:
    kinds = {"jo@ex.org": [E_MAIL], "+44 20 7946 0958": [TELEPHONE], "jo@ex.org, +44 20 7946 0958": [E_MAIL, TELEPHONE]}
    assert {text: kinds_in(text) for text in kinds} == kinds


_PIECES = ["a", "ab", "@", ".", "-", "+", "(", ")", " ", "0", "1", "12", "555", "0104", "*", "x@y.de", "(555) 010-4477",
           "+4912345678", "020 7946 0958"]  # fmt: skip


@given(st.lists(st.sampled_from(_PIECES), max_size=20).map("".join) | st.text())
@example("555-010-4477+4912345678")
@example("@020 7946 0958-x@foo.de")
def test_nothing_is_left_and_all_else_stays(text: str) -> None:
    out = masked(text)
    assert all(one in (other, "*") for one, other in zip(out, text, strict=True))
    assert (kinds_in(out), masked(out)) == ([], out)
    assert (out == text) == (not kinds_in(text))
