-- query tables: The tables, which may be there.
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
