"""Small made-up files in the published format of every benchmark, with the items expected from each."""

from tests.core.evaluate.published.cloze import CLOZE
from tests.core.evaluate.published.files import Format, lines, packed, split
from tests.core.evaluate.published.math_problems import MATH
from tests.core.evaluate.published.questions import QUESTIONS

__all__ = ["FORMATS", "Format", "lines", "packed", "split"]

FORMATS = CLOZE | MATH | QUESTIONS
