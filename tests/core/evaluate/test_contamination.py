"""Which items stand in a text: by question and by answer, without what prompts add."""

from toolformer_core.evaluate.contamination import FoundItem, ItemFinder, ItemTexts
from toolformer_core.evaluate.items import Item
from toolformer_core.evaluate.prompts import paragraph_question, question, translation, word_problem

LONG = "one two three four five six seven eight nine ten eleven twelve thirteen"  # as many words


def texts(form: str, prompt: str, *answers: str, ngram: int = 13) -> tuple[str, ...]:
    return ItemTexts.of("b", form, Item("1", "t", prompt, answers), ngram).texts


def test_instructions_paragraphs_and_short_answers_are_no_part_of_an_item() -> None:
    assert texts("question", question("who wrote it"), "Jane Austen") == ("who wrote it?",)
    assert texts("word_problem", word_problem("He has 2.", "How many?"), "2") == ("He has 2. How many?",)
    assert texts("paragraph_question", paragraph_question("A paragraph.", "Was ist das?")) == ("Was ist das?",)
    assert texts("translation", translation("Das ist es.")) == ("Das ist es.",)
    assert texts("question", question("who"), LONG, LONG[4:]) == ("who?", LONG)  # the second has twelve words
    assert texts("question", question("who"), LONG[4:], ngram=12) == ("who?", LONG[4:])


def test_a_text_holds_each_item_once_in_the_order_of_the_benchmarks() -> None:
    items = [
        ItemTexts("svamp", "7", ("Of the six apples he ate two.", LONG)),
        ItemTexts("nq", "1", ("who wrote the book of the year",)),
        ItemTexts("nq", "2", ("what stands in no text at all",)),
    ]
    text = f"Who wrote the Book of the Year? {LONG.upper()}, and: of the six apples he ate two!"
    # The second text begins after "? ", at 30 + 2, and LONG is followed by ", and: ", 7 characters.
    start = 32 + len(LONG) + 7
    assert ItemFinder(items).find(text) == [
        FoundItem("svamp", "7", "of the six apples he ate two", start, start + 28),
        FoundItem("nq", "1", "Who wrote the Book of the Year", 0, 30),
    ]
    assert ItemFinder(items).stretches(text)[1] == FoundItem("svamp", "7", LONG.upper(), 32, 32 + len(LONG))
    assert ItemFinder(items).find("the six apples he ate two") == []
