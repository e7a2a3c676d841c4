-- query balances: Where the rows of each current stage, tool and unit went.
SELECT c.stage, c.tool, b.unit, b.kind, b.reason, sum(b.rows)::BIGINT, count(DISTINCT c.commit_id)
FROM facts.balances AS b JOIN facts.commits AS c USING (commit_id) JOIN facts.current USING (commit_id)
JOIN facts.stages AS s ON s.stage = c.stage
GROUP BY s.rank, c.stage, c.tool, b.unit, b.kind, b.reason ORDER BY s.rank, c.tool, b.unit, b.kind, b.reason

-- query coverage: For every assembled shard its documents, and the tools that had enough examples before it.
SELECT c.config::JSON->'not_annotated' AS tools, sum(b.rows)::BIGINT AS documents
FROM facts.commits AS c JOIN facts.current USING (commit_id) JOIN facts.balances AS b USING (commit_id)
WHERE c.stage = 'assemble' AND b.unit = 'documents' AND b.kind = 'in' GROUP BY c.commit_id, c.config

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
