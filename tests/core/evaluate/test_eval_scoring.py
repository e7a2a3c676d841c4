import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolformer_core.evaluate.items import Item
from toolformer_core.evaluate.scoring import claims_number, is_right, within_first_words
from toolformer_core.evaluate.tasks import task_named


def an_item(task: str, *answers: str) -> Item:
    return Item("1", task, "prompt", answers)


@pytest.mark.parametrize(
    ("task", "words"),
    [("lama-squad", 5), ("lama-google-re", 5), ("lama-trex", 5), ("templama", 5), ("dateset", 5), ("small-world", 5)]
    + [(f"mlqa-{code}", 10) for code in ("es", "de", "hi", "vi", "zh", "ar")]
    + [("webqs", 20), ("nq", 20), ("triviaqa", 20)],
)
def test_the_last_word_looked_at_counts_and_the_next_does_not(task, words):
    item, filler = an_item(task, "Paris"), ["so"] * (words - 1)
    assert is_right(task_named(task), item, " ".join([*filler, "Paris"]))
    assert not is_right(task_named(task), item, " ".join([*filler, "so", "Paris"]))


@pytest.mark.parametrize(
    ("answer", "said", "right"),
    [
        # w1 It, w2 is, w3 in, w4 New, w5 York: the whole answer is within five words
        ("New York", "It is in New York City", True),
        ("New York", "It is in old New York", False),  # York is the sixth
        ("New York", "New and York", False),  # not in a row
        ("New York", "York New", False),
        # punctuation is no word, and what hyphens join is one: A-b c d e Paris -> Paris is the fifth
        ("Paris", "- * well-known c d e Paris", True),
        ("Paris", "well known b c d Paris", False),
        # six words, more than the five looked at: only right if it comes first
        ("the University of California at Berkeley", "the University of California at Berkeley, I think", True),
        ("the University of California at Berkeley", "at the University of California at Berkeley", False),
        ("Paris", "", False),
        ("Paris", " \n ... \n", False),
        ("Paris", "a\nb\nc\nd\nParis", True),
    ],
)
def test_five_words(answer, said, right):
    assert within_first_words([answer], said, 5) is right


@pytest.mark.parametrize(
    ("answer", "texts"),
    [
        ("Paris", ["PARIS!", "(Paris)", "Paris’s streets"]),
        ("Jean-Paul Sartre", ["Jean Paul Sartre"]),
        ("Beyoncé", ["beyonce"]),
        ("Tromsø", ["Tromso"]),
        ("Straße", ["STRASSE"]),
        ("Ｐａｒｉｓ", ["Paris"]),  # full width
        ("AT&T", ["AT and T"]),
        ("5%", ["5 percent"]),
        ("U.S.", ["the US army"]),
        ("US", ["the U.S. army"]),
        ("J. K. Rowling", ["JK Rowling"]),
        ("The United States", ["United States"]),
        ("ma'am", ["ma’am"]),
        ("हिन्दी", ["यह हिन्दी है"]),
        ("مصر", ["في مِصْر الآن"]),  # vowel signs
        ("北京", ["答案是北京市"]),
        # numbers
        ("7", ["seven apples"]),
        ("21", ["twenty one"]),
        ("1000", ["1,000.00"]),
        ("a hundred and two", ["102"]),
        ("5 million", ["5,000,000"]),
        ("three dozen", ["36 eggs"]),
        ("sixth", ["the 6th of May"]),
        ("-3", ["−3 degrees"]),
        ("1939", ["1939-1945"]),
        ("07", ["7"]),
    ],
)
def test_the_same_words(answer, texts):
    assert [text for text in texts if not within_first_words([answer], text, 10)] == []


@pytest.mark.parametrize(
    ("answer", "texts"),
    [
        ("art", ["party"]),
        ("Rome", ["Romeo"]),
        ("The Who", ["who is it"]),  # an article may only be missing from three words or more
        ("the Beatles", ["Beatles"]),
        ("हिन्दी", ["हिन्दीभाषी"]),
        ("北京", ["北 is not 京"]),
        ("5 miles", ["1.5 miles"]),
        # numbers
        ("1", ["twenty-one", "1.5", "-1", "1st", "11"]),
        ("one", ["21", "twenty-one"]),
        ("5", ["1.5", "mp5"]),
        ("1000", ["1,000,000"]),
        ("1990", ["1990s"]),
        ("100", ["two hundred"]),
    ],
)
def test_other_words(answer, texts):
    assert [text for text in texts if within_first_words([answer], text, 10)] == []


def test_any_alias_will_do():
    item = an_item("triviaqa", "Samuel Clemens", "Mark Twain")
    assert is_right(task_named("triviaqa"), item, "It was Mark Twain")
    assert not is_right(task_named("triviaqa"), item, "It was Mark Clemens")


@pytest.mark.parametrize(
    ("answer", "texts"),
    [
        ("8", [" 8.", "5 + 3 = 8 apples", "So they have 5+3=8", "5 + 3 =8"]),
        ("8", ["x = 8, y = 9", "We add 5 and 3. So 5 + 3 = 8."]),  # §4.2.2: the first number after "=", anywhere
        ("6", ["2 * 3 = 6 and 6 + 4 = 10"]),  # the first number behind the first "="
        ("9", [" 8\n5 + 3 = 9"]),
        ("8", ["5 + 3 = x, so x = 8"]),
        ("5", ["5 + 3 = ?"]),  # says nothing
        ("4", ["4.0"]),
        ("4.0", ["4"]),
        ("1000", ["one thousand dollars"]),
        ("114200", ["$114,200"]),
        ("25", ["25% of them"]),
        ("-3", ["-3", "−$3"]),
        ("24", ["two dozen"]),
        ("7", ["seven", "one of 7", "that one has 7"]),
        ("0.5", [".5", "1/2"]),
        ("3/4", ["0.75"]),
        ("2.5", ["2 1/2", "2½"]),
        ("3.333333", ["3.33"]),  # |10/3 - 3.33| = 0.0033 <= 0.005
        ("10/3", ["3.333"]),
        ("22.84", ["22.838"]),  # two decimals are shown by both: 0.002 <= 0.005
        ("10", ["10²"]),
    ],
)
def test_the_number_claimed(answer, texts):
    assert [text for text in texts if not claims_number(answer, text)] == []


@pytest.mark.parametrize(
    ("answer", "texts"),
    [
        ("8", ["9, no, 8", "", "apples", "eighth", "8.01", "5 + 3", "mp8"]),
        ("4", ["3.999"]),  # a whole answer is matched by itself alone
        ("4.00", ["4.004"]),
        ("3", ["-3"]),
        ("5", ["10/2"]),  # an expression is no result
        ("3.333333", ["3.3", "3"]),  # one decimal is not enough to be a rounding
        ("7.5", ["7.54"]),
        ("Monday", ["Monday"]),
    ],
)
def test_other_claims(answer, texts):
    assert [text for text in texts if claims_number(answer, text)] == []


words = st.text(st.characters(categories=["L", "N", "M", "P", "Zs"]), min_size=1, max_size=12)
answers = st.lists(words, min_size=1, max_size=8).map(" ".join).filter(lambda a: any(c.isalnum() for c in a))


@given(answers, st.sampled_from([5, 10, 20]))
@example("²", 5)
@example("one hundred and", 5)
@example("1,0", 5)
def test_an_answer_given_as_it_is_is_right(answer, limit):
    assert within_first_words([answer], answer, limit)


@given(answers, answers, st.sampled_from([5, 10]))
def test_more_words_never_make_a_right_answer_wrong(answer, said, limit):
    assert not within_first_words([answer], said, limit) or within_first_words([answer], said, 2 * limit)


@given(st.decimals(-(10**9), 10**9, places=4))
def test_a_number_given_as_it_is_is_right(value):
    assert claims_number(str(value), f" {value}.")
    assert claims_number(f"{value:f}", f"${value:,f} in all")


@given(st.integers(-(10**6), 10**6), st.integers(-(10**6), 10**6))
def test_whole_numbers_match_only_themselves(a, b):
    assert claims_number(str(a), f"It is {b}") == (a == b)
    assert within_first_words([str(a)], f"It is {b}", 5) == (a == b)


@given(st.text(max_size=60))
def test_any_text_can_be_scored(text):
    within_first_words(["Paris"], text, 5)
    within_first_words([text], "Paris", 5)
    claims_number("8", text)
    claims_number("1/3", text)
