-- query ids_with_prefix: The first document ids that begin with a text.
SELECT doc_id FROM facts.document_locations WHERE doc_id >= $start AND doc_id < $end
UNION SELECT doc_id FROM dropped_documents WHERE doc_id >= $start AND doc_id < $end ORDER BY doc_id LIMIT 2

-- query nearest_ids: The document ids that are most similar to one.
SELECT doc_id FROM facts.document_locations ORDER BY jaro_winkler_similarity(doc_id, $id) DESC, doc_id LIMIT 3

-- query file_of_document: The file that contains a document.
SELECT f.path, f.digest, f.shard FROM facts.document_locations JOIN facts.document_files AS f USING (file)
WHERE doc_id = $doc_id LIMIT 1

-- query files: The files of a shard.
SELECT f.table_name, f.path, c.config FROM facts.commits AS c JOIN facts.current USING (commit_id)
JOIN facts.files AS f USING (commit_id)
WHERE c.shard = $shard AND f.table_name NOT IN ('documents', 'rejects', 'call_outcomes')
  AND commit_id NOT IN (FROM facts.broken)
ORDER BY f.table_name, f.path

-- query in_datasets: The files of every version that were made from a document's file; of versions without one, all.
WITH dataset_files AS (
    SELECT DISTINCT df.name, df.version, df.path, EXISTS (
        FROM facts.files AS f JOIN facts.commit_inputs AS i USING (commit_id)
        WHERE f.path = df.path AND f.digest = df.digest AND i.digest = $digest) AS made
    FROM facts.dataset_files AS df WHERE df.rows > 0
)
SELECT name, version, path FROM dataset_files
WHERE made OR (name, version) NOT IN (SELECT (name, version) FROM dataset_files WHERE made) ORDER BY ALL

-- query versions: All versions, oldest first.
SELECT name, version FROM facts.datasets GROUP BY ALL ORDER BY min(number), min(created), name, version

-- query dropped: Why a document was dropped that no stage after `ingest` read.
FROM dropped_documents WHERE doc_id = $doc_id LIMIT 1

-- query like: The documents that were dropped because they are like this one.
FROM dropped_documents WHERE like_doc_id = $doc_id ORDER BY likeness DESC, doc_id

-- query documents: From here on relations have the names of the tables and the rows of one shard.
SELECT * FROM documents WHERE doc_id = $doc_id

-- query prefiltered: Decisions on a document.
SELECT * FROM prefiltered WHERE doc_id = $doc_id ORDER BY tool

-- query sampled: Draws.
SELECT * FROM sampled WHERE doc_id = $doc_id ORDER BY tool, "rank", "position", raw

-- query executed: Responses.
SELECT DISTINCT e.* FROM executed AS e
JOIN (SELECT DISTINCT tool, input FROM sampled WHERE doc_id = $doc_id AND outcome = 'ok') AS s USING (tool, input)
LEFT JOIN prefiltered AS p ON p.doc_id = $doc_id AND p.tool = e.tool
WHERE p.context IS NULL OR p.context = e.context ORDER BY e.tool, e.input, e.context

-- query scored: Losses.
SELECT * FROM scored WHERE doc_id = $doc_id ORDER BY tool, "position", gain DESC, input, response

-- query examples: Its text in C*.
SELECT * FROM examples WHERE doc_id = $doc_id
