"""The benchmarks, as one table, and the two things done with each: reading it and scoring an answer.

    | task                                | asked as (App. C)   | right if (see `scoring`)  | tools left out |
    |-------------------------------------|---------------------|---------------------------|----------------|
    | lama-squad lama-google-re lama-trex | completion          | within the first 5 words  | wikisearch     |
    | templama                            | completion          | within the first 5 words  |                |
    | asdiv svamp mawps gsm8k             | word problem        | the first number          |                |
    | webqs nq triviaqa situatedqa        | question            | within the first 20 words | qa             |
    | mlqa-es -de -hi -vi -zh -ar         | paragraph, question | within the first 10 words |                |
    | dateset                             | question            | within the first 5 words  |                |
    | perplexity wikitext                 | the text            |                           | all            |
    | small-world small-world-plain       | the text so far     | within the first 5 words  |                |

A task is read from its published file (see `cloze`, `word_problems`, `questions`, `texts`), or from the hub by name;
dateset is generated and the small world embedded. Nothing here knows models, arms or where predictions go.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Generator, Iterator, Mapping
from functools import partial
from pathlib import Path

from toolformer_core.config import TOOL_NAMES
from toolformer_core.errors import CorpusError, UnknownNameError, UsageError
from toolformer_core.evaluate.cloze import lama, templama
from toolformer_core.evaluate.dateset import dateset
from toolformer_core.evaluate.figures import figures_for
from toolformer_core.evaluate.files import Located, benchmark_files, file_rows, hub_rows, in_turn, reread
from toolformer_core.evaluate.items import BadRowError, Hub, Item, Rejected, Rule, Task
from toolformer_core.evaluate.own import own_item
from toolformer_core.evaluate.questions import about_paragraph, articles, open_question, situated_question
from toolformer_core.evaluate.scoring import score
from toolformer_core.evaluate.texts import text_items, text_items_from_hub
from toolformer_core.evaluate.word_problems import gsm8k, mawps, stated
from toolformer_core.records import storable, unencodable
from toolformer_core.smallworld import embedded

__all__ = ["EMBEDDED", "read", "score", "task_named", "tasks"]

# The tasks that come with the program, and their files.
EMBEDDED: Mapping[str, Path] = {
    "small-world": embedded.ASSETS / "heldout.jsonl.gz",
    "small-world-plain": embedded.ASSETS / "plain.jsonl.gz",
}

_MLQA = {"es": "Spanish", "de": "German", "hi": "Hindi", "vi": "Vietnamese", "zh": "Chinese", "ar": "Arabic"}
_MASKED = "rows with obj_label and masked_sentences (or evidences[].masked_sentence, or template and sub_label)"
_ITEM = "JSON lines with prompt and answers (and item_id, date, tool, group)"


def tasks() -> dict[str, Task]:
    """Return every benchmark by name, in the order of the paper's tables."""
    every = [*_cloze_tasks(), *_math_tasks(), *_question_tasks(), *_other_tasks()]
    return {task.name: dataclasses.replace(task, figures=figures_for(task.name)) for task in every}


def task_named(name: str) -> Task:
    """Return a benchmark by its name; case and underscores do not matter.

    Raises:
        UnknownNameError: there is none of this name.
    """
    known = tasks()
    task = known.get(name.strip().lower().replace("_", "-"))
    if task is None:
        raise UnknownNameError("task", name, known)
    return task


def _cloze_tasks() -> list[Task]:
    def of(name: str, title: str, config: str, *files: str) -> Task:
        return Task(
            name=name,
            title=title,
            rule=Rule.FIRST_5_WORDS,
            form="completion",
            shape=_MASKED,
            reader=lama,
            excluded_tools=("wikisearch",),
            hub=Hub("facebook/lama", config, "train"),
            files=(*files, "*"),
            one_per_id=True,
        )

    return [
        of("lama-squad", "LAMA SQuAD", "squad", "Squad/*.jsonl"),
        of("lama-google-re", "LAMA Google-RE", "google_re", "*_of_*"),
        of("lama-trex", "LAMA T-REx", "trex", "P[0-9]*"),
        Task(
            name="templama",
            title="TempLAMA",
            rule=Rule.FIRST_5_WORDS,
            form="completion",
            shape="rows with query (ending in _X_), answer[].name and date",
            reader=templama,
            hub=Hub("Yova/templama", None, "test"),
            files=("*test*", "*"),
        ),
    ]


def _math_tasks() -> list[Task]:
    problem = "rows with Body, Question and Answer"
    return [
        Task("asdiv", "ASDiv", Rule.FIRST_NUMBER, "word_problem", f"XML Problem elements or {problem}", stated,
             hub=Hub("EleutherAI/asdiv", None, "validation")),
        Task("svamp", "SVAMP", Rule.FIRST_NUMBER, "word_problem", problem, stated,
             hub=Hub("ChilleD/SVAMP", None, "test")),
        Task("mawps", "MAWPS", Rule.FIRST_NUMBER, "word_problem",
             "rows with sQuestion and lSolutions, or question and an answer", mawps,
             hub=Hub("MU-NLPC/Calc-mawps", None, "test")),
        Task("gsm8k", "GSM8K", Rule.FIRST_NUMBER, "word_problem", "rows with question and answer (ending in #### N)",
             gsm8k, hub=Hub("openai/gsm8k", "main", "test")),
    ]  # fmt: skip


def _question_tasks() -> list[Task]:
    def of(name: str, title: str, shape: str, hub: Hub) -> Task:
        return Task(name, title, Rule.FIRST_20_WORDS, "question", shape, open_question, ("qa",), hub)

    return [
        of("webqs", "WebQuestions", "rows with question (qText, utterance) and answers (targetValue)",
           Hub("stanfordnlp/web_questions", None, "test")),
        of("nq", "Natural Questions", "rows with question and answer, a list",
           Hub("google-research-datasets/nq_open", None, "validation")),
        of("triviaqa", "TriviaQA", "rows, or Data[], with Question and Answer.Aliases",
           Hub("mandarjoshi/trivia_qa", "unfiltered.nocontext", "validation")),
        Task("situatedqa", "SituatedQA", Rule.FIRST_20_WORDS, "question",
             "rows with edited_question, answer and date or location", situated_question, ("qa",),
             files=("*test*", "*")),
        *(
            Task(f"mlqa-{code}", f"MLQA {language}", Rule.FIRST_10_WORDS, "paragraph_question",
                 "data[].paragraphs[] with context and qas[], or rows with context, question and answers",
                 about_paragraph, hub=Hub("facebook/mlqa", f"mlqa.en.{code}", "test"),
                 files=(f"test-context-en-question-{code}*", f"*context-en-question-{code}*"), nested=articles)
            for code, language in _MLQA.items()
        ),
    ]  # fmt: skip


def _other_tasks() -> list[Task]:
    wikitext = Hub("Salesforce/wikitext", "wikitext-103-raw-v1", "test")
    return [
        Task("dateset", "Dateset", Rule.FIRST_5_WORDS, "question", _ITEM, own_item),
        Task("perplexity", "Perplexity", Rule.PERPLEXITY, "text", "a text, or rows with a column text", None,
             tuple(TOOL_NAMES), wikitext),
        Task("wikitext", "WikiText", Rule.PERPLEXITY, "text", "WikiText, raw, or rows with a column text", None,
             tuple(TOOL_NAMES), wikitext),
        Task("small-world", "The small world", Rule.FIRST_5_WORDS, "text", _ITEM, own_item),
        Task("small-world-plain", "The small world, no tool needed", Rule.FIRST_5_WORDS, "text", _ITEM, own_item),
    ]  # fmt: skip


# --- reading ----------------------------------------------------------------------------------------------------------


def read(task: Task, path: Path | None = None, limit: int | None = None) -> Iterator[Item | Rejected]:
    """Read a benchmark, item by item, in the order of its files and rows; bad rows come in between.

    Every item has an id of its own: where a file repeats one, the later ones end in #2, #3, ... A first usable row is
    looked for before anything is returned.

    Args:
        path: a file or a folder; None: generated (dateset), embedded (small-world), else from the hub.
        limit: how many items to give at most; None: all. Of a folder they are then the first item of every file in
            turn, then the second of every file, ...: each file has its part in them, whatever its size.

    Raises:
        CorpusError: there is no such path, it holds no usable row, or the hub cannot be reached.
        UsageError: the limit is not positive.
    """
    if limit is not None and limit < 1:
        raise UsageError(f"limit must be positive, got {limit}")
    stream = _numbered(_encodable(_stream(task, path, turns=limit is not None)), limit, task.one_per_id)
    head: list[Item | Rejected] = []
    for found in stream:
        head.append(found)
        if isinstance(found, Item):
            return _chained(head, stream)
    where = path if path is not None else (task.hub.repository if task.hub else task.name)
    first = next((r for r in head if isinstance(r, Rejected)), None)
    why = f"; the first of {len(head)} rows, line {first.line}: {first.reason}, {first.detail}" if first else ""
    raise CorpusError(f"{where} holds no item of {task.title}; expected {task.shape}{why}")


def _chained(head: list[Item | Rejected], rest: Iterator[Item | Rejected]) -> Iterator[Item | Rejected]:
    yield from head
    yield from rest


def _stream(task: Task, path: Path | None, turns: bool) -> Iterator[Item | Rejected]:
    if path is None and task.name == "dateset":
        return dateset()
    if path is None:
        path = EMBEDDED.get(task.name)
    if task.reader is None:
        if path is not None:
            return text_items(task.name, path, turns)
        return text_items_from_hub(task.name, task.hub) if task.hub else iter(())
    if path is None:
        if task.hub is None:
            raise CorpusError(f"{task.title} is read from its file; name it with --path")
        return _items(task, hub_rows(task.hub, task.nested), task.hub.repository)
    files = benchmark_files(path, task.files)
    if turns and len(files) > 1:
        return in_turn(reread(partial(_file_items, task, path, file)) for file in files)
    return itertools.chain.from_iterable(_file_items(task, path, file) for file in files)


def _file_items(task: Task, path: Path, file: Path) -> Generator[Item | Rejected]:
    source = file.name if file == path else file.relative_to(path).as_posix()
    return _items(task, file_rows(file, task.nested), source)


def _items(task: Task, rows: Iterator[Located | Rejected], source: str) -> Generator[Item | Rejected]:
    for found in rows:
        if isinstance(found, Rejected):
            yield dataclasses.replace(found, source=source)
            continue
        line, row = found
        try:
            item = task.reader(task.name, row, source) if task.reader else None
        except BadRowError as exc:
            yield Rejected(line, exc.reason, exc.detail, source)
            continue
        if item is not None:
            yield dataclasses.replace(item, source=source, line=line)


def _encodable(stream: Iterator[Item | Rejected]) -> Iterator[Item | Rejected]:
    """Reject items that hold a lone surrogate: no tokenizer takes it, and no file holds it."""
    for found in stream:
        source = storable(found.source)
        if isinstance(found, Rejected):
            yield dataclasses.replace(found, detail=storable(found.detail), source=source)
            continue
        texts = (found.prompt, *found.answers, found.item_id, found.group)
        wrong = next(filter(None, map(unencodable, texts)), None)
        yield Rejected(found.line, "not_utf8", wrong, source) if wrong else dataclasses.replace(found, source=source)


def _numbered(stream: Iterator[Item | Rejected], limit: int | None, one_per_id: bool) -> Iterator[Item | Rejected]:
    """Turn away what no UTF-8 text can hold, make ids unique, and stop after the limit."""
    seen: dict[str, int] = {}
    given = 0
    for found in stream:
        if isinstance(found, Item):
            seen[found.item_id] = count = seen.get(found.item_id, 0) + 1
            if count > 1 and one_per_id:
                yield Rejected(found.line, "same_fact", f"a further wording of {found.item_id}", found.source)
                continue
            found = dataclasses.replace(found, item_id=f"{found.item_id}#{count}") if count > 1 else found
            given += 1
        yield found
        if limit is not None and given >= limit:
            return
