"""The SQL of the published snapshot's views: which commits are current, which calls are best, what thresholds yield.

Which calls a filter keeps is not written here: the index holds what `call_filter` says (see `outcomes`). What the index
takes in is: calls that no threshold can keep are left out, and calls at one position stand in order of precedence. A
test compares both with that module.

An example of a tool is a document with a kept call of that tool, alone or in a chain. The limit on examples per tool is
not applied here: it chooses among examples, not among calls.

Gains are in nats. Positions are character offsets (code points). This module opens no database.
"""

from __future__ import annotations

from warehouse.schema import EVALUATION_STAGES, WHAT_IF
from warehouse.snapshot.outcomes import THRESHOLDS

# A gain that could be measured. For DuckDB NaN is the largest number, and since a file's statistics leave NaN out, it
# concludes that there is none and does not evaluate `isnan(gain)`. It cannot draw this conclusion through TRY.
MEASURED = "NOT isnan(TRY(gain))"

# MT only: the model looked ahead.
LOOKED_AHEAD = "(tool = 'mt' AND seen_after AND NOT seen_before)"

# Which scored calls may be kept at all, whatever the threshold. Where L(e(c, eps)) was not computed, the gain is an
# upper bound that is below every threshold in use.
RULES = f"{MEASURED} AND loss_call IS NOT NULL AND NOT {LOOKED_AHEAD}"


# In which order calls at one position are kept, if their thresholds allow it: single calls, and chains beside them.
PRECEDENCE = "gain DESC, tool, input, response"
CHAIN_PRECEDENCE = f"len(behind) DESC, {PRECEDENCE}, behind"

# Runs `r`, the newest first: by their numbers, since clocks are set back and those of two machines differ. Runs of
# earlier program versions have no numbers, only times.
NEWEST = "r.number DESC, r.started DESC, r.run_id DESC"

# The index has hashes of documents, and the best call of each tool at a position.
BEST_CALLS = f"""
SELECT s.* FROM scored AS s SEMI JOIN (
    SELECT doc, "position", tool FROM facts.gains JOIN facts.slots USING (slot) WHERE best AND behind = []
) AS g ON g.doc = hash(s.doc_id) AND g."position" = s."position" AND g.tool = s.tool
WHERE {RULES} QUALIFY row_number() OVER (PARTITION BY s.doc_id, s."position" ORDER BY {PRECEDENCE}) = 1"""

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

YIELD_BY_THRESHOLD = f"""
SELECT tool, tau_f, coalesce(sum(examples), 0)::BIGINT AS examples, coalesce(sum(calls), 0)::BIGINT AS calls
FROM (SELECT DISTINCT tool FROM facts.commits JOIN facts.current USING (commit_id) WHERE stage = 'score')
CROSS JOIN (VALUES {", ".join(f"({value!r}::DOUBLE)" for value in THRESHOLDS)}) AS t(tau_f)
LEFT JOIN facts.yields USING (tool, tau_f) GROUP BY ALL ORDER BY ALL"""
