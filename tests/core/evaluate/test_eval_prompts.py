from __future__ import annotations

import pytest

from toolformer_core.evaluate.prompts import completion, paragraph_question, question, word_problem


def test_prompts_end_as_the_papers_do():
    whole = "Complete the text so that it is factually correct: The mill stands in"
    assert completion("The mill stands in ") == whole  # breaks off where the statement does
    assert word_problem(" Two and 3. ", "How many?") == "Two and 3. How many? The answer is"
    assert word_problem("", "How many?") == "How many? The answer is"
    text = paragraph_question("The mill is old.\n", " ¿Cuándo? ")
    assert "The mill is old.\n" in text
    assert "in English" in text
    assert text.endswith("¿Cuándo?")


@pytest.mark.parametrize(
    ("asked", "put"),
    [
        ("who built it", "who built it?"),
        ("Who built it?", "Who built it?"),
        ("Who built it ? ", "Who built it ?"),
        ("谁建的？", "谁建的？"),
        ("من بناه؟", "من بناه؟"),
    ],
)
def test_a_question_has_its_mark(asked, put):
    assert question(asked) == f"Answer the following question: {put}"
