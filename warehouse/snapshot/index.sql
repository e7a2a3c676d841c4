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

-- query sources: The files of the changed shards' scores, each with the files of the samples that its single calls come from.
WITH files AS (
    SELECT c.stage, c.tool, c.shard, c.commit_id, f.path, f.rows
    FROM facts.commits AS c JOIN facts.current USING (commit_id) JOIN facts.files AS f USING (commit_id)
    WHERE (c.stage = 'sample' OR c.stage IN (SELECT unnest($scores))) AND f.table_name <> 'rejects'
      AND commit_id NOT IN (FROM facts.broken) AND c.shard IN (FROM changed)
)
SELECT s.shard, s.tool, s.commit_id, s.path, s.rows, s.stage <> 'score' AS chained,
       coalesce(list(DISTINCT d.path ORDER BY d.path) FILTER (d.path IS NOT NULL), []) AS samples
FROM files AS s LEFT JOIN files AS d ON d.stage = 'sample' AND d.tool = s.tool AND d.shard = s.shard
WHERE s.stage IN (SELECT unnest($scores)) GROUP BY s.shard, s.stage, s.tool, s.commit_id, s.path, s.rows
ORDER BY s.shard, s.stage, s.tool, s.commit_id, s.path

-- query document_tables: The tables of documents, which may be there.
CREATE TABLE IF NOT EXISTS facts.document_files (file INTEGER, path VARCHAR, digest VARCHAR, shard VARCHAR);
CREATE TABLE IF NOT EXISTS facts.document_locations (doc_id VARCHAR, file INTEGER)

-- query current_files: The current files of documents.
-- The shard is that of the current commits that read the file. What is found out about a part of the corpus reads it
-- too, and belongs to no run.
CREATE OR REPLACE TEMP TABLE current_files AS
WITH reading AS (
    SELECT i.digest, c.shard FROM facts.commit_inputs AS i
    JOIN facts.commits AS c USING (commit_id) JOIN facts.current USING (commit_id)
)
SELECT f.path, f.digest, min(r.shard) AS shard
FROM facts.files AS f JOIN facts.current USING (commit_id) LEFT JOIN reading AS r ON r.digest = f.digest
WHERE f.table_name = 'documents' AND f.rows > 0 AND f.commit_id NOT IN (FROM facts.broken)
GROUP BY ALL

-- query remove_gone: Files that are current no longer, and their documents, are removed; shards are those of now.
CREATE OR REPLACE TEMP TABLE gone_files AS
SELECT file FROM facts.document_files ANTI JOIN current_files USING (path, digest);
DELETE FROM facts.document_locations WHERE file IN (FROM gone_files);
DELETE FROM facts.document_files WHERE file IN (FROM gone_files);
UPDATE facts.document_files SET shard = c.shard FROM current_files AS c
WHERE document_files.path = c.path AND document_files.digest = c.digest
AND document_files.shard IS DISTINCT FROM c.shard

-- query add_files: New files are numbered.
INSERT INTO facts.document_files
SELECT (SELECT coalesce(max(file), -1) FROM facts.document_files) + row_number() OVER (ORDER BY path),
       path, digest, shard
FROM current_files ANTI JOIN facts.document_files USING (path, digest) RETURNING file, path

-- query sort: All documents are sorted by id.
CREATE OR REPLACE TABLE facts.document_locations AS FROM facts.document_locations ORDER BY doc_id, file

-- query gains: The rows of `gains` of some calls: of each slot the best at a position.
WITH calls AS (
    FROM ({calls})
    QUALIFY row_number() OVER (PARTITION BY slot, doc_id, "position" ORDER BY {order}) = 1
)
SELECT slot, hash(doc_id) AS doc, "position", gain, log_p, "rank",
       CASE WHEN count(window_end) OVER (PARTITION BY slot, doc_id, input, preceding_calls) > 1
            THEN CASE WHEN preceding_calls = [] THEN hash(input) ELSE hash(input, preceding_calls) END END AS alike,
       window_end
FROM calls LEFT JOIN ({ranks}) USING (doc_id, opener, "position") ORDER BY doc, "position", {order}

-- query no_ranks: What stands for the samples of a shard that has none.
SELECT '' AS doc_id, '' AS opener, 0 AS "position", 0 AS "rank" WHERE false

-- query no_openers: What stands for the single calls that chains begin with, where there are none.
SELECT '' AS doc_id, '' AS tool, 0 AS "position", 0.0 AS log_p WHERE false
