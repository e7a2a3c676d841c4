"""The zero-shot forms (App. C): how an example becomes the text a model goes on from.

    | form               | text                                      | for                                |
    |--------------------|-------------------------------------------|------------------------------------|
    | completion         | an instruction, then x up to the mask     | LAMA, TempLAMA (C.1)               |
    | word_problem       | x q "The answer is"                       | ASDiv, SVAMP, MAWPS, GSM8K (C.2)   |
    | question           | an instruction, then q with its "?"       | WebQS, NQ, TriviaQA, Dateset (C.3) |
    | paragraph_question | an English paragraph, a question about it | MLQA (C.4)                         |

No demonstrations and no tools are named, and no prompt ends in a space: the model writes the one before its first word.
The instructions are ours. A prompt's wording changes figures (§6), so whoever edits one begins a new series of them.
"""

from __future__ import annotations

__all__ = ["completion", "paragraph_question", "question", "word_problem"]

_QUESTION_MARKS = ("?", "？", "؟")


def completion(statement: str) -> str:
    """Ask for the end of a statement, which is given up to where it breaks off."""
    return f"Complete the text so that it is factually correct: {statement.rstrip()}"


def word_problem(body: str, question: str) -> str:
    """Put a word problem; either part may be empty."""
    told = " ".join(part for part in (body.strip(), question.strip()) if part)
    return f"{told} The answer is"


def question(text: str) -> str:
    """Put a question; a question mark is added if it ends in none."""
    text = text.strip()
    return f"Answer the following question: {text}{'' if text.endswith(_QUESTION_MARKS) else '?'}"


def paragraph_question(paragraph: str, text: str) -> str:
    """Put a question, in any language, about an English paragraph; the answer is wanted in English."""
    return (
        f"Here is a paragraph: {paragraph.strip()}\n"
        f"Use it to answer, in English, the question that follows: {text.strip()}"
    )
