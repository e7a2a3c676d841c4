-- query version: Whether there is a version.
SELECT 1 FROM facts.datasets WHERE name = $dataset AND version = $version LIMIT 1

-- query calls: The calls of a version.
SELECT doc_id, c."tool", c."position", c."input", c."response", c."gain"
FROM (SELECT doc_id, unnest(calls) AS c FROM {})

-- query no_calls: Those of a version without files.
SELECT '' AS doc_id, '' AS tool, 0 AS "position", '' AS input, '' AS response, 0.0 AS gain WHERE false

-- query counts: How the calls of two versions differ, by tool.
SELECT tool, count(*) FILTER (f AND s) AS both, count(*) FILTER (f AND NOT s) AS only_first,
       count(*) FILTER (s AND NOT f) AS only_second,
       count(DISTINCT doc_id) FILTER (f) AS first_examples, count(DISTINCT doc_id) FILTER (s) AS second_examples
FROM (SELECT doc_id, "position", tool, input, response, bool_or(side = 1) AS f, bool_or(side = 2) AS s
      FROM calls GROUP BY ALL)
GROUP BY tool ORDER BY tool

-- query only: A page of the calls of one side alone.
SELECT doc_id, "position", tool, input, response, any_value(gain) AS gain FROM calls
GROUP BY doc_id, "position", tool, input, response HAVING bool_and(side = $side)
AND ($doc_id IS NULL OR (doc_id, "position", tool, input, response) > ($doc_id, $position, $tool, $input, $response))
ORDER BY doc_id, "position", tool, input, response LIMIT $limit
