import itertools
import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import a_document, marked_language
from tests.strategies import number_lists
from toolformer_core.annotate.arithmetic import NumberToken, has_equation, has_operation, numbers_in, related
from toolformer_core.annotate.prefilter import fasttext_language, prefilter
from toolformer_core.annotate.readers.dates import url_date
from toolformer_core.config import PrefilterConfig
from toolformer_core.errors import UsageError
from toolformer_core.tools.declaration import DocumentFilter


def judge(tool, text, url=None, identify=marked_language, **config):
    (verdict,) = prefilter(tool, [a_document(text, url)], PrefilterConfig(**config), identify)
    return verdict


def reason(tool, text, url=None, **config):
    return judge(tool, text, url, **config).reason


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1,400 and $35.50, then €7", [1400, Fraction("35.5"), 7]),
        ("29% or 11.4 % of .5", [Fraction("0.29"), Fraction("0.114"), Fraction("0.5")]),
        ("from -5 to −6 (7).", [5, 6, 7]),
        ("version 10.7.3, 500gb, 22nd, x2, 1.2.3.4", []),
        ("1,23 is none, 1,234,567.8 is one", [Fraction("1234567.8")]),
        ("12345678901234567890", []),
        ("1994-2011 and 11/28", [1994, 2011, 11, 28]),
        ("at http://a.org/3?id=5, www.b.org/7.html, c.org/8 or me4@d.org", []),
        ("/find?q=2&page=3 and width=300 height='40%' x", []),
        ("x=5 and 2+3=5, GPA = 3.5", [5, 2, 3, 5, Fraction("3.5")]),  # an equation has one letter or a space
        ("1. one\n 2) two\n(3) three\n[4] four\n- 5: five\n2.1. six\n> 7. seven", []),
        ("he has 1. Then (2) more\n3 of them\n4.5 each\n6.", [1, 2, 3, Fraction("4.5"), 6]),
    ],
)
def test_what_is_a_number(text, values):
    assert [n.value for n in numbers_in(text)] == values


@pytest.mark.parametrize(
    ("text", "years"),
    [
        ("in 1994, until 2011. June 2, 2018 (1999-2004) © 2019", [1994, 2011, 2018, 1999, 2004, 2019]),
        ("the 2018 season, a 1999 film, in 2015 people of the 2020s", [2018, 1999, 2015]),
        ("in 1994 he and in 2011 she", [1994, 2011]),
        ("1804 maps, the 1804 maps, and 1950 more", []),  # something is counted
        ("$1999, 2000 + 4, 3 x 2000 = 6000, 1,999, 1999.5, 2020%", []),  # prices, sums, other forms
        ("1499 and 2100", []),
    ],
)
def test_what_is_a_bare_year(text, years):
    assert [n.value for n in numbers_in(text) if n.is_year] == years


# By the reason: texts, of which several stand on a line, with " | " between.
CALCULATED = {
    "operation": [
        "There were 85 patients (23 of them smokers), or 3.70 for each.",  # 85 / 23 = 3.6957
        "Out of 1400 participants, 400 (or 29%) passed the test.",  # 400 / 1400 = 0.2857
        "The population is 658,893. This is 11.4% of the national total of about 5,763,868 people.",
        "I went to Paris in 1994 and stayed there until 2011, so in total, it was 17 years.",
        "Paid 19.99 for it at a rate of 1.08, that is 21.59.",  # 21.5892
        "He had 3 apples, bought 4 more and now has 7. | 10 and 10 make 20 | 7.5 less 2.5 leaves 5",
        "Born in 1933, she died in 2008 aged 75. | From 1990 to 2000: a 10-year plan",  # years
        "17 years after 1994, in 2011, he left.",
        "Of 2011 maps 1994 maps are old, so 17 maps are new.",  # counted: no years
    ],
    "unrelated_numbers": [
        "1 first 2 second 3 third",  # 1 + 2 = 3, as in every list
        "0 of 15 and again 15 | 1 for 15 and again 15",  # a + 0, a * 1
        "15 and 15 and 15 | 15 and 15 and 0 | 15 and 15 and 1 | 17 and 23 and 51",  # the second and third: a - a, a / a
        "85 and 23 and 3.7",  # one decimal may not be rounded
        "1,234 and 12 and 0.01",  # 12 / 1234 = 0.0097, one digit may not be rounded
        "In 1994 there were 17 shops, in 2011 there were none.",  # 17 of what is no years
        "In 2015 9 % had it, of 224 then, and 2016 was like it.",  # 2016 / 224 = 9
        "In 1994 and in 2012 it was 17 years. | In 1994 it was 0 years, in 1994.",
        "if x <= 5 or y == 6 or z != 7, x >= 8",  # comparisons
    ],
    "few_numbers": [
        "1. 8 cups\n2. 5 spoons\n3. Mix",  # 8 - 5 = 3, but 3 is a list's
        "See http://a.org/8 for 3 of the 5. | see https://a.org/watch?v=0z and a.org/?id=5",
        '<img width=300 height="40"> margin=-2px | x = y | subtotal of 5 | a total of many, 5',
    ],
    "equation": [
        "x = 5 | a total of 85,000 visas | an AVERAGE OF $3 | which equals -.5 | is equal to 9 | 2.50% = 3.75%"
    ],
}


@pytest.mark.parametrize("why", CALCULATED)
def test_why_a_text_is_kept_for_the_calculator_or_dropped(why):
    texts = " | ".join(CALCULATED[why]).split(" | ")
    assert {text: reason("calculator", text, few_numbers_share=0) for text in texts} == dict.fromkeys(texts, why)


@given(st.lists(st.integers(0, 12), max_size=8), st.integers(1, 12))
def test_a_difference_in_years_is_found_wherever_it_stands(values, window):
    # even values are the years 1990 to 2002, odd ones count years
    tokens = enumerate((v, v % 2 == 0) for v in values)
    numbers = [NumberToken(Fraction(1990 * even + v), 0, i, even, not even) for i, (v, even) in tokens]
    between = any(
        a.is_year and b.is_year and c.counts_years and abs(a.value - b.value) == c.value
        for a, b, c in itertools.permutations(numbers, 3)
        if max(n.token for n in (a, b, c)) - min(n.token for n in (a, b, c)) < window
    )
    counts = [n for n in numbers if not n.is_year]
    assert has_operation(numbers, window) == (between or has_operation(counts, window))


@pytest.mark.parametrize(("between", "why"), [(49, "operation"), (50, "unrelated_numbers")])
@pytest.mark.parametrize("numbers", [("20", "30", "50"), ("1994:", "2011:", "17 years")])
def test_the_window_is_a_hundred_tokens(between, why, numbers):
    # 20, n words, 30, 49 words, 50: the last stands n + 51 tokens behind the first, which must be less than 100
    text = f"{numbers[0]} {'word ' * (between - 1)}{numbers[1]} {'word ' * 49}{numbers[2]}"
    assert reason("calculator", text, few_numbers_share=0) == why


@given(number_lists(), st.integers(1, 20))
def test_the_window_search_finds_what_trying_all_threes_finds(numbers, window):
    def near(three):
        return max(n.token for n in three) - min(n.token for n in three) < window

    expected = any(related(*three) for three in itertools.combinations(numbers, 3) if near(three))
    assert has_operation(numbers, window) == expected


@pytest.mark.parametrize("text", ["a =" + " " * 100_000 + "b", ("=" + "\n" * 50) * 2_000], ids=["one", "many"])
def test_blanks_behind_an_equals_sign_are_read_once(text):
    assert not has_equation(text)  # reading them again and again takes hours


@pytest.mark.parametrize("piece", ["a.", "-", "1.", "a@", "ab=", "?a=", "a.bc/", "\n ", "1994 ", "5 years "])
def test_a_long_text_is_judged(piece):
    text = piece * (100_000 // len(piece))
    assert judge("calculator", text).reason  # half a second; an hour where an expression looks at each part again


def test_a_text_of_nothing_but_numbers_is_judged_in_bounded_time():
    numbers = numbers_in(" ".join(str(10**7 + 7919 * i * i % 89999999) for i in range(20_000)))
    begun = time.process_time()
    has_operation(numbers, 100)
    assert time.process_time() - begun < 30


def test_one_in_a_hundred_of_the_rest_is_kept_whatever_the_order():
    documents = [a_document(f"17 and 23 and 51, text {i}x") for i in range(3000)]
    config = PrefilterConfig()
    verdicts = list(prefilter("calculator", documents, config))
    kept = {v.doc_id for v in verdicts if v.kept}
    assert {v.reason for v in verdicts} == {"random_share", "unrelated_numbers"}
    assert 12 <= len(kept) <= 48  # 30 expected, standard deviation 5.4
    assert kept == {v.doc_id for v in prefilter("calculator", documents[::-1], config) if v.kept}
    assert kept != {v.doc_id for v in prefilter("calculator", documents, PrefilterConfig(seed=1)) if v.kept}


@pytest.mark.parametrize(
    ("date", "paths"),
    [
        ("2016-11-28", "2016/11/28/title/ 2016-11-28-title.html x_20161128.html x?date=2016-11-28&y=1"),
        ("2016-11-28", "x?date=2016%2F11%2F28 2016/nov/28/title x?StartDate=20161128 ?on=28-nov-2016"),
        ("2016-11-28", "28-november-2016-title 28th_nov_2016 2016.11.28/title 28.11.2016"),
        ("2016-11-28", "2016/11-28/title 2016_11/28.html"),  # mixed separators
        ("2016-11-28", "28-11-2016/title 28/11/2016 11-28-2016.html"),  # day first: there is no 28th month
        # the first is no day of the calendar, or lies behind the latest day; of two the first one counts
        ("2016-11-28", "2019-13-45/2016/11/28/ 2099/01/01/2016/11/28 2016/11/28/about-2015-01-02"),
        ("2016-01-08", "2016/1/8"),
        ("2018-07-12", "2018/Jul-12/456188-title"),
        ("2019-04-11", "the-news-april-11-2019/"),
        ("2016-05-05", "05-05-2016"),  # both readings are one day
        ("2018-11-15", "news/15nov2018---photo"),
        (None, "covid-19-march-2020-update top-10-december-2020 2012/08/10-things-to-do"),  # the number is the title's
        (None, "05-06-2016"),  # June or May
        (None, "x?id=20161128 x?a=1&vehicleId=20161128"),
        (None, "tool-2016.11.28.tar.gz tool/2016.1.8/ v2016.11.28/ 1.28.11.2016/"),  # versions
        (None, "2016/marches/28 2016/11/ 2016/11/title"),
        (None, "2027/01/01/ 2015/02/29/ 1989/11/28/ 120161128/ 201611281/"),
    ],
)
def test_the_date_in_a_url(date, paths):
    for url in (f"http://a.org/{path}" for path in paths.split()):
        assert url_date(url, "2026-12-31") == date, url
        verdict = judge("calendar", "text", url, latest_date="2026-12-31")
        assert (verdict.kept, verdict.context) == (date is not None, date or "")
        later = "2027" in url
        assert verdict.reason == ("url_date" if date else "later_than_latest_date" if later else "no_url_date")


def test_without_a_url_there_is_no_date():
    assert {reason("calendar", "text", url) for url in ("http://a.org/", "", None)} == {"no_url_date"}


def test_the_latest_day_is_a_setting_and_by_default_there_is_none():
    url = "http://a.org/2099/01/01/"
    results = [judge("calendar", "text", url, latest_date=day) for day in ("2098-12-31", "2099-01-01", "")]
    wanted = [("later_than_latest_date", ""), ("url_date", "2099-01-01"), ("url_date", "2099-01-01")]
    assert [(result.reason, result.context) for result in results] == wanted
    with pytest.raises(UsageError, match="latest_date must be YYYY-MM-DD"):
        PrefilterConfig(latest_date="2027")


ENGLISH = "then came some english words "
FOREIGN = "xa xb xc xd xe xf xg xh xi xj xk xl xm xn xo "


@pytest.mark.parametrize(
    ("paragraph", "kept"),
    [
        (ENGLISH * 5 + FOREIGN + ENGLISH, True),
        (ENGLISH + FOREIGN * 5 + ENGLISH, True),
        *((paragraph, False) for paragraph in (FOREIGN + ENGLISH, ENGLISH + FOREIGN, ENGLISH * 3, "")),
        (ENGLISH + "xa xb xc xd " + ENGLISH, True),
        ("so " + ENGLISH + "xa xb xc xd " + ENGLISH, True),  # at the fifth word, and at the sixth
        (ENGLISH + "xa xb xc " + ENGLISH, False),  # shorter than a chunk
        (ENGLISH + "xa xb xc of " * 3 + ENGLISH, False),  # one common English word in four is more than one in five
        (ENGLISH + "10 20 30 40 50 60 70 80 90 10 20 30 40 50 60 " + ENGLISH, False),
        (ENGLISH + FOREIGN.title() + ENGLISH, False),  # names
        # of 4 words 1 (less than a third) or 2 are not capitalised
        (ENGLISH + "xa Xb Xc Xd " * 3 + ENGLISH, False),
        (ENGLISH + "xa xb Xc Xd " * 3 + ENGLISH, True),
        # 4 words hold 1 separator at most
        (ENGLISH + "xa, xb, xc, xd, xe, " * 6 + ENGLISH, False),
        (ENGLISH + "xa, xb / xc xd; xe | xf " * 3 + ENGLISH, False),
        (ENGLISH + "xa, xb xc xd • xe xf " * 3 + ENGLISH, True),
    ],
)
def test_a_foreign_chunk_must_stand_between_english_text(paragraph, kept):
    assert reason("mt", paragraph) == ("foreign_chunk" if kept else "no_foreign_chunk")


# Four words of a language, of which GPT-J's tokenizer makes about ten tokens; where there are no spaces, a character
# with its marks is a word. Korean and Hindi have spaces, and signs of vowels do not end a word.
TRANSLATED = """das kleine rote Haus. | 孩子们在花园里玩 | หอสมุดเปิดทุกวันตั้งแต่เช้า | ຫໍສະໝຸດເປີດທຸກມື້ຕັ້ງແຕ່ເຊົ້າ
បណ្ណាល័យបើករាល់ថ្ងៃពីព្រឹក | စာကြည့်တိုက်နေ့တိုင်းဖွင့်သည် | 図書館は毎日朝から夜まで開いています
图书馆的大门每天早上九点开，晚上六点关，孩子们不用买票 | पुस्तकालय हर दिन खुला रहता है
도서관은 매일 아침 아홉 시에 문을 열고 저녁 여섯 시에 문을 닫습니다"""
# Too short, English, or lists.
LEFT = """每天 | 도서관은 매일 열려 | पुस्तकालय हर दिन | a fan of retro lamps.
苹果、香蕉、橙子、葡萄、西瓜、草莓、樱桃。 | 王小明、李小红、张小刚、陈美丽、刘建国、赵子龙。
apfel, birne, kirsche, pflaume, traube, himbeere, quitte, dattel, feige, melone.
Giovanni Rossi, Marco Bianchi, Lucia Verdi, Anna Neri, Paolo Gallo, Carla Riva."""


@pytest.mark.parametrize(("foreign", "kept"), [(TRANSLATED, True), (LEFT, False)])
def test_scripts_and_lists(foreign, kept):
    for piece in foreign.replace("\n", " | ").split(" | "):
        text = f"The guide at the door told us this: {piece} We did not know what she had said to us."
        assert judge("mt", text, identify=None).kept == kept, piece


@pytest.mark.parametrize("piece", ["图书馆", "xa, ", "Xa xb "], ids=["han", "list", "words"])
def test_the_language_of_a_long_paragraph_is_asked_in_proportion_to_its_length(piece):
    def asked(pieces):
        texts = []
        judge("mt", piece * pieces, identify=lambda text: texts.append(text) or marked_language(text))
        return len(texts)

    assert asked(4_000) <= 4 * asked(1_000) + 40


def test_the_spans_are_the_paragraphs_kept():
    good = (ENGLISH + FOREIGN + ENGLISH).strip()
    text = f"{ENGLISH}\n{good}\r\n\n{FOREIGN}\n  {good}"
    assert [text[a:b] for a, b in judge("mt", text).spans] == [good, "  " + good]
    assert fasttext_language("first line\nsecond line of the text")[0] == "en"
    assert fasttext_language("")[1] <= 1


def test_the_confidence_must_exceed_its_bound():
    paragraph = ENGLISH + "xa xb xc yes " * 3 + ENGLISH  # three of four
    assert reason("mt", paragraph, language_confidence=0.75) == "no_foreign_chunk"
    assert reason("mt", paragraph, language_confidence=0.74) == "foreign_chunk"


@pytest.mark.parametrize("tool", ["qa", "wikisearch"])
def test_length_and_language(tool):
    texts = (ENGLISH * 2, "  short  " + " " * 50, FOREIGN * 2, "")
    assert [judge(tool, text).kept for text in texts] == [True, False, False, False]
    assert [reason(tool, text) for text in texts] == ["english_text", "too_short", "not_english", "too_short"]


@pytest.mark.parametrize("tool", ["calculator", "calendar", "mt", "qa", "wikisearch", "own"])
@given(text=st.text(), url=st.none() | st.text())
def test_any_text_gets_one_verdict(tool, text, url):
    (verdict,) = prefilter(tool, [a_document(text, url)], PrefilterConfig(), marked_language)
    assert verdict.tool == tool
    assert all(0 <= a < b <= len(text) for a, b in verdict.spans)


def test_a_pattern_that_takes_for_ever_is_the_users_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolformer_core.annotate.prefilter.PATTERN_S", 0.02)
    slow = DocumentFilter(patterns=("^(a|a)*$",))  # 2^24 ways through 24 letters
    with pytest.raises(UsageError, match=r"'\^\(a\|a\)\*\$' takes more than 0.02 s for one document"):
        list(prefilter("own", [a_document("a" * 24 + "b")], PrefilterConfig(), declared=slow))
