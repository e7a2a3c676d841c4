-- query current: The current files of documents, each by its name with the files of its shard.
WITH part AS (SELECT path, shard FROM facts.document_files WHERE path >= $after ORDER BY path LIMIT $limit)
SELECT path AS name, 'documents' AS table_name, path FROM part
UNION ALL
SELECT part.path, f.table_name, f.path FROM part JOIN facts.commits AS c USING (shard)
JOIN facts.current USING (commit_id) JOIN facts.files AS f USING (commit_id)
WHERE commit_id NOT IN (FROM facts.broken)
  AND f.table_name IN ('prefiltered', 'sampled', 'executed', 'scored', 'examples') ORDER BY ALL

-- query of_version: The files of a version, each by its name with the file of documents from which it was made.
WITH part AS (
    SELECT DISTINCT path FROM facts.version_files
    WHERE dataset = $dataset AND version = $version AND path >= $after ORDER BY path LIMIT $limit
)
SELECT path AS name, 'examples' AS table_name, path FROM part
UNION ALL
SELECT part.path, 'documents', any_value(d.path) FROM part JOIN facts.files AS f USING (path)
JOIN facts.commit_inputs AS i USING (commit_id)
JOIN facts.files AS d ON d.digest = i.digest AND d.table_name = 'documents' GROUP BY part.path ORDER BY ALL

-- query no_examples: What stands for the examples of a shard that has none.
SELECT NULL::VARCHAR AS doc_id, NULL::VARCHAR AS text, NULL::STRUCT(tool VARCHAR, gain DOUBLE)[] AS calls WHERE false

-- query dropped_by_prefilter: The documents that were dropped for a reason.
SELECT doc_id FROM prefiltered WHERE NOT kept AND reason = $reason AND {tool}

-- query dropped_by_sample: The documents of which a draw was.
SELECT doc_id FROM sampled WHERE outcome = $reason AND {tool}

-- query dropped_by_execute: The documents of which a call was.
SELECT sampled.doc_id FROM sampled JOIN executed USING (tool, input)
LEFT JOIN prefiltered ON prefiltered.doc_id = sampled.doc_id AND prefiltered.tool = sampled.tool
WHERE sampled.outcome = 'ok' AND executed.failure = $reason AND {tool}
  AND (prefiltered.context IS NULL OR prefiltered.context = executed.context)
