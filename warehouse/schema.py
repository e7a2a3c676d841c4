"""The columns of every stage's table, and which stage fills which table.

    | stage     | table       | one shard holds                              |
    |-----------|-------------|----------------------------------------------|
    | ingest    | documents   | the texts x of the corpus                    |
    | prefilter | prefiltered | per tool: one decision per document          |
    | sample    | sampled     | per tool: the distinct draws of the model    |
    | execute   | executed    | per tool: distinct calls and their responses |
    | score     | scored      | per tool: the three losses of every call     |
    | assemble  | examples    | x* and the calls in it                       |

    and where calls are chained (depth n = 2, 3, 4):
    | sample_n  | chain_sampled  | per tool of the last call: draws behind calls of depth n - 1 |
    | execute_n | chain_executed | per tool of the last call: their responses                   |
    | score_n   | chain_scored   | per tool of the last call: the losses of each chain          |

    and for evaluations:
    | benchmark  | items        | the examples of a benchmark                        |
    | evaluate   | predictions  | per arm and k: the results on a benchmark's items  |
    | perplexity | perplexities | per arm: the likelihood of texts, tools disabled   |

    and for groundings:
    | ground          | groundings       | per query and tool: all that the score is made of         |
    | choose          | tool_choices     | per query: the tool that a model chose by itself          |
    | answer_grounded | grounded_answers | per query and method: the chosen tool, call and answer    |

A stage that is not in `STAGES` may have a table all the same: it has the stage's name and the columns that the stage
writes. The columns mirror the method's records, which this package does not import: it knows tables, not what a loss
is. `rejects` belongs to no stage: any stage may reject rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from warehouse.errors import SchemaError, StoreError


def _schema(required: dict[str, pa.DataType], nullable: dict[str, pa.DataType] | None = None) -> pa.Schema:
    fields = [pa.field(name, kind, nullable=False) for name, kind in required.items()]
    fields += [pa.field(name, kind, nullable=True) for name, kind in (nullable or {}).items()]
    return pa.schema(fields)


def _with_nulls(schema: pa.Schema, name: str) -> pa.Schema:
    """Return a schema in which a column may be null, at the same place."""
    at = schema.get_field_index(name)
    return schema.set(at, schema.field(at).with_nullable(True))


_TEXT, _INT, _REAL, _FLAG = pa.string(), pa.int64(), pa.float64(), pa.bool_()

_LOG_PROBS = pa.list_(pa.float32())  # of the tokens from a position on
_SPAN = pa.struct([("start", _INT), ("end", _INT)])
_CALL = pa.struct(
    [
        ("tool", _TEXT),
        ("position", _INT),
        ("start", _INT),
        ("end", _INT),
        ("input", _TEXT),
        ("response", _TEXT),
        ("gain", _REAL),
    ]
)
_PREDICTED_CALL = pa.struct(
    [
        ("tool", _TEXT),
        ("position", _INT),
        ("input", _TEXT),
        ("response", _TEXT),
        ("failure", _TEXT),
        ("asked", _FLAG),
    ]
)

_DOCUMENTS = _schema(
    {"doc_id": _TEXT, "text": _TEXT, "source": _TEXT, "line": _INT}, nullable={"url": _TEXT, "created": _TEXT}
)
REJECTS = _schema({"source": _TEXT, "line": _INT, "reason": _TEXT, "detail": _TEXT, "raw": _TEXT})
_PREFILTERED = _schema(
    {"doc_id": _TEXT, "tool": _TEXT, "kept": _FLAG, "reason": _TEXT, "context": _TEXT, "spans": pa.list_(_SPAN)}
)
_SAMPLED = _schema(
    {
        "doc_id": _TEXT,
        "tool": _TEXT,
        "position": _INT,
        "log_p": _REAL,
        "rank": _INT,
        "raw": _TEXT,
        "outcome": _TEXT,
        "input": _TEXT,
        "count": _INT,
    },
    nullable={"window_end": _INT, "log_p_form": _REAL},
)
_EXECUTED = _schema(
    {"tool": _TEXT, "input": _TEXT, "context": _TEXT, "response": _TEXT, "failure": _TEXT, "detail": _TEXT},
    nullable={"transient": _FLAG},
)
_SCORED = _schema(
    {
        "doc_id": _TEXT,
        "tool": _TEXT,
        "position": _INT,
        "input": _TEXT,
        "response": _TEXT,
        "log_p": _REAL,
        "count": _INT,
        "loss_plain": _REAL,
        "loss_call": _REAL,
        "loss_response": _REAL,
        "seen_before": _FLAG,
        "seen_after": _FLAG,
        "gain": _REAL,  # where loss_call is null, the upper bound that is in `bound` as well
    },
    nullable={
        "bound": _REAL,
        "window_end": _INT,
        "log_p_plain": _LOG_PROBS,
        "log_p_call": _LOG_PROBS,
        "log_p_response": _LOG_PROBS,
        "decoy_gains": pa.list_(_REAL),
    },
)
_SCORED = _with_nulls(_SCORED, "loss_call")  # not computed where no threshold needs it
_LINK = pa.struct([("tool", _TEXT), ("input", _TEXT), ("response", _TEXT)])
_BEHIND = pa.field("behind", pa.list_(_LINK), nullable=False)  # the calls in front of the last one of a chain
_CHAIN_SAMPLED = _SAMPLED.append(_BEHIND)
_CHAIN_SCORED = _SCORED.append(_BEHIND).append(pa.field("loss_shorter", _REAL, nullable=False))
_EXAMPLES = _schema({"doc_id": _TEXT, "text": _TEXT, "calls": pa.list_(_CALL)})
_ITEMS = _schema(
    {
        "item_id": _TEXT,
        "task": _TEXT,
        "prompt": _TEXT,
        "answers": pa.list_(_TEXT),
        "group_name": _TEXT,
        "source": _TEXT,
        "line": _INT,
    },
    nullable={"date": _TEXT, "tool": _TEXT},
)
_EVALUATED = {"evaluation": _TEXT, "task": _TEXT, "arm": _TEXT, "k": _INT, "parameters": _INT, "item_id": _TEXT}
_PREDICTIONS = _schema(
    _EVALUATED
    | {
        "group_name": _TEXT,
        "prompt": _TEXT,
        "answers": pa.list_(_TEXT),
        "continuation": _TEXT,
        "clean": _TEXT,
        "correct": _FLAG,
        "called": _FLAG,
        "new_tokens": _INT,
        "call_tokens": _INT,
        "problem": _TEXT,
    },
    nullable={
        "tool": _TEXT,
        "input": _TEXT,
        "response": _TEXT,
        "failure": _TEXT,
        "calls": pa.list_(_PREDICTED_CALL),
    },
)
_PERPLEXITIES = _schema(
    _EVALUATED | {"source": _TEXT, "nll": _REAL, "tokens": _INT, "characters": _INT, "problem": _TEXT}
)
_GROUNDINGS = _schema(
    {
        "grounding": _TEXT,
        "task": _TEXT,
        "item_id": _TEXT,
        "query": _TEXT,
        "context": _TEXT,
        "right_tools": pa.list_(_TEXT),
        "preliminary": _TEXT,
        "preliminary_counts": pa.list_(_INT),
        "rank": _INT,
        "tool": _TEXT,
        "semantic": _REAL,
        "call": _TEXT,
        "response": _TEXT,
        "failure": _TEXT,
        "counts": pa.list_(_INT),
        "mock": _FLAG,
        "patterns": pa.list_(_TEXT),
        "pattern_weights": pa.list_(_REAL),
    }
)
_TOOL_CHOICES = _schema(
    {
        "grounding": _TEXT,
        "method": _TEXT,
        "task": _TEXT,
        "item_id": _TEXT,
        "query": _TEXT,
        "right_tools": pa.list_(_TEXT),
    },
    nullable={"tool": _TEXT},
)
_GROUNDED_ANSWERS = _schema(
    {
        "grounding": _TEXT,
        "answering": _TEXT,
        "method": _TEXT,
        "task": _TEXT,
        "item_id": _TEXT,
        "query": _TEXT,
        "answers": pa.list_(_TEXT),
        "right_tools": pa.list_(_TEXT),
        "call": _TEXT,
        "answer": _TEXT,
        "correct": _FLAG,
        "failure": _TEXT,
    },
    nullable={"tool": _TEXT},
)


@dataclass(frozen=True, slots=True)
class StageFacts:
    """What the warehouse knows about a stage."""

    name: str
    table: str
    schema: pa.Schema
    per_tool: bool  # whether there is one commit per tool and shard, or one per shard
    about: str  # one sentence: the comment on the table in the snapshot


CHAIN_DEPTHS = (2, 3, 4)  # calls of a chain


def _chain_stages() -> Iterator[StageFacts]:
    """Yield the stages of each depth; all depths share three tables."""
    for depth in CHAIN_DEPTHS:
        yield StageFacts(
            f"sample_{depth}",
            "chain_sampled",
            _CHAIN_SAMPLED,
            True,
            "Per tool of the last call: the distinct draws behind calls that were executed.",
        )
        yield StageFacts(
            f"execute_{depth}",
            "chain_executed",
            _EXECUTED,
            True,
            "Per tool of the last call: each distinct call at the end of a chain, and its response or failure.",
        )
        yield StageFacts(
            f"score_{depth}",
            "chain_scored",
            _CHAIN_SCORED,
            True,
            "Every executed chain of calls with its losses (nats), kept or not.",
        )


# In the order in which they run.
STAGES: dict[str, StageFacts] = {
    facts.name: facts
    for facts in (
        StageFacts("ingest", "documents", _DOCUMENTS, False, "The texts of the corpus, one row per document."),
        StageFacts(
            "prefilter", "prefiltered", _PREFILTERED, True, "Per tool: whether a document is worth annotating, and why."
        ),
        StageFacts(
            "sample", "sampled", _SAMPLED, True, "Per tool: the distinct draws at each position, parsed or not."
        ),
        StageFacts("execute", "executed", _EXECUTED, True, "Per tool: each distinct call and its response or failure."),
        StageFacts("score", "scored", _SCORED, True, "Every executed call with its losses (nats), kept or not."),
        *_chain_stages(),
        StageFacts(
            "assemble", "examples", _EXAMPLES, False, "C*: texts with calls, and where each call is in the text."
        ),
        StageFacts("benchmark", "items", _ITEMS, False, "The examples of each benchmark, as last read."),
        StageFacts(
            "evaluate",
            "predictions",
            _PREDICTIONS,
            False,
            "The result of each arm at each k on every example of a benchmark.",
        ),
        StageFacts(
            "perplexity", "perplexities", _PERPLEXITIES, False, "Summed negative log-likelihood (nats) of every text."
        ),
        StageFacts(
            "ground",
            "groundings",
            _GROUNDINGS,
            False,
            "Per query and tool: cosine, call, response and pattern counts, from which every score is computed.",
        ),
        StageFacts(
            "choose", "tool_choices", _TOOL_CHOICES, False, "Per query: the tool that a model chose without scores."
        ),
        StageFacts(
            "answer_grounded",
            "grounded_answers",
            _GROUNDED_ANSWERS,
            False,
            "Per query and method of choosing: the tool, the large LM's call, and whether the answer is right.",
        ),
    )
}

# Stages that measure models: their runs and those of builds do not replace each other (see `views.CURRENT`).
EVALUATION_STAGES = ("benchmark", "evaluate", "perplexity", "ground", "choose", "answer_grounded")

# The flow that assembles other versions of C* from a build's scores; the build's commits stay current.
WHAT_IF = "what-if"

_VERSIONED = _EXAMPLES.append(pa.field("dataset", _TEXT)).append(pa.field("version", _TEXT))

# Every big table of the snapshot: name -> schema. In the snapshot examples also have the version of C*.
TABLES: dict[str, pa.Schema] = {facts.table: facts.schema for facts in STAGES.values()} | {
    "rejects": REJECTS,
    "examples": _VERSIONED,
    "dataset_examples": _VERSIONED,
}


def stage_facts(stage: str) -> StageFacts:
    """Return a stage's facts.

    Raises:
        StoreError: there is no such stage.
    """
    try:
        return STAGES[stage]
    except KeyError as exc:
        raise StoreError(f"unknown stage {stage!r}; the stages are: {', '.join(STAGES)}") from exc


def empty_table(stage: str) -> pa.Table:
    """Return a stage's table without rows."""
    return stage_facts(stage).schema.empty_table()


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the table with exactly the schema's columns, order and types, in one chunk and without metadata.

    Args:
        table: the rows.
        schema: the columns.

    Raises:
        SchemaError: a column is missing or unknown, cannot be cast, or contains a forbidden null.
    """
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
