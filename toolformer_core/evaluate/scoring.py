"""Decides whether a continuation is right: a precise version of the paper's lenient match (§4.2).

    first n words   the first n words contain an answer's words, consecutively
    first number    the first number, after "=" if there is an equation, is the answer

The calls are removed first, because a tool's response is not the model's text. The paper says only "contains"; these
are our rules, besides those of `words` and `numerals`. An answer longer than the limit counts if the continuation
starts with it. Numerals in words equal those in digits ("sixth" and 6th), and an answer that is a number matches whole
numbers only. Initials match with and without points. An article at the start of an answer of at least three words may
be missing.

Numbers are compared as values: 4.0 is 4, $5 and 5 % are 5. If both have at least two decimals, they must agree to the
coarser of the two (3.33 for 10/3), within half a unit of its last place; a whole answer must match exactly. 3/4 is read
as a fraction only if the answer is not whole.
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction

from toolformer_core.evaluate.items import Item, Rule, Task
from toolformer_core.evaluate.numerals import Number, first_number, join_numerals, number_in
from toolformer_core.evaluate.words import Token, normalise, tokens_of

_ARTICLES = frozenset({"a", "an", "the"})
_MIN_DECIMALS = 2  # with fewer decimals, a number is not regarded as rounded


def is_right(task: Task, item: Item, continuation: str) -> bool:
    """Return whether a continuation is right, for a task that is not measured by perplexity."""
    if task.rule is Rule.FIRST_NUMBER:
        return any(claims_number(answer, continuation) for answer in item.answers)
    return within_first_words(item.answers, continuation, int(task.rule.value))


def within_first_words(answers: Iterable[str], continuation: str, limit: int) -> bool:
    """Return whether the first `limit` words contain one of the answers; see the module for the rules."""
    views = _views(continuation)
    return any(_matches(_views(answer), views, limit) for answer in answers)


def _views(text: str) -> tuple[list[Token], list[Token], list[Token]]:
    text = normalise(text)
    tokens = tokens_of(text)
    return tokens, _join_initials(tokens, text), join_numerals(tokens, text)


def _matches(answer: Sequence[Sequence[Token]], continuation: Sequence[Sequence[Token]], limit: int) -> bool:
    plain, _, numerals = answer
    if not plain:
        return False
    limit = max(limit, plain[-1].last + 1)
    if len(numerals) == 1 and numerals[0].kind != "word":
        return _contains(continuation[2], numerals, limit)
    return any(
        _contains(text_view, tokens, limit)
        for text_view, answer_view in zip(continuation, answer, strict=True)
        for tokens in (answer_view, _without_article(answer_view))
    )


def _without_article(tokens: Sequence[Token]) -> Sequence[Token]:
    return tokens[1:] if len(tokens) > 2 and tokens[0].text in _ARTICLES else tokens


def _contains(tokens: Sequence[Token], answer: Sequence[Token], limit: int) -> bool:
    texts = [t.text for t in answer]
    return any(
        tokens[i + len(texts) - 1].last < limit and all(tokens[i + j].text == text for j, text in enumerate(texts))
        for i in range(len(tokens) - len(texts) + 1)
    )


def _join_initials(tokens: Sequence[Token], text: str) -> list[Token]:
    """Join initials with points into one token: u.s. -> us, j. k. -> jk."""
    out: list[Token] = []
    joining = False
    for token in tokens:
        single = token.kind == "word" and len(token.text) == 1 and token.text.isalpha()
        if single and joining:
            last = out[-1]
            out[-1] = Token(last.text + token.text, "word", last.start, token.end, last.first, token.last)
        else:
            out.append(token)
        joining = single and text[token.end : token.end + 1] == "." and text[token.end + 1 : token.end + 2] != "\n"
    return out


def claims_number(answer: str, continuation: str) -> bool:
    """Return whether the number that a continuation claims is the answer; an answer that is no number never is."""
    right = number_in(answer)
    if right is None:
        return False
    claimed = first_number(continuation, fractions=right.value.denominator != 1)
    return claimed is not None and _equal(right, claimed)


def _equal(right: Number, claimed: Number) -> bool:
    if right.value == claimed.value:
        return True
    decimals = [n.decimals for n in (right, claimed) if n.decimals is not None]
    if right.value.denominator == 1 or not decimals or min(decimals) < _MIN_DECIMALS:
        return False
    return abs(right.value - claimed.value) <= Fraction(1, 2 * 10 ** min(decimals))
