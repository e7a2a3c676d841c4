"""The zero-shot prompts (App. C): how an example becomes the text that a model continues.

No prompt ends in a space: the model writes the space before its first word. The instructions of C.1 and C.4 are in our
words; after an edit results cannot be compared with earlier ones (§7).
"""

_QUESTION_MARKS = ("?", "？", "؟")
_COMPLETE = "Complete the text so that it is factually correct: "
_ANSWER_IS = " The answer is"
_ANSWER = "Answer the following question: "
_USE_PARAGRAPH = "\nUse it to answer, in English, the question that follows: "
_TRANSLATE = "Translate into English: "


def completion(statement: str) -> str:
    return _COMPLETE + statement.rstrip()


def word_problem(body: str, question: str) -> str:
    problem = " ".join(part for part in (body.strip(), question.strip()) if part)
    return problem + _ANSWER_IS


def question(text: str) -> str:
    text = text.strip()
    return _ANSWER + text + ("" if text.endswith(_QUESTION_MARKS) else "?")


def paragraph_question(paragraph: str, text: str) -> str:
    """Pose a question, in any language, about an English paragraph, and ask for an answer in English."""
    return f"Here is a paragraph: {paragraph.strip()}{_USE_PARAGRAPH}{text.strip()}"


def translation(sentence: str) -> str:
    return _TRANSLATE + sentence.strip()


def query_in(form: str, prompt: str) -> str:
    """Return what a prompt asks, without instruction or paragraph; "Translate into English" stays."""
    if form == "word_problem":
        return prompt.removesuffix(_ANSWER_IS)
    if form == "paragraph_question":
        return prompt.rpartition(_USE_PARAGRAPH)[2]
    return prompt.removeprefix({"completion": _COMPLETE, "question": _ANSWER}.get(form, ""))


def question_in(form: str, prompt: str) -> str:
    """Return what a prompt asks, without any instruction; of a paragraph and a question, the question alone."""
    return prompt.removeprefix(_TRANSLATE) if form == "translation" else query_in(form, prompt)
