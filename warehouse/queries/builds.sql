-- query balances: Where the rows of each current stage, tool and unit went.
WITH counted AS (
    SELECT s.rank, c.stage, c.tool, b.unit, b.kind, b.reason, sum(b.rows)::BIGINT AS n,
           count(DISTINCT c.commit_id) AS shards
    FROM facts.balances AS b JOIN facts.commits AS c USING (commit_id) JOIN facts.current USING (commit_id)
    JOIN facts.stages AS s ON s.stage = c.stage GROUP BY ALL
)
SELECT stage, tool, unit, any_value(shards) FILTER (kind = 'in') AS shards,
       coalesce(any_value(n) FILTER (kind = 'in'), 0) AS rows_in,
       coalesce(any_value(n) FILTER (kind = 'kept'), 0) AS kept,
       map_from_entries(coalesce(list((reason, n) ORDER BY reason) FILTER (kind = 'dropped'), [])) AS dropped,
       map_from_entries(coalesce(list((reason, n) ORDER BY reason) FILTER (kind = 'failed'), [])) AS failed
FROM counted GROUP BY rank, stage, tool, unit ORDER BY rank, tool, unit

-- query coverage: Tools that had enough examples before some shards were assembled, and on how many they were annotated.
WITH assembled AS (
    SELECT c.commit_id, coalesce(from_json(c.config::JSON->'not_annotated', '["VARCHAR"]'), []) AS missing,
           sum(b.rows)::BIGINT AS documents
    FROM facts.commits AS c JOIN facts.current USING (commit_id) JOIN facts.balances AS b USING (commit_id)
    WHERE c.stage = 'assemble' AND b.unit = 'documents' AND b.kind = 'in' GROUP BY ALL
)
SELECT tool, count(*) FILTER (NOT list_contains(missing, tool)) AS shards, count(*) AS of_shards,
       coalesce(sum(documents) FILTER (NOT list_contains(missing, tool)), 0)::BIGINT AS documents,
       sum(documents)::BIGINT AS of_documents
FROM assembled CROSS JOIN (SELECT DISTINCT unnest(missing) AS tool FROM assembled) GROUP BY tool ORDER BY tool

-- query benchmarks: Of benchmarks that the corpus must not hold: items, those that documents hold, documents dropped.
SELECT counter[7:] AS benchmark, (i.counters->>counter)::BIGINT AS items,
       (i.counters->>('found:' || counter[7:]))::BIGINT AS found, coalesce(b.rows, 0)::BIGINT AS documents,
       CASE WHEN i.drops = 'calls' THEN (
           SELECT coalesce(sum(l.rows), 0)::BIGINT
           FROM facts.balances AS l JOIN facts.commits AS c USING (commit_id) JOIN facts.current USING (commit_id)
           WHERE c.stage = 'assemble' AND l.reason = 'benchmark:' || counter[7:]) END AS calls
FROM (SELECT commit_id, config::JSON->>'decontaminate' AS drops, counters::JSON AS counters,
             unnest(json_keys(counters::JSON)) AS counter
      FROM facts.commits JOIN facts.current USING (commit_id) WHERE stage = 'ingest') AS i
LEFT JOIN facts.balances AS b
    ON b.commit_id = i.commit_id AND b.kind = 'dropped' AND b.reason = 'benchmark:' || counter[7:]
WHERE starts_with(counter, 'items:') ORDER BY benchmark

-- query kept_calls: The calls in C* by tool.
SELECT call.tool, count(*) AS calls, count(DISTINCT call.input) AS inputs, count(DISTINCT call.response) AS responses
FROM (SELECT unnest(calls) AS call FROM examples) GROUP BY call.tool ORDER BY call.tool

-- query has_decoys: Whether the current calls were scored with decoys.
SELECT coalesce(bool_or(TRY_CAST(c.config::JSON->>'decoys' AS INTEGER) > 0), false) AS decoys
FROM facts.commits AS c JOIN facts.current USING (commit_id) WHERE c.stage = 'score'
