-- query versions: The ways in which versions of C* were made, the newest first.
SELECT name, version, made, counts, thresholds, run_id, corpus, created FROM datasets
ORDER BY number DESC, created DESC

-- query runs: The newest runs.
SELECT run_id, flow, started, finished, state, corpus, model FROM runs
ORDER BY number DESC, started DESC LIMIT 50

-- query funnel: How many documents, positions and calls each stage of a tool has left.
WITH chosen AS (SELECT tool, count(*) FILTER (kept) AS documents FROM prefiltered GROUP BY tool),
drawn AS (
    SELECT tool, count(*) AS positions, sum(calls)::BIGINT AS sampled
    FROM (SELECT tool, doc_id, "position", count(*) FILTER (outcome = 'ok') AS calls FROM sampled GROUP BY ALL)
    GROUP BY tool
), scored AS (
    SELECT tool, sum(CASE kind WHEN 'in' THEN b.rows WHEN 'failed' THEN -b.rows END)::BIGINT AS executed,
           sum(b.rows) FILTER (kind = 'kept')::BIGINT AS scored
    FROM facts.balances AS b JOIN facts.commits USING (commit_id) JOIN facts.current USING (commit_id)
    WHERE stage = 'score' GROUP BY tool
), kept AS (SELECT tool, count(*) AS kept FROM (SELECT unnest(calls).tool AS tool FROM examples) GROUP BY tool)
SELECT tool, documents, coalesce(positions, 0) AS positions, coalesce(sampled, 0) AS sampled,
       coalesce(executed, 0) AS executed, coalesce(scored, 0) AS scored, coalesce(kept, 0) AS kept
FROM chosen LEFT JOIN drawn USING (tool) LEFT JOIN scored USING (tool) LEFT JOIN kept USING (tool) ORDER BY tool

-- query random_document: A document of C*, another one each time.
SELECT doc_id FROM examples USING SAMPLE reservoir(1 ROWS)

-- query trained_on: The version that each model was finetuned on.
SELECT checkpoint, dataset || '@' || version AS label FROM trainings ORDER BY finished

-- query drops: What stages dropped, the commonest reason first.
SELECT stage, tool, unit, reason, kind, rows FROM drops ORDER BY rows DESC, stage, tool, reason

-- query tables: What a user can query, with its comment.
SELECT view_name AS name, comment FROM duckdb_views() WHERE NOT internal AND schema_name = 'main'
UNION ALL SELECT table_name, comment FROM duckdb_tables() WHERE schema_name = 'main' ORDER BY name
