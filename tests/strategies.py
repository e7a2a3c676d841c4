"""Hypothesis strategies, all of them in one place."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import strategies as st

from toolformer_core.annotate.arithmetic import Number

__all__ = ["balanced_texts", "encodable_texts", "number_lists", "texts_and_positions"]

# Every character but lone surrogates, which no UTF-8 text holds; brackets, arrows and spaces are drawn often.
encodable_texts = st.text(
    st.one_of(st.sampled_from("[]()-> \n\x00→"), st.characters(exclude_categories=["Cs"])), max_size=40
)

# Texts that may stand in a call as they are: no brackets or quotes, no space at the ends.
balanced_texts = st.text(st.sampled_from("abc 12+*?é漢"), max_size=12).map(lambda s: " ".join(s.split()))


@st.composite
def texts_and_positions(draw: st.DrawFn) -> tuple[str, list[int]]:
    """A text, and distinct positions in it in any order."""
    text = draw(encodable_texts)
    positions = draw(st.lists(st.integers(0, len(text)), unique=True, max_size=6))
    return text, positions


@st.composite
def number_lists(draw: st.DrawFn) -> list[Number]:
    """Numbers of small mantissas at increasing tokens, so that relations are neither rare nor the rule."""
    out, token = [], 0
    for _ in range(draw(st.integers(0, 7))):
        token += draw(st.integers(1, 5))
        decimals = draw(st.sampled_from([0, 0, 1, 2, 2, 3]))
        out.append(Number(Fraction(draw(st.integers(0, 400)), 10**decimals), decimals, token))
    return out
