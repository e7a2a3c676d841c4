"""The SQL of views for analysts: runs and versions with their times, kept calls, costs, prompts, trainings.

The facts contain times as ISO UTC text; every view shows them as TIMESTAMP, in UTC. Which commits are current and which
calls survive is in `views`. This module opens no database.
"""

from __future__ import annotations

from warehouse.schema import EVALUATION_STAGES, WHAT_IF
from warehouse.snapshot.views import NEWEST

# The build whose commits are current, and the version of C* that it made, or that an earlier run had made.
CURRENT_BUILD = f"""
SELECT r.run_id, r.flow, r.started, r.state, r.corpus, r.model,
       coalesce(r.parameters::JSON ->> 'score_from', 'position') AS score_from,
       coalesce(d.name, '') AS name, coalesce(d.version, '') AS version, d.created
FROM facts.runs AS r LEFT JOIN facts.datasets AS d
    ON r.run_id = d.run_id OR r.dataset = d.name || '/' || d.version || '-' || d.made
WHERE r.flow <> '{WHAT_IF}' AND r.run_id IN (
    SELECT rc.run_id FROM facts.run_commits AS rc JOIN facts.current USING (commit_id)
    JOIN facts.commits AS c USING (commit_id) WHERE c.stage = 'ingest')
ORDER BY r.state = 'completed' DESC, {NEWEST}, d.created DESC LIMIT 1"""

RUNS = """
SELECT * REPLACE (TRY_CAST(started AS TIMESTAMP) AS started, TRY_CAST(finished AS TIMESTAMP) AS finished,
                  parameters::JSON AS parameters)
FROM facts.runs ORDER BY number, started, run_id"""

DATASETS = """
SELECT * REPLACE (counts::JSON AS counts, thresholds::JSON AS thresholds, TRY_CAST(created AS TIMESTAMP) AS created)
FROM facts.datasets"""

# A call is scored once per document, position and input; its losses are NULL if the scores are damaged. The calls of a
# chain share their position: the losses of the chain stand beside its last call.
KEPT_CALLS = """
WITH kept AS (SELECT doc_id, unnest(calls) AS call, calls, dataset, version FROM examples), numbered AS (
    SELECT *, len([c FOR c IN calls IF c.position = call.position AND c.start <= call.start]) AS link,
           len([c FOR c IN calls IF c.position = call.position]) AS links
    FROM kept
)
SELECT k.doc_id, k.call.tool AS tool, k.call.position AS "position", k.call.input AS input,
       k.call.response AS response, k.call.gain AS gain,
       coalesce(s.loss_plain, z.loss_plain) AS loss_plain, coalesce(s.loss_call, z.loss_call) AS loss_call,
       coalesce(s.loss_response, z.loss_response) AS loss_response, k.dataset, k.version, k.link, k.links
FROM numbered AS k
LEFT JOIN scored AS s ON s.doc_id = k.doc_id AND s.tool = k.call.tool AND s."position" = k.call.position
    AND s.input = k.call.input AND k.links = 1
LEFT JOIN chain_scored AS z ON z.doc_id = k.doc_id AND z.tool = k.call.tool AND z."position" = k.call.position
    AND z.input = k.call.input AND z.response = k.call.response AND k.link = k.links AND k.links > 1
    AND [(b.tool, b.input, b.response) FOR b IN z.behind]
        = [(c.tool, c.input, c.response) FOR c IN k.calls IF c.position = k.call.position AND c.start < k.call.start]"""

# The cost of a stage that runs once for all tools is divided by the kept calls of all of them.
COSTS = f"""
WITH kept AS (
    SELECT tool, count(*) AS n FROM (SELECT unnest(calls).tool AS tool FROM examples) GROUP BY tool
    UNION ALL SELECT '', coalesce(sum(len(calls)), 0) FROM examples
), spent AS (
    SELECT c.stage, c.tool, count(*) AS shards, sum(c.seconds) AS seconds,
           coalesce(sum(TRY_CAST(c.counters::JSON->>'lm_tokens' AS DOUBLE)), 0)::BIGINT AS lm_tokens
    FROM facts.commits AS c JOIN facts.current USING (commit_id)
    WHERE c.stage NOT IN ({", ".join(f"'{stage}'" for stage in EVALUATION_STAGES)}) GROUP BY c.stage, c.tool
)
SELECT s.stage, s.tool, s.shards, s.seconds, s.lm_tokens, coalesce(k.n, 0)::BIGINT AS kept_calls,
       s.seconds / nullif(k.n, 0) AS seconds_per_kept_call, s.lm_tokens / nullif(k.n, 0) AS lm_tokens_per_kept_call
FROM spent AS s LEFT JOIN kept AS k USING (tool) LEFT JOIN facts.stages AS o USING (stage) ORDER BY o.rank, s.tool"""

PROMPTS = """
SELECT c.tool, p.value AS digest, bool_or(commit_id IN (SELECT commit_id FROM facts.current)) AS "current",
       list(DISTINCT rc.run_id ORDER BY rc.run_id) FILTER (rc.run_id IS NOT NULL) AS runs, any_value(t.text) AS text
FROM facts.commit_parts AS p JOIN facts.commits AS c USING (commit_id)
LEFT JOIN facts.run_commits AS rc USING (commit_id)
LEFT JOIN facts.prompts AS t ON t.tool = c.tool AND t.digest = p.value
WHERE c.stage = 'sample' AND (p.part = 'prompt' OR p.part LIKE 'prompt %')
GROUP BY c.tool, p.value ORDER BY c.tool, min(c.created), p.value"""

TRAININGS = """
SELECT * REPLACE (recipe::JSON AS recipe, TRY_CAST(finished AS TIMESTAMP) AS finished)
FROM facts.trainings ORDER BY finished, job"""
