"""All benchmarks in one table, and how to read each of them and score an answer.

    | task                                | prompt (App. C)     | right if (see `scoring`)  | tools left out |
    |-------------------------------------|---------------------|---------------------------|----------------|
    | lama-squad lama-google-re lama-trex | completion          | within the first 5 words  | wikisearch     |
    | templama                            | completion          | within the first 5 words  |                |
    | asdiv svamp mawps gsm8k             | word problem        | the first number          |                |
    | webqs nq triviaqa                   | question            | within the first 20 words | qa             |
    | mlqa-es -de -hi -vi -zh -ar         | paragraph, question | within the first 10 words |                |
    | tatoeba-de -es -fr -zh              | translation         | within the first 20 words |                |
    | dateset                             | question            | within the first 5 words  |                |
    | perplexity wikitext                 | the text            |                           | all            |
    | small-world -plain -chains          | the text so far     | within the first 5 words  |                |
    | queries                             | as it stands        | within the first 20 words |                |

A task is read from its published files (see `readers`), or from the hub by name; dateset is generated, and the small
world is embedded. Nothing here knows models, arms or where predictions are stored.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path

from toolformer_core import embedded
from toolformer_core.config import TOOL_NAMES
from toolformer_core.errors import CorpusError, UnknownNameError, UsageError
from toolformer_core.evaluate.figures import figures_for
from toolformer_core.evaluate.items import BadRowError, Hub, Item, RejectedRow, Rule, Task
from toolformer_core.evaluate.readers.cloze import lama, templama
from toolformer_core.evaluate.readers.dateset import dateset
from toolformer_core.evaluate.readers.files import Located, benchmark_files, file_rows, hub_rows
from toolformer_core.evaluate.readers.jsonl import jsonl_item, query_item
from toolformer_core.evaluate.readers.parallel import translation_items
from toolformer_core.evaluate.readers.questions import about_paragraph, articles, open_question
from toolformer_core.evaluate.readers.texts import text_items, text_items_from_hub
from toolformer_core.evaluate.readers.word_problems import asdiv_svamp, gsm8k, mawps
from toolformer_core.records import storable, unencodable

# The embedded tasks and their files.
EMBEDDED: Mapping[str, Path] = {
    "small-world": embedded.ASSETS / "heldout.jsonl.gz",
    "small-world-plain": embedded.ASSETS / "plain.jsonl.gz",
    "small-world-chains": embedded.ASSETS / "chains-items.jsonl.gz",
}

_MLQA = {"es": "Spanish", "de": "German", "hi": "Hindi", "vi": "Vietnamese", "zh": "Chinese", "ar": "Arabic"}
_TATOEBA = {"de": ("German", "deu"), "es": ("Spanish", "spa"), "fr": ("French", "fra"), "zh": ("Chinese", "cmn")}
_MASKED = "rows with obj_label and masked_sentences (or evidences[].masked_sentence, or template and sub_label)"
_ITEM = "JSON lines with prompt and answers (and item_id, date, tool, group)"


def tasks() -> dict[str, Task]:
    """Return every benchmark by name, in the order of the paper's tables."""
    all_tasks = [*_cloze_tasks(), *_math_tasks(), *_question_tasks(), *_other_tasks()]
    return {task.name: dataclasses.replace(task, figures=figures_for(task.name)) for task in all_tasks}


def task_named(name: str) -> Task:
    """Return a benchmark by its name; case does not matter, and underscores equal hyphens.

    Raises:
        UnknownNameError: there is no such benchmark.
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
        Task("asdiv", "ASDiv", Rule.FIRST_NUMBER, "word_problem", f"XML Problem elements or {problem}", asdiv_svamp,
             hub=Hub("EleutherAI/asdiv", None, "validation")),
        Task("svamp", "SVAMP", Rule.FIRST_NUMBER, "word_problem", problem, asdiv_svamp,
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
        *(
            Task(f"mlqa-{code}", f"MLQA {language}", Rule.FIRST_10_WORDS, "paragraph_question",
                 "data[].paragraphs[] with context and qas[], or rows with context, question and answers",
                 about_paragraph, hub=Hub("facebook/mlqa", f"mlqa.en.{code}", "test"),
                 files=(f"test-context-en-question-{code}*", f"*context-en-question-{code}*"), nested=articles)
            for code, language in _MLQA.items()
        ),
        *(
            Task(f"tatoeba-{code}", f"Tatoeba {language}", Rule.FIRST_20_WORDS, "translation",
                 f"line-aligned files NAME.{iso} and NAME.eng", None, files=(f".{iso}",))
            for code, (language, iso) in _TATOEBA.items()
        ),
    ]  # fmt: skip


def _other_tasks() -> list[Task]:
    wikitext = Hub("Salesforce/wikitext", "wikitext-103-raw-v1", "test")
    return [
        Task("dateset", "Dateset", Rule.FIRST_5_WORDS, "question", _ITEM, jsonl_item),
        Task("perplexity", "Perplexity", Rule.PERPLEXITY, "text", "a text, or rows with a column text", None,
             tuple(TOOL_NAMES), wikitext),
        Task("wikitext", "WikiText", Rule.PERPLEXITY, "text", "WikiText, raw, or rows with a column text", None,
             tuple(TOOL_NAMES), wikitext),
        Task("small-world", "The small world", Rule.FIRST_5_WORDS, "text", _ITEM, jsonl_item),
        Task("small-world-plain", "The small world, no tool needed", Rule.FIRST_5_WORDS, "text", _ITEM, jsonl_item),
        Task("small-world-chains", "The small world, chains of calls", Rule.FIRST_5_WORDS, "text", _ITEM, jsonl_item,
             passages=embedded.CHAIN_PASSAGES),
        Task("queries", "Queries", Rule.FIRST_20_WORDS, "text",
             "JSON lines with query and tools (and answers, item_id, date, group)", query_item),
    ]  # fmt: skip


# --- reading ----------------------------------------------------------------------------------------------------------


def read(task: Task, path: Path | None = None, limit: int | None = None) -> Iterator[Item | RejectedRow]:
    """Read a benchmark item by item, in the order of its files and rows, with rejected rows in between.

    Every item has a unique id: if a file repeats one, the later ones end in #2, #3, ... The function returns only after
    it has found a first usable row.

    Args:
        task: the benchmark.
        path: a file or a folder; None: generated (dateset), embedded (small-world), else from the hub.
        limit: the most items to return; None: all.

    Raises:
        CorpusError: there is no such path, it holds no usable row, or the hub cannot be reached.
        UsageError: the limit is not positive.
    """
    if limit is not None and limit < 1:
        raise UsageError(f"limit must be positive, got {limit}")
    stream = _numbered(_encodable(_stream(task, path)), limit, task.one_per_id)
    head: list[Item | RejectedRow] = []
    for item in stream:
        head.append(item)
        if isinstance(item, Item):
            return itertools.chain(head, stream)
    where = path if path is not None else (task.hub.repository if task.hub else task.name)
    first = next((r for r in head if isinstance(r, RejectedRow)), None)
    example = f"; the first of {len(head)} rows, line {first.line}: {first.reason}, {first.detail}" if first else ""
    raise CorpusError(f"{where} holds no item of {task.title}; expected {task.shape}{example}")


def _stream(task: Task, path: Path | None) -> Iterator[Item | RejectedRow]:
    if path is None and task.name == "dateset":
        return dateset()
    if path is None:
        path = EMBEDDED.get(task.name)
    if task.form == "translation":
        if path is None:
            raise CorpusError(f"{task.title} is read from its files; give the folder, or one of the files, with --path")
        return translation_items(task.name, path, task.files[0])
    if task.reader is None:
        if path is not None:
            return text_items(task.name, path)
        return text_items_from_hub(task.name, task.hub) if task.hub else iter(())
    if path is None:
        if task.hub is None:
            raise CorpusError(f"{task.title} is read from its file; give the file with --path")
        return _items(task, hub_rows(task.hub, task.nested), task.hub.repository)
    files = benchmark_files(path, task.files)
    return itertools.chain.from_iterable(_file_items(task, path, file) for file in files)


def _file_items(task: Task, path: Path, file: Path) -> Iterator[Item | RejectedRow]:
    source = file.name if file == path else file.relative_to(path).as_posix()
    return _items(task, file_rows(file, task.nested), source)


def _items(task: Task, rows: Iterator[Located | RejectedRow], source: str) -> Iterator[Item | RejectedRow]:
    for located in rows:
        if isinstance(located, RejectedRow):
            yield dataclasses.replace(located, source=source)
            continue
        line, row = located
        try:
            item = task.reader(task.name, row, source) if task.reader else None
        except BadRowError as exc:
            yield RejectedRow(line, exc.reason, exc.detail, source)
            continue
        if item is not None:
            yield dataclasses.replace(item, source=source, line=line)


def _encodable(stream: Iterator[Item | RejectedRow]) -> Iterator[Item | RejectedRow]:
    """Reject items that hold a lone surrogate, which no tokenizer and no file accepts."""
    for item in stream:
        source = storable(item.source)
        if isinstance(item, RejectedRow):
            yield dataclasses.replace(item, detail=storable(item.detail), source=source)
            continue
        texts = (item.prompt, *item.answers, item.item_id, item.group)
        flaw = next(filter(None, map(unencodable, texts)), None)
        yield RejectedRow(item.line, "not_utf8", flaw, source) if flaw else dataclasses.replace(item, source=source)


def _numbered(
    stream: Iterator[Item | RejectedRow], limit: int | None, one_per_id: bool
) -> Iterator[Item | RejectedRow]:
    """Make ids unique, or reject rows with a repeated id, and stop at the limit."""
    seen: dict[str, int] = {}
    items = 0
    for item in stream:
        if isinstance(item, Item):
            seen[item.item_id] = count = seen.get(item.item_id, 0) + 1
            if count > 1 and one_per_id:
                yield RejectedRow(item.line, "same_fact", f"a further wording of {item.item_id}", item.source)
                continue
            item = dataclasses.replace(item, item_id=f"{item.item_id}#{count}") if count > 1 else item
            items += 1
        yield item
        if limit is not None and items >= limit:
            return
