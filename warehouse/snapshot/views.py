"""The SQL of the published snapshot's views: which commits are current, and which calls a threshold keeps.

This module is the only place of the filtering rules; every view and query uses them:

- a call must gain at least its tool's threshold tau_f;
- MT only: a call is dropped if its input occurs after its position but not before it;
- of several such calls at one position of a document, of whichever tools, the one with the largest gain wins
  (ties: the first by tool, then input, then response);
- of chains and single calls at one position, the longest that passes wins; a chain's threshold and tool are those of
  its last call;
- of two winners of one tool with the same input, each before the end of the other's window, the one that gains less is
  dropped (if they gain the same, the later one in the text), unless C* was assembled with `keep_repeats`.

An example of a tool is a document with a surviving call of that tool, alone or in a chain. If all tools have the same
threshold and there are no chains, whether a call survives its rivals does not depend on the threshold, since a call is
only dropped in favour of one that gains more: these are the *best calls*. The limit on examples per tool is not applied
here: it chooses among examples, not among calls.

Yields are counted on the table `facts.gains` (see `index`), which contains the best allowed call of every tool at a
position, and the best chain of every sequence of tools; if only one tool has calls there, this call wins whenever its
gain suffices.

Gains are in nats. Positions are character offsets (code points). This module opens no database.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from warehouse.schema import EVALUATION_STAGES, WHAT_IF

THRESHOLDS = (0.5, 1.0, 2.0)  # nats, as in the paper's Table 2

# A gain that could be measured. For DuckDB NaN is the largest number, and since a file's statistics leave NaN out, it
# concludes that there is none and does not evaluate `isnan(gain)`. It cannot draw this conclusion through TRY.
MEASURED = "NOT isnan(TRY(gain))"

# MT only: the model looked ahead.
LOOKED_AHEAD = "(tool = 'mt' AND seen_after AND NOT seen_before)"

# Which scored calls may be kept at all, whatever the threshold. Where L(e(c, eps)) was not computed, the gain is an
# upper bound that is below every threshold in use.
RULES = f"{MEASURED} AND loss_call IS NOT NULL AND NOT {LOOKED_AHEAD}"


def better_nearby(alike: tuple[str, ...]) -> str:
    """Return SQL of whether row `o` has the same call as row `w`, in its window, and gains more."""
    same = " AND ".join(f"o.{name} = w.{name}" for name in alike)
    return f"""{same} AND o."position" < w.window_end AND w."position" < o.window_end
        AND (o.gain > w.gain OR (o.gain = w.gain AND o."position" < w."position"))"""


def _has_better_nearby(winners: str, alike: tuple[str, ...]) -> str:
    """Return SQL that tests whether one of the winners is better than row `w` nearby."""
    return f"EXISTS (FROM {winners} AS o WHERE {better_nearby(alike)})"


# Runs `r`, the newest first: by their numbers, since clocks are set back and those of two machines differ. Runs of
# earlier program versions have no numbers, only times.
NEWEST = "r.number DESC, r.started DESC, r.run_id DESC"

_WINNER = 'row_number() OVER (PARTITION BY doc_id, "position" ORDER BY gain DESC, tool, input, response) = 1'

# Whether the current C* was assembled with repeated calls.
_KEEP_REPEATS = """(SELECT coalesce(bool_or((c.config::JSON->>'keep_repeats')::BOOLEAN), false)
    FROM facts.commits AS c JOIN facts.current USING (commit_id) WHERE c.stage = 'assemble')"""

BEST_CALLS = f"""
WITH won AS (SELECT * FROM scored WHERE {RULES} QUALIFY {_WINNER})
SELECT w.* FROM won AS w WHERE {_KEEP_REPEATS} OR NOT {_has_better_nearby("won", ("doc_id", "tool", "input"))}"""

_MEASURES = "stage IN ({})".format(", ".join(f"'{stage}'" for stage in EVALUATION_STAGES))

# The current commits. Of builds: the commits of one run, the newest completed one that has any, else the newest that
# has any (which is running, or has failed). The results of `what-if` replace nothing. Of evaluations: for each (task,
# text, arm, k, model, tools), the commits of one run, chosen in the same way. Without runs: the newest commit of every
# shard.
CURRENT = f"""
WITH known AS (
    SELECT r.run_id, r.started, r.number, r.state = 'completed' AS completed, c.commit_id,
           CASE WHEN c.{_MEASURES} THEN coalesce(c.config::JSON->>'evaluation', c.shard) ELSE '' END AS of
    FROM facts.run_commits AS rc JOIN facts.runs AS r USING (run_id) JOIN facts.commits AS c USING (commit_id)
    WHERE r.flow <> '{WHAT_IF}'
), loose AS (
    SELECT c.commit_id, c.stage, c.tool, c.shard, c.created, coalesce(r.number, 0) AS number,
           CASE WHEN {_MEASURES} THEN coalesce(config::JSON->>'evaluation', shard) ELSE '' END AS of
    FROM facts.commits AS c LEFT JOIN facts.runs AS r USING (run_id)
)
SELECT DISTINCT commit_id FROM (
    SELECT * FROM known AS r QUALIFY dense_rank() OVER (PARTITION BY of ORDER BY completed DESC, {NEWEST}) = 1)
UNION ALL
SELECT commit_id FROM loose WHERE of NOT IN (SELECT of FROM known)
QUALIFY row_number() OVER (PARTITION BY stage, tool, shard ORDER BY number DESC, created DESC, commit_id DESC) = 1"""

SHARDS = """
SELECT c.stage, c.tool, c.shard, c.commit_id IN (SELECT commit_id FROM facts.current) AS "current",
       c.commit_id NOT IN (SELECT commit_id FROM facts.broken) AS intact, c.rows, c.bytes, c.seconds,
       TRY_CAST(c.created AS TIMESTAMP) AS created, c.run_id, c.host, c.stage_version, c.fingerprint, c.content_digest,
       c.config::JSON AS config, c.counters::JSON AS counters, c.versions::JSON AS versions, c.commit_id
FROM facts.commits AS c"""

DROPS = """
SELECT c.stage, c.tool, b.unit, b.reason, b.kind, sum(b.rows)::BIGINT AS rows
FROM facts.balances AS b JOIN facts.commits AS c USING (commit_id) JOIN facts.current USING (commit_id)
WHERE b.kind IN ('dropped', 'failed')
GROUP BY ALL"""

LINEAGE = """
WITH RECURSIVE used(name, version, made, run_id, commit_id) AS (
    SELECT d.name, d.version, d.made, d.run_id, f.commit_id
    FROM facts.datasets AS d JOIN facts.dataset_files AS df USING (name, version, made)
    JOIN facts.files AS f ON f.path = df.path AND f.digest = df.digest
    UNION
    SELECT u.name, u.version, u.made, u.run_id, source.commit_id
    FROM used AS u JOIN facts.commits AS target ON target.commit_id = u.commit_id
    JOIN facts.commit_inputs AS i ON i.commit_id = u.commit_id
    JOIN facts.files AS f ON f.digest = i.digest AND f.commit_id <> u.commit_id
    JOIN facts.commits AS source ON source.commit_id = f.commit_id
    WHERE (source.tool = target.tool OR source.tool = '' OR target.tool = ''
           OR starts_with(target.stage, 'sample_'))  -- further calls of chains follow calls of any tool
      AND (EXISTS (FROM facts.run_commits AS rc WHERE rc.run_id = u.run_id AND rc.commit_id = source.commit_id)
           OR NOT EXISTS (FROM facts.run_commits AS rc WHERE rc.run_id = u.run_id))
)
SELECT u.name AS dataset, u.version, u.made, c.stage, c.tool, c.shard, f.path AS file, f.rows, f.digest, c.commit_id
FROM used AS u JOIN facts.commits AS c USING (commit_id) JOIN facts.files AS f USING (commit_id)"""


# One row per evaluation: an arm at one k on one task. Its names are those in its newest commit.
EVALUATIONS = """
WITH used AS (
    SELECT rc.commit_id, max((r.number, r.started)) AS run, bool_or(r.state = 'completed') AS completed
    FROM facts.run_commits AS rc JOIN facts.runs AS r USING (run_id) GROUP BY ALL
), evaluated AS (
    SELECT c.*, c.config::JSON AS settings, u.run, (coalesce(r.number, 0), c.created) AS made,
           coalesce(u.completed, false) AS completed
    FROM facts.commits AS c JOIN facts.current USING (commit_id) LEFT JOIN used AS u USING (commit_id)
    LEFT JOIN facts.runs AS r ON r.run_id = c.run_id
    WHERE c.stage IN ('evaluate', 'perplexity')
)
SELECT settings->>'evaluation' AS evaluation, any_value(settings->>'task') AS task, any_value(settings->>'arm') AS arm,
       any_value((settings->>'k')::BIGINT) AS k, max_by(settings->>'model', made) AS model,
       any_value(coalesce((settings->>'max_calls')::BIGINT, 1)) AS max_calls,
       max_by(settings->>'base', made) AS base, any_value(settings->>'model_digest') AS model_digest,
       any_value(settings->>'base_digest') AS base_digest, any_value(settings->>'source') AS source,
       max_by(settings->>'path', made) AS path, count(*) AS shards, sum(seconds) AS seconds,
       bool_and(completed) AS completed, TRY_CAST(max(run)[2] AS TIMESTAMP) AS evaluated,
       coalesce(max(run)[1], 0) AS run_number
FROM evaluated GROUP BY settings->>'evaluation'"""

# Calls of a prediction for which an offered tool was asked. Where an item has one call at most, `calls` is NULL.
_CALLS_MADE = "coalesce(len([c FOR c IN calls IF c.asked]), called::INT)"

ACCURACY = f"""
WITH counted AS (
    SELECT evaluation, any_value(parameters) AS parameters, count(*) AS items, count_if(correct) AS "right",
           avg(correct::INT) AS accuracy, count_if(called) AS called, avg(called::INT) AS call_rate,
           avg({_CALLS_MADE}) AS calls_per_item,
           avg(correct::INT) FILTER (called) AS accuracy_called,
           avg(correct::INT) FILTER (NOT called) AS accuracy_uncalled, count_if(problem <> '') AS failed
    FROM predictions GROUP BY evaluation
)
SELECT e.task, e.base, e.arm, e.k, e.max_calls, c.* EXCLUDE (evaluation), e.model, e.base_digest, e.model_digest,
       e.source, e.path, e.completed, e.evaluated, e.seconds, e.evaluation, e.run_number
FROM counted AS c JOIN evaluations AS e USING (evaluation)"""

# An item of several calls counts once for each tool that it asked; of calls of one tool it failed if the first did.
CALL_RATES = """
WITH made AS (
    SELECT evaluation, task, arm, k, item_id, correct, tool, failure FROM predictions WHERE called AND calls IS NULL
    UNION ALL
    SELECT evaluation, task, arm, k, item_id, correct, call.tool, call.failure
    FROM (SELECT *, unnest(calls) AS call, generate_subscripts(calls, 1) AS number FROM predictions)
    WHERE call.asked QUALIFY row_number() OVER (PARTITION BY evaluation, item_id, call.tool ORDER BY number) = 1
)
SELECT evaluation, any_value(task) AS task, any_value(arm) AS arm, any_value(k) AS k, tool, count(*) AS items,
       count(*) / any_value(total) AS rate, avg(correct::INT) AS accuracy,
       avg((failure IS NOT NULL)::INT) AS failure_rate
FROM made JOIN (SELECT evaluation, count(*) AS total FROM predictions GROUP BY evaluation) USING (evaluation)
GROUP BY evaluation, tool"""

PERPLEXITY = """
WITH summed AS (
    SELECT evaluation, any_value(parameters) AS parameters, count(*) AS texts, sum(tokens)::BIGINT AS tokens,
           exp(sum(nll) / nullif(sum(tokens), 0)) AS perplexity, count_if(problem <> '') AS failed
    FROM perplexities GROUP BY evaluation
)
SELECT e.task, e.source, e.base, e.arm, p.* EXCLUDE (evaluation), e.model, e.base_digest, e.model_digest, e.path,
       e.completed, e.evaluated, e.seconds, e.evaluation, e.run_number
FROM summed AS p JOIN evaluations AS e USING (evaluation)"""


_CHAIN_SLOTS = "SELECT slot, behind FROM facts.slots WHERE behind <> []"  # few, or none


def survivors_sql(rows: str, keep_repeats: str = _KEEP_REPEATS, by: str = "") -> str:
    """Return the query for the calls and chains that survive (slot, tool, doc, "position", gain).

    Args:
        rows: SQL of a relation with the columns of `facts.gains` and `tool`: the calls to choose from.
        keep_repeats: SQL of whether repeated calls are kept.
        by: another column of the relation; for each of its values calls are chosen anew, and it is returned, too.
    """
    also = f", {by}" if by else ""
    alike = ("doc", "tool", "input", *([by] if by else []))
    return f"""
WITH allowed AS ({rows}), won AS (
    SELECT * FROM allowed WHERE NOT contested
    UNION ALL
    SELECT * FROM allowed WHERE contested
    QUALIFY row_number() OVER (PARTITION BY doc, "position"{also} ORDER BY precedence) = 1
), again AS (SELECT * FROM won WHERE repeated AND NOT {keep_repeats})
SELECT slot, tool, doc, "position", gain{also} FROM won WHERE NOT repeated OR {keep_repeats}
UNION ALL
SELECT slot, tool, doc, "position", gain{also} FROM again AS w WHERE NOT {_has_better_nearby("again", alike)}"""


def count_sql(survivors: str, by: str = "") -> str:
    """Return the query for (tool, examples, calls): the calls that survive, where a chain has all of its calls.

    Args:
        survivors: SQL of a relation with tool, doc and slot.
        by: another column of the relation, by whose values the calls are counted as well; it is returned, too.
    """
    also = f", {by}" if by else ""
    return f"""
WITH survivors AS MATERIALIZED ({survivors}), links AS (
    SELECT tool, doc{also} FROM survivors
    UNION ALL SELECT unnest(behind) AS tool, doc{also} FROM survivors JOIN ({_CHAIN_SLOTS}) USING (slot)
), documents AS (SELECT tool, doc{also}, count(*) AS n FROM links GROUP BY ALL)
SELECT tool, count(*) AS examples, sum(n)::BIGINT AS calls{also} FROM documents GROUP BY ALL"""


def yield_sql(thresholds: Iterable[float]) -> str:
    """Return the query for (tool, tau_f, examples, calls), with each threshold (nats) applied to all tools.

    Raises:
        ValueError: there is no threshold, or one is not finite.
    """
    values = sorted({float(value) for value in thresholds})
    if not values or not all(math.isfinite(value) for value in values):
        raise ValueError(f"thresholds must be finite numbers, got {values}")
    listed = ", ".join(f"({value!r}::DOUBLE)" for value in values)
    tau = f"""SELECT tool, tau_f FROM (
        SELECT DISTINCT tool FROM facts.commits JOIN facts.current USING (commit_id) WHERE stage = 'score'
    ) CROSS JOIN (VALUES {listed}) AS t(tau_f)"""
    # Which call stays at a position does not depend on a threshold that all tools share, unless there are chains: the
    # longest one stays that passes. So shards with chains are judged at each threshold, and the others once.
    with_chains = f"shard IN (SELECT shard FROM facts.slots SEMI JOIN ({_CHAIN_SLOTS}) USING (slot))"
    indexed = "SELECT * FROM facts.gains JOIN (FROM facts.slots WHERE {}) USING (slot)"
    once = f"{indexed.format(f'NOT {with_chains}')} WHERE gain >= {values[0]!r}::DOUBLE"
    each = f"""
WITH of_shards AS MATERIALIZED ({indexed.format(with_chains)})  -- not even read where there are none
FROM of_shards JOIN (VALUES {listed}) AS t(tau_f) ON gain >= tau_f"""
    return f"""
WITH tau AS ({tau}), survivors AS ({survivors_sql(once)}),
documents AS (SELECT tool, doc, max(gain) AS gain FROM survivors GROUP BY ALL),
counted AS (
    SELECT tool, tau_f, count(*) AS examples, 0 AS calls FROM tau JOIN documents USING (tool) WHERE gain >= tau_f
    GROUP BY ALL
    UNION ALL
    SELECT tool, tau_f, 0, count(*) FROM tau JOIN survivors USING (tool) WHERE gain >= tau_f GROUP BY ALL
    UNION ALL SELECT tool, tau_f, examples, calls FROM ({count_sql(survivors_sql(each, by="tau_f"), by="tau_f")})
)
SELECT tool, tau_f, coalesce(sum(examples), 0)::BIGINT AS examples, coalesce(sum(calls), 0)::BIGINT AS calls
FROM tau LEFT JOIN counted USING (tool, tau_f) GROUP BY ALL ORDER BY ALL"""
