"""All benchmarks in one table, and how to read each of them: from files, the hub, an embedded file, or generated."""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from toolformer_core import embedded
from toolformer_core.config import TOOL_NAMES
from toolformer_core.errors import CorpusError, UnknownNameError
from toolformer_core.evaluate.figures import figures_for
from toolformer_core.evaluate.items import BadRowError, Hub, Item, RejectedRow, Rule, Task
from toolformer_core.evaluate.readers import rows
from toolformer_core.evaluate.readers.cloze import lama, templama
from toolformer_core.evaluate.readers.dateset import dateset
from toolformer_core.evaluate.readers.files import (
    Located,
    benchmark_files,
    file_rows,
    hub_rows,
    translation_files,
    translation_rows,
)
from toolformer_core.evaluate.readers.texts import text_items, text_items_from_hub
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
_PROBLEM = "rows with Body, Question and Answer"
_ARTICLE = "data[].paragraphs[] with context and qas[], or rows with context, question and answers"
_ITEM = "JSON lines with prompt and answers (and item_id, date, tool, group)"
_QUERY = "JSON lines with query and tools (and answers, item_id, date, group)"


def tasks() -> dict[str, Task]:
    return {task.name: dataclasses.replace(task, figures=figures_for(task.name)) for task in _all_tasks()}


def task_named(name: str) -> Task:
    """Return a benchmark by its name; case does not matter, and underscores equal hyphens; an UnknownNameError."""
    known = tasks()
    task = known.get(name.strip().lower().replace("_", "-"))
    if task is None:
        raise UnknownNameError("task", name, known)
    return task


# fmt: off
def _all_tasks() -> Iterator[Task]:
    words_5, words_20, number = Rule.FIRST_5_WORDS, Rule.FIRST_20_WORDS, Rule.FIRST_NUMBER
    for name, title, config, glob in (
        ("lama-squad", "LAMA SQuAD", "squad", "Squad/*.jsonl"),
        ("lama-google-re", "LAMA Google-RE", "google_re", "*_of_*"),
        ("lama-trex", "LAMA T-REx", "trex", "P[0-9]*"),
    ):
        yield Task(name, title, words_5, "completion", _MASKED, lama, ("wikisearch",),
                   Hub("facebook/lama", config, "train"), (glob, "*"), one_per_id=True)
    yield Task("templama", "TempLAMA", words_5, "completion", "rows with query (ending in _X_), answer[].name and date",
               templama, hub=Hub("Yova/templama", None, "test"), files=("*test*", "*"))

    for name, title, shape, reader, hub in (
        ("asdiv", "ASDiv", f"XML Problem elements or {_PROBLEM}", rows.asdiv_svamp,
         Hub("EleutherAI/asdiv", None, "validation")),
        ("svamp", "SVAMP", _PROBLEM, rows.asdiv_svamp, Hub("ChilleD/SVAMP", None, "test")),
        ("mawps", "MAWPS", "rows with sQuestion and lSolutions, or question and an answer", rows.mawps,
         Hub("MU-NLPC/Calc-mawps", None, "test")),
        ("gsm8k", "GSM8K", "rows with question and answer (ending in #### N)", rows.gsm8k,
         Hub("openai/gsm8k", "main", "test")),
    ):
        yield Task(name, title, number, "word_problem", shape, reader, hub=hub)

    for name, title, shape, hub in (
        ("webqs", "WebQuestions", "rows with question (qText, utterance) and answers (targetValue)",
         Hub("stanfordnlp/web_questions", None, "test")),
        ("nq", "Natural Questions", "rows with question and answer, a list",
         Hub("google-research-datasets/nq_open", None, "validation")),
        ("triviaqa", "TriviaQA", "rows, or Data[], with Question and Answer.Aliases",
         Hub("mandarjoshi/trivia_qa", "unfiltered.nocontext", "validation")),
    ):
        yield Task(name, title, words_20, "question", shape, rows.open_question, ("qa",), hub)
    for code, language in _MLQA.items():
        files = (f"test-context-en-question-{code}*", f"*context-en-question-{code}*")
        yield Task(f"mlqa-{code}", f"MLQA {language}", Rule.FIRST_10_WORDS, "paragraph_question", _ARTICLE,
                   rows.about_paragraph, (), Hub("facebook/mlqa", f"mlqa.en.{code}", "test"), files,
                   nested=rows.articles)
    for code, (language, iso) in _TATOEBA.items():
        yield Task(f"tatoeba-{code}", f"Tatoeba {language}", words_20, "translation",
                   f"line-aligned files NAME.{iso} and NAME.eng", rows.sentence, files=(f".{iso}",))

    yield Task("dateset", "Dateset", words_5, "question", _ITEM, rows.jsonl_item)
    wikitext = Hub("Salesforce/wikitext", "wikitext-103-raw-v1", "test")
    for name, title, shape in (("perplexity", "Perplexity", "a text"), ("wikitext", "WikiText", "WikiText, raw")):
        yield Task(name, title, Rule.PERPLEXITY, "text", f"{shape}, or rows with a column text", None,
                   tuple(TOOL_NAMES), wikitext)
    for name, title, passages in (
        ("small-world", "The small world", None),
        ("small-world-plain", "The small world, no tool needed", None),
        ("small-world-chains", "The small world, chains of calls", embedded.CHAIN_PASSAGES),
    ):
        yield Task(name, title, words_5, "text", _ITEM, rows.jsonl_item, passages=passages)
    yield Task("queries", "Queries", words_20, "text", _QUERY, rows.query_item)
# fmt: on


def read(task: Task, path: Path | None = None, limit: int | None = None) -> Iterator[Item | RejectedRow]:
    """Read a benchmark item by item, in the order of its files and rows, with rejected rows in between.

    Without a path it is generated (dateset), embedded (small-world) or read from the hub; `limit` counts items. If a
    file repeats an id, the later ones end in #2, #3, ... A CorpusError, at once, if there is no usable row at all.
    """
    stream = _usable(_stream(task, path), limit, task.one_per_id)
    rejected: list[RejectedRow] = []
    for item in stream:
        if isinstance(item, Item):
            return itertools.chain(rejected, [item], stream)
        rejected.append(item)
    where, first = path or (task.hub.repository if task.hub else task.name), next(iter(rejected), None)
    example = f"; the first of {len(rejected)} rows, line {first.line}: {first.reason}, {first.detail}" if first else ""
    raise CorpusError(f"{where} holds no item of {task.title}; expected {task.shape}{example}")


def _stream(task: Task, path: Path | None) -> Iterator[Item | RejectedRow]:
    if path is None and task.name == "dateset":
        return dateset()
    path = path or EMBEDDED.get(task.name)
    if task.reader is None and task.hub is not None:
        return text_items_from_hub(task.name, task.hub) if path is None else text_items(task.name, path)
    if path is None and task.hub is not None:
        return _items(task, hub_rows(task.hub, task.nested), task.hub.repository)
    if path is None:
        raise CorpusError(f"{task.title} is read from its file; give the file with --path")
    if task.form == "translation":
        sentences, translations = translation_files(path, task.files[0])
        return _items(task, translation_rows(sentences, translations), sentences.name)
    sources = {f: f.name if f == path else f.relative_to(path).as_posix() for f in benchmark_files(path, task.files)}
    return itertools.chain.from_iterable(_items(task, file_rows(f, task.nested), s) for f, s in sources.items())


def _items(task: Task, located: Iterable[Located | RejectedRow], source: str) -> Iterator[Item | RejectedRow]:
    assert task.reader is not None
    for one in located:
        if isinstance(one, RejectedRow):
            yield dataclasses.replace(one, source=source)
            continue
        line, row = one
        try:
            yield dataclasses.replace(task.reader(task.name, row, source), source=source, line=line)
        except BadRowError as exc:
            yield RejectedRow(line, exc.reason, exc.detail, source)


def _usable(stream: Iterator[Item | RejectedRow], limit: int | None, one_per_id: bool) -> Iterator[Item | RejectedRow]:
    """Reject what no tokenizer and no file accepts, make ids unique or reject repeated ones, and stop at the limit."""
    seen: Counter[str] = Counter()
    items = 0
    for item in stream:
        source = storable(item.source)
        if isinstance(item, RejectedRow):
            yield dataclasses.replace(item, detail=storable(item.detail), source=source)
            continue
        texts = (item.prompt, *item.answers, item.item_id, item.group)
        if flaw := next(filter(None, map(unencodable, texts)), None):
            yield RejectedRow(item.line, "not_utf8", flaw, source)
            continue
        seen[item.item_id] += 1
        if (count := seen[item.item_id]) > 1 and one_per_id:
            yield RejectedRow(item.line, "same_fact", f"a further wording of {item.item_id}", source)
            continue
        yield dataclasses.replace(item, source=source, item_id=f"{item.item_id}#{count}" if count > 1 else item.item_id)
        items += 1
        if items == limit:
            return
