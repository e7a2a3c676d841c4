-- query preceding_tools: The tools in front of the last call of a slot's chains.
SELECT slot, preceding_tools FROM facts.slots WHERE slot IN (SELECT unnest($slots))

-- query files_of_slots: The files of scores that slots come from.
SELECT DISTINCT f.path FROM facts.slots AS s JOIN facts.files AS f USING (commit_id)
WHERE s.slot IN (SELECT unnest($slots)) AND f.table_name = $table ORDER BY ALL

-- query files_of_documents: The files of scores of documents' shards.
SELECT DISTINCT f.path
FROM facts.document_locations AS l JOIN facts.document_files AS d USING (file)
JOIN facts.slots AS s USING (shard) JOIN facts.files AS f USING (commit_id)
WHERE l.doc_id IN (SELECT unnest($ids)) AND f.table_name = $table ORDER BY ALL

-- query files_of_texts: The files that contain documents.
SELECT DISTINCT d.path FROM facts.document_locations AS l JOIN facts.document_files AS d USING (file)
WHERE l.doc_id IN (SELECT unnest($ids))

-- query tool_names: The names in calls that each build gave its tools.
SELECT parameters::JSON->'tool_names' AS names FROM facts.runs ORDER BY started, run_id

-- query best: The best calls of the index, which has hashes of documents: these decide among equal gains.
SELECT slot, tool, doc, "position", gain FROM facts.gains JOIN facts.slots USING (slot)
WHERE best ORDER BY gain DESC, tool, doc, "position" LIMIT $n

-- query kept: The best calls of C*.
SELECT doc_id, call.tool AS tool, call.position AS "position", call.input AS input, call.response AS response,
       call.gain AS gain
FROM (SELECT doc_id, unnest(calls) AS call FROM examples) ORDER BY gain DESC, doc_id, "position", tool LIMIT $n

-- query nearest: The call of a tool whose gain is nearest to a figure.
SELECT c.doc_id, c.tool, c."position", c.input, c.response, c.gain,
       substring(d.text, greatest(c."position" - $width, 0) + 1, least($width, c."position")) AS before,
       substring(d.text, c."position" + 1, $width) AS after
FROM scored AS c JOIN documents AS d USING (doc_id) WHERE c.tool = $tool AND $measured
ORDER BY abs(c.gain - $gain), c.doc_id, c."position", c.input LIMIT 1

-- query gains: Calls by gain. Bins include their lower bound; the first and the last are open.
WITH binned AS (
    SELECT tool, least(greatest(floor(gain / $width), $low / $width - 1), $high / $width)::BIGINT AS bin,
           sum(calls)::BIGINT AS calls
    FROM ({}) GROUP BY ALL
), bins AS (SELECT unnest(range(($low / $width)::BIGINT - 1, ($high / $width)::BIGINT + 1)) AS bin)
SELECT tool, CASE WHEN bin * $width >= $low THEN bin * $width END AS low,
       CASE WHEN bin * $width < $high THEN (bin + 1) * $width END AS high, coalesce(calls, 0) AS calls
FROM (SELECT DISTINCT tool FROM binned) CROSS JOIN bins LEFT JOIN binned USING (tool, bin) ORDER BY tool, bin

-- query picked: The scored rows of calls of the index.
WITH picked AS (
    SELECT doc, "position", slot, tool, preceding_tools
    FROM (SELECT unnest($docs) AS doc, unnest($positions) AS "position", unnest($slots) AS slot)
    JOIN facts.slots USING (slot)
)
SELECT doc_id, tool, "position", input, response, gain{front}, doc, slot
FROM (
    SELECT s.*, p.doc, p.slot FROM (FROM {relation} WHERE $rules) AS s
    JOIN picked AS p
        ON p.doc = hash(s.doc_id) AND p."position" = s."position" AND p.tool = s.tool AND p.preceding_tools = {tools}
)
QUALIFY row_number() OVER (PARTITION BY slot, doc_id, "position" ORDER BY {order}) = 1
