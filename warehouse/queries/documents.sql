-- query current: The current files of documents, with their shards.
SELECT path AS documents, shard, path AS name, NULL AS examples FROM facts.document_files
WHERE path >= $after ORDER BY path LIMIT $limit

-- query of_version: Those from which a version's files were made.
SELECT any_value(d.path) AS documents, NULL AS shard, v.path AS name, v.path AS examples FROM facts.version_files AS v
LEFT JOIN facts.files AS f ON f.path = v.path LEFT JOIN facts.commit_inputs AS i USING (commit_id)
LEFT JOIN facts.files AS d ON d.digest = i.digest AND d.table_name = 'documents'
WHERE v.dataset = $dataset AND v.version = $version AND v.path >= $after GROUP BY v.path ORDER BY v.path LIMIT $limit

-- query files: The files of some shards.
SELECT c.shard, f.table_name, f.path FROM facts.commits AS c JOIN facts.current USING (commit_id)
JOIN facts.files AS f USING (commit_id)
WHERE c.shard IN (SELECT unnest($shards)) AND commit_id NOT IN (FROM facts.broken)
  AND f.table_name IN ('prefiltered', 'sampled', 'executed', 'scored', 'examples') ORDER BY ALL

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
