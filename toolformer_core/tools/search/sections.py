"""Cuts the text of a section into passages at the ends of sentences.

A passage takes sentences until it has 100 words; a rest of fewer than 50 words goes to the passage before it.
A sentence ends at `.`, `!` or `?` (with closing quotation marks and brackets) before white space, and at the end of a
line; in both cases only if what follows does not begin with a small letter. Single letters and common English
abbreviations end no sentence.
"""

import re

PASSAGE_WORDS = 100
_LEAST_WORDS = PASSAGE_WORDS // 2
_ABBREVIATIONS = frozenset(
    "adm approx apr art aug bros ca capt cf ch co col corp dec dept dr ed eds est etc feb fig figs fl ft gen gov hon "
    "inc jan jr jul jun lt ltd maj messrs mr mrs ms mt no nos nov oct op pp prof rep rev rt sec sen sep sept sgt sr st "
    "ste viz vol vols vs".split()
)
_END = re.compile(r"(?P<mark>[.!?]+[\"'”’»)\]]*)\s+|\n\s*")
_LAST_WORD = re.compile(r"[^\W_]+\Z")


def passages_of(text: str) -> list[str]:
    """Return the passages of a section's text, in order, with white space made single; empty if the text is blank."""
    if len(text.split()) < PASSAGE_WORDS + _LEAST_WORDS:  # the rule comes to one passage
        return [" ".join(text.split())] if text.strip() else []
    passages: list[str] = []
    sentences: list[str] = []
    words = 0
    for sentence in sentences_of(text):
        sentences.append(sentence)
        words += sentence.count(" ") + 1
        if words >= PASSAGE_WORDS:
            passages.append(" ".join(sentences))
            sentences, words = [], 0
    if passages and words < _LEAST_WORDS:
        passages[-1] = " ".join([passages[-1], *sentences])
    elif sentences:
        passages.append(" ".join(sentences))
    return passages


def sentences_of(text: str) -> list[str]:
    """Return the sentences of a text, in order, with white space made single."""
    sentences: list[str] = []
    start = 0
    for match in _END.finditer(text):
        if _is_end(text, match):
            sentences.append(text[start : match.end()])
            start = match.end()
    sentences.append(text[start:])
    return [joined for sentence in sentences if (joined := " ".join(sentence.split()))]


def _is_end(text: str, match: re.Match[str]) -> bool:
    if text[match.end() : match.end() + 1].islower():
        return False
    if match["mark"] != ".":  # the end of a line, a question, an exclamation, a closed quotation
        return True
    word = _LAST_WORD.search(text, max(0, match.start() - 20), match.start())
    if word is None:
        return True
    return not (len(word[0]) == 1 and word[0].isalpha()) and word[0].lower() not in _ABBREVIATIONS
