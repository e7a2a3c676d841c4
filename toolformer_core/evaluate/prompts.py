"""The zero-shot prompts (App. C): how an example becomes the text that a model continues.

    | form               | text                                      | for                                |
    |--------------------|-------------------------------------------|------------------------------------|
    | completion         | an instruction, then x up to the mask     | LAMA, TempLAMA (C.1)               |
    | word_problem       | x q "The answer is"                       | ASDiv, SVAMP, MAWPS, GSM8K (C.2)   |
    | question           | an instruction, then q with its "?"       | WebQS, NQ, TriviaQA, Dateset (C.3) |
    | paragraph_question | an English paragraph, a question about it | MLQA (C.4)                         |

Prompts hold no demonstrations and name no tools. No prompt ends in a space: the model writes the space before its first
word. The instructions are ours. Results depend on a prompt's wording (§6), so after an edit they cannot be compared
with earlier ones.
"""

from __future__ import annotations

__all__ = ["completion", "paragraph_question", "question", "word_problem"]

_QUESTION_MARKS = ("?", "？", "؟")


def completion(statement: str) -> str:
    """Ask for the end of a statement whose first part is given."""
    return f"Complete the text so that it is factually correct: {statement.rstrip()}"


def word_problem(body: str, question: str) -> str:
    """Pose a word problem; either part may be empty."""
    problem = " ".join(part for part in (body.strip(), question.strip()) if part)
    return f"{problem} The answer is"


def question(text: str) -> str:
    """Pose a question; a missing question mark is added."""
    text = text.strip()
    return f"Answer the following question: {text}{'' if text.endswith(_QUESTION_MARKS) else '?'}"


def paragraph_question(paragraph: str, text: str) -> str:
    """Pose a question, in any language, about an English paragraph, and ask for an answer in English."""
    return (
        f"Here is a paragraph: {paragraph.strip()}\n"
        f"Use it to answer, in English, the question that follows: {text.strip()}"
    )
