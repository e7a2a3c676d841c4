-- query changed: The current commits with scores; the rows of shards whose commits are not those of the index are removed.
CREATE OR REPLACE TEMP TABLE indexed AS
SELECT commit_id, c.shard, {repeats}::VARCHAR[] AS repeats
FROM facts.commits AS c JOIN facts.current USING (commit_id)
SEMI JOIN (SELECT commit_id FROM facts.files WHERE table_name <> 'rejects') USING (commit_id)
WHERE c.stage IN {scores} AND commit_id NOT IN (FROM facts.broken);
CREATE OR REPLACE TEMP TABLE changed AS SELECT DISTINCT shard FROM (
    (FROM indexed EXCEPT SELECT commit_id, shard, repeats FROM facts.slots)
    UNION ALL (SELECT commit_id, shard, repeats FROM facts.slots EXCEPT FROM indexed)
    UNION ALL (FROM indexed SEMI JOIN new_commits USING (commit_id)));
CREATE OR REPLACE TEMP TABLE gone_slots AS SELECT slot FROM facts.slots SEMI JOIN changed USING (shard);
DELETE FROM facts.gains WHERE slot IN (FROM gone_slots);
DELETE FROM facts.gain_bins WHERE slot IN (FROM gone_slots);
DELETE FROM facts.yields WHERE shard IN (FROM changed);
DELETE FROM facts.slots WHERE slot IN (FROM gone_slots)

-- query sources: The files of the changed shards' scores, each with the files of the draws that its single calls come from.
WITH files AS (
    SELECT c.stage, c.tool, c.shard, c.commit_id, f.path, f.rows
    FROM facts.commits AS c JOIN facts.current USING (commit_id) JOIN facts.files AS f USING (commit_id)
    WHERE (c.stage = 'sample' OR c.stage IN (SELECT unnest($scores))) AND f.table_name <> 'rejects'
      AND commit_id NOT IN (FROM facts.broken) AND c.shard IN (FROM changed)
)
SELECT s.shard, s.tool, s.commit_id, s.path, s.rows, s.stage <> 'score' AS chained,
       coalesce(list(DISTINCT d.path ORDER BY d.path) FILTER (d.path IS NOT NULL), []) AS draws
FROM files AS s LEFT JOIN files AS d ON d.stage = 'sample' AND d.tool = s.tool AND d.shard = s.shard
WHERE s.stage IN (SELECT unnest($scores)) GROUP BY s.shard, s.stage, s.tool, s.commit_id, s.path, s.rows
ORDER BY s.shard, s.stage, s.tool, s.commit_id, s.path
