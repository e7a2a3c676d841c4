"""Make a corpus with known calls of GSM8K's problems: corpus.jsonl and gold.jsonl, as `diagnose --gold` reads them.

    python recipes/gsm8k.py gsm8k.train.jsonl --out texts --without gsm8k.test.jsonl --without SVAMP.json

A solution marks every sum it computes, `48/2 = <<48/2=24>>24`. The marks become gold calls, in front of the number, and
leave the text; so does the sum itself, `He sold 24 clips`, unless --sums is given. A text that shares eight words in a
row with an item of a file given by --without is left out and counted.

With --answers a problem of at most two sums has a second text, in which the question decides the operation: `... How
many are left? The answer is 5.` Its gold call is the sum of both, `(4 + 3) - 2`.
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

from toolformer_core.shared_words import SharedWords

_MARK = re.compile(r"<<([^<>=]*)=([^<>]*)>>")
_ANSWER = "\n####"  # in front of a solution's last line
_SUM = re.compile(r"[-$(]?[\d.$(][\d.,$%() +\-*/x×÷]*=[ $]*\Z")  # what stands in front of a mark
_NUMBER = re.compile(r"(?<![\d.])\d*\.?\d+(?![\d.])")
_SHARED_WORDS = 8
_MOST_SUMS = 2  # of a problem whose answer is wanted at once


def with_gold(question: str, solution: str, *, sums: bool) -> tuple[str, list[dict[str, Any]]]:
    """Return a problem with its solution as a text, with the sums in it or without, and the calls of its marks."""
    text, at, calls = question.strip() + "\n", 0, []
    solution = solution.partition(_ANSWER)[0]
    for mark in _MARK.finditer(solution):
        text, at = text + solution[at : mark.start()], mark.end()
        shown = _SUM.search(text)
        if shown and not sums:
            currency = "$" if shown[0].rstrip().endswith("$") else ""
            text = text[: shown.start()] + currency
        position = len(text.removesuffix("$"))
        position -= text[:position].endswith(" ")
        calls.append({"tool": "calculator", "input": _spaced(mark[1]), "position": position, "value": mark[2].strip()})
    return text + solution[at:], calls


def with_answer(question: str, solution: str) -> tuple[str, list[dict[str, Any]]] | None:
    """Return a problem with its answer alone, and the call that gives it; None if that takes no sum or over two."""
    marks = [(mark[1].strip(), mark[2].strip()) for mark in _MARK.finditer(solution)]
    answer = solution.rpartition(_ANSWER)[2].strip()
    if not 0 < len(marks) <= _MOST_SUMS or marks[-1][1] != answer or any(sum_[:1] in "+*/" for sum_, _ in marks):
        return None
    expression = marks[-1][0]
    if len(marks) > 1:
        earlier, value = marks[0]
        if value not in _NUMBER.findall(expression):
            return None  # two sums side by side
        expression = _NUMBER.sub(lambda number: f"({earlier})" if number[0] == value else number[0], expression)
    text = f"{question.strip()} The answer is"
    call = {"tool": "calculator", "input": _spaced(expression), "position": len(text), "value": answer}
    return f"{text} {answer}.", [call]


def _spaced(expression: str) -> str:
    return re.sub(r"\s*([-+*/])\s*", r" \1 ", expression).strip()


def _rows(file: Path) -> list[dict[str, Any]]:
    text = file.read_text("utf-8")
    return json.loads(text) if text.lstrip().startswith("[") else [json.loads(line) for line in text.splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", type=Path, help="GSM8K's rows: question and answer, one JSON object a line")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--sums", action="store_true", help="leave the sums in the texts")
    parser.add_argument("--answers", action="store_true", help="add texts of a question and its answer")
    parser.add_argument("--without", type=Path, action="append", default=[], help="benchmark, JSON or JSON lines")
    given = parser.parse_args()
    items = [" ".join(str(value) for value in row.values()) for file in given.without for row in _rows(file)]
    benchmark = SharedWords(items, _SHARED_WORDS)
    left_out = written = found = 0
    given.out.mkdir(parents=True, exist_ok=True)
    with (given.out / "corpus.jsonl").open("w") as corpus, (given.out / "gold.jsonl").open("w") as gold:
        for number, row in enumerate(_rows(given.problems)):
            text, calls = with_gold(row["question"], row["answer"], sums=given.sums)
            if benchmark.find(text):
                left_out += 1
                continue
            url = f"gsm8k:{number}"
            texts = {url: (text, calls)}
            if given.answers and (answered := with_answer(row["question"], row["answer"])):
                texts[f"{url}#answer"] = answered
            for url, (text, calls) in texts.items():
                print(json.dumps({"text": text, "url": url}), file=corpus)
                print(json.dumps({"url": url, "calls": calls}), file=gold)
                written, found = written + 1, found + len(calls)
    print(f"{written} texts, {found} gold calls; {left_out} texts left out: {_SHARED_WORDS} words of a benchmark")


if __name__ == "__main__":
    main()
