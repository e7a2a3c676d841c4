"""The columns of every stage's table, and which stage fills which table (`STAGES`).

A stage that is not in `STAGES` may have a table all the same: it has the stage's name and the columns that it writes.
Any stage may reject rows (`rejects`); `assemble` fills a second table, `call_outcomes`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from warehouse.errors import SchemaError, StoreError

CALL_OUTCOMES = "call_outcomes"  # what became of each scored call: written with `examples`, and read by no stage


def columns(text: str) -> pa.Schema:
    """Return a schema from its columns as `name type, ...`; `type[]` is a list, and `type?` may be null."""
    fields = []
    for column in text.split(","):
        name, kind = column.split()
        element = _TYPES[kind.rstrip("?").removesuffix("[]")]
        fields.append(pa.field(name, pa.list_(element) if "[]" in kind else element, nullable=kind.endswith("?")))
    return pa.schema(fields)


def table_of(schema: pa.Schema, rows: Sequence[Sequence[Any]]) -> pa.Table:
    """Return rows, each with the values of the columns in order, as a table."""
    values = list(zip(*rows, strict=True)) if rows else [() for _ in schema]
    return pa.table([pa.array(column, field.type) for column, field in zip(values, schema, strict=True)], schema)


def _struct(text: str) -> pa.StructType:
    return pa.struct([(field.name, field.type) for field in columns(text)])


_TYPES: dict[str, pa.DataType] = {
    "text": pa.string(),
    "int": pa.int64(),
    "real": pa.float64(),
    "flag": pa.bool_(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "uint64": pa.uint64(),
    "float32": pa.float32(),
}
_TYPES |= {
    "span": _struct("start int, end int"),
    "call": _struct("tool text, position int, start int, end int, input text, response text, gain real"),
    "predicted_call": _struct("tool text, position int, input text, response text, failure text, requested flag"),
    "link": _struct("tool text, input text, response text"),
    "winner": _struct("tool text, position int, input text, response text, gain real"),
}

_DOCUMENTS = columns("doc_id text, text text, source text, line int, url text?, created text?")
# The last five are those of a document that is dropped for what other texts say; files from before lack them.
REJECTS = columns(
    "source text, line int, reason text, detail text, raw text, doc_id text?, like_doc_id text?, likeness real?, "
    "benchmark text?, item_id text?"
)
_PREFILTERED = columns("doc_id text, tool text, kept flag, reason text, context text, spans span[]")
_SAMPLED = columns(
    "doc_id text, tool text, position int, log_p real, rank int, raw text, outcome text, input text, count int, "
    "window_end int?, log_p_form real?"
)
_EXECUTED = columns("tool text, input text, context text, response text, failure text, detail text, transient flag?")
# Where `loss_call` is null, no threshold needs it, and `gain` is the upper bound that is in `bound` as well. The
# log-probabilities are those of the tokens from the position on.
_SCORED = columns(
    "doc_id text, tool text, position int, input text, response text, log_p real, count int, "
    "loss_plain real, loss_call real?, loss_response real, seen_before flag, seen_after flag, gain real, "
    "bound real?, window_end int?, log_p_plain float32[]?, log_p_call float32[]?, log_p_response float32[]?, "
    "decoy_gains real[]?"
)
_PRECEDING_CALLS = columns("preceding_calls link[]").field(0)  # the calls in front of the last one of a chain
_CHAIN_SAMPLED = _SAMPLED.append(_PRECEDING_CALLS)
_CHAIN_SCORED = _SCORED.append(_PRECEDING_CALLS).append(columns("loss_shorter real").field(0))
_EXAMPLES = columns("doc_id text, text text, calls call[]")
_CALL_OUTCOMES = columns(
    "doc_id text, tool text, position int, input text, response text, preceding_calls link[], gain real, tau_f real?, "
    "outcome text, won_by winner?"
)
_ITEMS = columns(
    "item_id text, task text, prompt text, answers text[], group_name text, source text, line int, date text?, "
    "tool text?"
)
_EVALUATED = "evaluation text, task text, arm text, k int, parameters int, item_id text"
_PREDICTIONS = columns(
    f"{_EVALUATED}, group_name text, prompt text, answers text[], continuation text, clean text, correct flag, "
    "called flag, new_tokens int, call_tokens int, problem text, "
    "tool text?, input text?, response text?, failure text?, calls predicted_call[]?"
)
_PERPLEXITIES = columns(f"{_EVALUATED}, source text, nll real, tokens int, characters int, problem text")
_GROUNDINGS = columns(
    "grounding text, task text, item_id text, query text, context text, right_tools text[], preliminary text, "
    "preliminary_counts int[], rank int, tool text, semantic real, call text, response text, failure text, "
    "counts int[], mock flag, patterns text[], pattern_weights real[]"
)
_TOOL_CHOICES = columns(
    "grounding text, method text, task text, item_id text, query text, right_tools text[], tool text?"
)
_GROUNDED_ANSWERS = columns(
    "grounding text, answering text, method text, task text, item_id text, query text, answers text[], "
    "right_tools text[], call text, answer text, correct flag, failure text, tool text?"
)


@dataclass(frozen=True, slots=True)
class StageFacts:
    name: str
    table: str
    schema: pa.Schema
    about: str  # one sentence: the comment on the table in the snapshot


CHAIN_DEPTHS = (2, 3, 4)  # calls of a chain

_PER_LAST = "Per tool of the last call:"
_PER_TOOL = "Per query and tool: cosine, call, response and pattern counts, from which every score is computed."
_PER_METHOD = "Per query and method of choosing: the tool, the large LM's call, and whether the answer is right."
# The stages of each depth of chains; all depths share three tables.
_CHAINED = {
    "sample": ("chain_sampled", _CHAIN_SAMPLED, f"{_PER_LAST} the distinct samples after calls that were executed."),
    "execute": (
        "chain_executed",
        _EXECUTED,
        f"{_PER_LAST} each distinct call at the end of a chain, and its response or failure.",
    ),
    "score": ("chain_scored", _CHAIN_SCORED, "Every executed chain of calls with its losses (nats), kept or not."),
}

# In the order in which they run.
STAGES: dict[str, StageFacts] = {
    name: StageFacts(name, table, schema, about)
    for name, table, schema, about in (
        ("ingest", "documents", _DOCUMENTS, "The texts of the corpus, one row per document."),
        ("prefilter", "prefiltered", _PREFILTERED, "Per tool: whether a document is worth annotating, and why."),
        ("sample", "sampled", _SAMPLED, "Per tool: the distinct samples at each position, parsed or not."),
        ("execute", "executed", _EXECUTED, "Per tool: each distinct call and its response or failure."),
        ("score", "scored", _SCORED, "Every executed call with its losses (nats), kept or not."),
        *((f"{stage}_{depth}", *facts) for depth in CHAIN_DEPTHS for stage, facts in _CHAINED.items()),
        ("assemble", "examples", _EXAMPLES, "C*: texts with calls, and where each call is in the text."),
        ("benchmark", "items", _ITEMS, "The examples of each benchmark, as last read."),
        ("evaluate", "predictions", _PREDICTIONS, "The result of each arm at each k on every example of a benchmark."),
        ("perplexity", "perplexities", _PERPLEXITIES, "Summed negative log-likelihood (nats) of every text."),
        ("ground", "groundings", _GROUNDINGS, _PER_TOOL),
        ("choose", "tool_choices", _TOOL_CHOICES, "Per query: the tool that a model chose without scores."),
        ("answer_grounded", "grounded_answers", _GROUNDED_ANSWERS, _PER_METHOD),
    )
}

# Stages that measure models: their runs and those of builds do not replace each other (see `current` in `views.sql`).
EVALUATION_STAGES = ("benchmark", "evaluate", "perplexity", "ground", "choose", "answer_grounded")

# The flow that assembles other versions of C* from a build's scores; the build's commits stay current.
WHAT_IF = "what-if"

_VERSIONED = pa.schema([*_EXAMPLES, *columns("dataset text?, version text?")])

# Every big table of the snapshot: name -> schema. In the snapshot documents also have the host of their url, and
# examples the version of C*.
TABLES: dict[str, pa.Schema] = {facts.table: facts.schema for facts in STAGES.values()} | {
    "rejects": REJECTS,
    CALL_OUTCOMES: _CALL_OUTCOMES,
    "documents": pa.schema([*_DOCUMENTS, *columns("host text?")]),
    "examples": _VERSIONED,
    "dataset_examples": _VERSIONED,
}


def stage_facts(stage: str) -> StageFacts:
    """Return a stage's facts; raise `StoreError` if there is no such stage."""
    try:
        return STAGES[stage]
    except KeyError as exc:
        raise StoreError(f"unknown stage {stage!r}; the stages are: {', '.join(STAGES)}") from exc


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the table with exactly the schema's columns, in one chunk; raise `SchemaError` if it does not fit."""
    missing = [name for name in schema.names if name not in table.column_names]
    unknown = [name for name in table.column_names if name not in schema.names]
    if missing or unknown:
        raise SchemaError(f"columns do not fit: missing {missing}, unknown {unknown}; expected {schema.names}")
    for field in schema:
        if not field.nullable and table.column(field.name).null_count:
            raise SchemaError(f"column {field.name!r} must not contain nulls")
    try:
        return table.select(schema.names).replace_schema_metadata(None).cast(schema).combine_chunks()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, ValueError) as exc:
        raise SchemaError(f"a column has the wrong type: {exc}") from exc
