"""When a continuation is right: the paper's lenient match (§4.2), made precise.

    | rule           | right if                                                           | tasks                    |
    |----------------|--------------------------------------------------------------------|--------------------------|
    | first 5 words  | an answer's words stand, in a row, within the first 5 words        | LAMA, TempLAMA, Dateset, |
    |                |                                                                    | the demo                 |
    | first 10 words | ... 10                                                             | MLQA                     |
    | first 20 words | ... 20                                                             | WebQS, NQ, TriviaQA      |
    | first number   | the first number, after "=" if there is an equation, is the answer | ASDiv, SVAMP, MAWPS,     |
    |                |                                                                    | GSM8K                    |

The caller takes out the calls the model made (`[Tool(x) -> r]`) first: what a tool answered is not what the model said.

Rulings, where the paper says only "contains". Words, case, accents and punctuation: see `words`. An answer longer than
the limit counts if the continuation begins with it. Numerals in words equal those in digits ("seven" and 7, "sixth" and
6th), and an answer that is a number matches whole numbers only: 1 is not found in twenty-one, 1.5, -1 or 1st. Initials
match with and without points ("U.S.", "US"). An article that leads an answer of at least three words may be missing.

Numbers are compared as values: 4.0 is 4, 1,000 is "one thousand", $5 and 5 % are 5. Where both sides show at least two
decimals the coarser of the two is what must agree (3.33 for 10/3), half a unit of its last place either way; a whole
answer is matched by nothing but itself. 3/4 is read as a fraction only if the answer is not whole, so an expression
copied from the question is no result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from toolformer_core.errors import UsageError
from toolformer_core.evaluate.items import Item, Rule, Task
from toolformer_core.evaluate.numerals import Number, first_number, joined, number_in
from toolformer_core.evaluate.words import Token, normalise, tokens_of

__all__ = ["claims_number", "score", "within_first_words"]

_ARTICLES = frozenset({"a", "an", "the"})
_COARSEST = 2  # decimals from which on a number may be a rounded one


def score(task: Task, item: Item, continuation: str) -> bool:
    """Say whether a continuation is right.

    Args:
        continuation: what the model wrote after the prompt, calls taken out.

    Raises:
        UsageError: the task is scored by perplexity.
    """
    if task.rule is Rule.PERPLEXITY:
        raise UsageError(f"the task {task.name} has no right answers; it is measured by perplexity")
    if task.rule is Rule.FIRST_NUMBER:
        return any(claims_number(answer, continuation) for answer in item.answers)
    return within_first_words(item.answers, continuation, task.rule.words)


# --- words ------------------------------------------------------------------------------------------------------------


def within_first_words(answers: Iterable[str], continuation: str, limit: int) -> bool:
    """Say whether one of the answers stands within the first `limit` words; the rules are told above."""
    said = _views(continuation)
    return any(_found(_views(answer), said, limit) for answer in answers)


def _views(text: str) -> tuple[list[Token], list[Token], list[Token]]:
    """A text's tokens as they are, with initials joined, and with numerals joined."""
    text = normalise(text)
    tokens = tokens_of(text)
    return tokens, _initials_joined(tokens, text), joined(tokens, text)


def _found(answer: Sequence[Sequence[Token]], said: Sequence[Sequence[Token]], limit: int) -> bool:
    plain, _, numerals = answer
    if not plain:
        return False
    limit = max(limit, plain[-1].last + 1)
    if len(numerals) == 1 and numerals[0].kind != "word":
        return _contains(said[2], numerals, limit)
    return any(
        _contains(there, wanted, limit)
        for there, view in zip(said, answer, strict=True)
        for wanted in (view, view[1:] if len(view) > 2 and view[0].text in _ARTICLES else view)
    )


def _contains(said: Sequence[Token], wanted: Sequence[Token], limit: int) -> bool:
    texts = [t.text for t in wanted]
    return any(
        said[i + len(texts) - 1].last < limit and all(said[i + j].text == text for j, text in enumerate(texts))
        for i in range(len(said) - len(texts) + 1)
    )


def _initials_joined(tokens: Sequence[Token], text: str) -> list[Token]:
    """Make one token of initials with points: u.s. -> us, j. k. -> jk."""
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


# --- numbers ----------------------------------------------------------------------------------------------------------


def claims_number(answer: str, continuation: str) -> bool:
    """Say whether the number that a continuation claims is the answer; the rules are told above.

    Args:
        answer: a number, as `number_in` reads it; any other text is matched by nothing.
    """
    right = number_in(answer)
    if right is None:
        return False
    claimed = first_number(continuation, fractions=right.value.denominator != 1)
    return claimed is not None and _equal(right, claimed)


def _equal(right: Number, claimed: Number) -> bool:
    if right.value == claimed.value:
        return True
    shown = [n.decimals for n in (right, claimed) if n.decimals is not None]
    if right.value.denominator == 1 or not shown or min(shown) < _COARSEST:
        return False
    return abs(right.value - claimed.value) <= Fraction(1, 2 * 10 ** min(shown))
