"""The stages, one short function each over the shape of `shards.run_shard`, and the Prefect tasks they run in.

    ingest      corpus            -> documents, cut into shards
    prefilter   documents         -> verdicts             per tool and shard
    sample      + verdicts        -> draws                per tool and shard
    execute     + draws           -> responses            per tool and shard
    score       + responses       -> losses               per tool and shard
    assemble    + losses          -> examples of C*       per shard, all tools

The four stages of one tool and shard are one task, `annotate`: each is committed as it is done, and a task costs
Prefect more than a small shard costs a stage.
Dask pickles a task by value, with the globals it names: keep locks and loaded things in `spec`, not here.
A task takes references (`BuildSpec`, `Shard`, `Done`) and returns one: data never travels through Prefect. What a stage
does is `toolformer_core.annotate`; what it depends on stands in `works`, where its rows went is said here. Prefect's
own cache is off: commits decide what is done, and it would pickle and digest every task's arguments.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks import translate
from tasks.answers import ANSWERED, Answers, answers_in
from tasks.assembling import assemble_part, positive
from tasks.models import InTurn
from tasks.shards import Done, Outcome, Writer, run_shard, tell
from tasks.spec import BuildSpec, claims_of, model_of, tool_of
from tasks.works import (
    VERSIONS,
    Assembly,
    Shard,
    execute_work,
    ingest_work,
    part,
    prefilter_work,
    sample_work,
    score_work,
    shards_of,
)
from toolformer_core.annotate.execute import execute
from toolformer_core.annotate.ingest import read_corpus
from toolformer_core.annotate.prefilter import prefilter
from toolformer_core.annotate.sample import sample
from toolformer_core.annotate.score import score
from toolformer_core.records import Document, DrawnCall, Rejection, Verdict
from toolformer_core.tools.base import lifetime_s
from warehouse.commits import Balance
from warehouse.store import Store

__all__ = [
    "LM_TOKENS",
    "VERSIONS",
    "Shard",
    "annotate_shard",
    "annotate_shards",
    "assemble_shard",
    "assemble_shards",
    "execute_shard",
    "ingest_corpus",
    "prefilter_shard",
    "sample_shard",
    "score_shard",
    "shards_of",
]

LM_TOKENS = "lm_tokens"  # the counter of a commit: tokens passed through the model, padding included
_REJECTS_PER_FILE = 10_000  # rejected rows held at once


def _balance(unit: str, outcomes: Iterable[str], kept: str) -> Balance:
    counts = Counter(outcomes)
    total = sum(counts.values())
    return Balance(unit, total, counts.pop(kept, 0), dropped=dict(sorted(counts.items())))


@task(name="ingest", cache_policy=NO_CACHE, task_run_name="ingest")
def ingest_corpus(spec: BuildSpec) -> Done:
    """Read the corpus once; write its documents in shards and its rejected rows beside them."""
    store, work = spec.store(), ingest_work(spec)

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
                write.table(translate.stage_table("ingest", batch), part(kept // len(batch)))
                kept += len(batch)
                batch = []
        if batch:
            write.table(translate.stage_table("ingest", batch), part(kept // spec.ingest.shard_documents))
            kept += len(batch)
        if rejected:
            write.rejects(translate.rejects_table(rejected))
        balance = Balance("rows", kept + failed.total(), kept, failed=dict(sorted(failed.items())))
        return Outcome((balance,))

    return run_shard(store, work, spec.run_id, do, claims_of(store))


def prefilter_shard(spec: BuildSpec, tool: str, shard: Shard) -> Done:
    """Judge every document of a shard for one tool."""
    store, work = spec.store(), prefilter_work(spec, tool, shard)

    def do(write: Writer) -> Outcome:
        documents = translate.documents_of(store.read(shard.documents))
        verdicts = list(prefilter(tool, documents, spec.prefilter))
        balance = _balance("documents", ("kept" if v.kept else v.reason for v in verdicts), "kept")
        write.table(translate.stage_table("prefilter", verdicts))
        return Outcome((balance,))

    return run_shard(store, work, spec.run_id, do, claims_of(store))


def sample_shard(spec: BuildSpec, tool: str, shard: Shard, prefiltered: Done) -> Done:
    """Draw calls into the documents that the prefilter kept."""
    store, work = spec.store(), sample_work(spec, tool, shard, prefiltered)
    config, prompt = spec.sample[tool], spec.prompts[tool]

    def do(write: Writer) -> Outcome:
        documents = {d.doc_id: d for d in translate.documents_of(store.read(shard.documents))}
        verdicts = [v for v in _verdicts(store, prefiltered) if v.kept]
        sampled, tokens = [], 0
        if verdicts:
            pairs = [(documents[v.doc_id], v) for v in verdicts]
            with InTurn(model_of(spec), write.waits) as lm:
                sampled = sample(lm, prompt, spec.tool_names[tool], pairs, config)
            tokens = lm.tokens
        calls = [call for s in sampled for call in s.calls]
        draws = Counter[str]()
        for call in calls:
            draws[call.outcome] += call.count
        balances = (
            _balance("documents", (s.outcome for s in sampled), "sampled"),
            Balance("draws", sum(draws.values()), draws.pop("ok", 0), dropped=dict(sorted(draws.items()))),
        )
        write.table(translate.stage_table("sample", calls))
        return Outcome(balances, {LM_TOKENS: tokens})

    return run_shard(store, work, spec.run_id, do, claims_of(store))


def execute_shard(spec: BuildSpec, tool: str, shard: Shard, prefiltered: Done, sampled: Done) -> Done:
    """Run the tool on every distinct call of a shard whose answer is not known from earlier."""
    store, work = spec.store(), execute_work(spec, tool, shard, prefiltered, sampled)
    told: list[Answers] = []

    def do(write: Writer) -> Outcome:
        context = {v.doc_id: v.context for v in _verdicts(store, prefiltered)}
        requests = list(dict.fromkeys((call.input, context[call.doc_id]) for call in _parsed(store, sampled)))
        if not requests:
            write.table(translate.stage_table("execute", []))
            return Outcome((Balance("calls", 0, 0),))
        asked = tool_of(spec, tool)
        begin = time.time()
        answers = answers_in(spec.data, tool, work.all_parts(), lifetime_s(asked))
        told.append(answers)
        recalled = answers.recall(requests, offline=spec.offline)
        executions = execute(asked, requests, spec.execute, recalled.known, offline=spec.offline)
        failed = Counter(e.failure for e in executions if e.failure)
        kept = sum(1 for e in executions if not e.failure)
        balance = Balance("calls", len(executions), kept, failed=dict(sorted(failed.items())))
        write.table(translate.stage_table("execute", executions))
        counters = {"cache_hits": len(recalled.known), ANSWERED: min(begin, recalled.answered)}
        return Outcome((balance,), counters)

    done = run_shard(store, work, spec.run_id, do, claims_of(store))
    for answers in told:
        answers.committed(done.key.id)
    return done


def score_shard(spec: BuildSpec, tool: str, shard: Shard, prefiltered: Done, sampled: Done, executed: Done) -> Done:
    """Compute the three losses of every call that has a response."""
    store, work = spec.store(), score_work(spec, tool, shard, prefiltered, sampled, executed)

    def do(write: Writer) -> Outcome:
        context = {v.doc_id: v.context for v in _verdicts(store, prefiltered)}
        answers = {(e.input, e.context): e for f in executed.files for e in translate.executions_of(store.read(f))}
        parsed = _parsed(store, sampled)
        items = [
            (call, answer.response)
            for call in parsed
            if not (answer := answers[call.input, context[call.doc_id]]).failure
        ]
        scored, tokens = [], 0
        if items:
            wanted = {call.doc_id for call, _ in items}
            documents = translate.documents_of(store.read(shard.documents))
            texts = {d.doc_id: d.text for d in documents if d.doc_id in wanted}
            with InTurn(model_of(spec), write.waits) as lm:
                scored = score(lm, spec.tool_names[tool], texts, items, spec.score)
            tokens = lm.tokens
        balance = Balance(
            "calls",
            len(parsed),
            len(scored),
            dropped=positive({"same_call_drawn_differently": len(items) - len(scored)}),
            failed=positive({"no_response": len(parsed) - len(items)}),
        )
        write.table(translate.stage_table("score", scored))
        return Outcome((balance,), {LM_TOKENS: tokens})

    return run_shard(store, work, spec.run_id, do, claims_of(store))


def annotate_shard(spec: BuildSpec, tool: str, shard: Shard) -> tuple[Done, Done, Done, Done]:
    """Run the four stages of one tool on a shard, and tell of each as it finishes."""
    prefiltered = tell(prefilter_shard(spec, tool, shard))
    sampled = tell(sample_shard(spec, tool, shard, prefiltered))
    executed = tell(execute_shard(spec, tool, shard, prefiltered, sampled))
    scored = tell(score_shard(spec, tool, shard, prefiltered, sampled, executed))
    return prefiltered, sampled, executed, scored


@task(name="annotate", cache_policy=NO_CACHE, task_run_name="annotate {tool} {shards[0].name}")
def annotate_shards(spec: BuildSpec, tool: str, shards: Sequence[Shard]) -> list[tuple[Done, Done, Done, Done]]:
    """Run the four stages of one tool on some shards, one after another; the task is named after the first."""
    return [annotate_shard(spec, tool, shard) for shard in shards]


def assemble_shard(
    spec: BuildSpec, shard: Shard, annotated: Sequence[Sequence[Done]], over: Sequence[tuple[str, str]]
) -> Done:
    """Filter the calls of all tools by gain and write the shard's part of C*.

    Args:
        annotated: what `annotate_shard` returned for each tool; nothing of one that had enough examples before.
        over: (tool, document id) pairs beyond the limit of examples per tool.
    """
    scored = [done[-1] for done in annotated if done]
    full = [tool for tool, done in zip(spec.tools, annotated, strict=True) if not done]
    assembly = Assembly(spec.store(), spec.run_id, spec.assemble, spec.tool_names)
    return assemble_part(assembly, shard, scored, over, not_annotated=full)


@task(name="assemble", cache_policy=NO_CACHE, task_run_name="assemble {shards[0].name}")
def assemble_shards(
    spec: BuildSpec,
    shards: Sequence[Shard],
    annotated: Sequence[Sequence[Sequence[Done]]],
    over: Mapping[str, Sequence[tuple[str, str]]],
) -> list[Done]:
    """Assemble some shards, one after another; the task is named after the first.

    Args:
        annotated: what `annotate_shards` returned for each tool.
        over: by the shard's name, as `assemble_shard` takes it; a shard that is not named has none.
    """
    by_shard = zip(shards, zip(*annotated, strict=True), strict=True)
    return [assemble_shard(spec, shard, of_tools, over.get(shard.name, ())) for shard, of_tools in by_shard]


def _verdicts(store: Store, done: Done) -> list[Verdict]:
    return [v for file in done.files for v in translate.verdicts_of(store.read(file))]


def _parsed(store: Store, done: Done) -> list[DrawnCall]:
    return [c for file in done.files for c in translate.drawn_of(store.read(file)) if c.outcome == "ok"]
