-- query sides: The evaluations of completed runs, the newest last.
SELECT evaluation, task, coalesce(source, '') AS source, arm, k, model, base, coalesce(model_digest, '') AS digest
FROM evaluations WHERE completed AND evaluation IN (
    SELECT config::JSON->>'evaluation' FROM facts.commits JOIN facts.current USING (commit_id) WHERE stage = 'evaluate')
ORDER BY run_number, evaluated, evaluation

-- query files: The files of predictions of some evaluations.
SELECT DISTINCT f.path FROM facts.commits AS c JOIN facts.current USING (commit_id) JOIN facts.files AS f
    USING (commit_id)
WHERE c.stage = 'evaluate' AND f.table_name = 'predictions' AND f.rows > 0 AND commit_id NOT IN (FROM facts.broken)
    AND c.config::JSON->>'evaluation' IN (SELECT unnest($evaluations)) ORDER BY ALL

-- query pairs: The items of two sides, with what the second changes.
SELECT task, source, item_id, tool, CASE WHEN f IS NULL OR s IS NULL THEN 'unpaired' WHEN f AND s THEN 'right_both'
    WHEN s THEN 'turned_right' WHEN f THEN 'turned_wrong' ELSE 'wrong_both' END AS change
FROM (
    SELECT task, source, item_id, bool_or(correct) FILTER (side = 1) AS f, bool_or(correct) FILTER (side = 2) AS s,
           coalesce(any_value(tool) FILTER (side = 2), any_value(tool) FILTER (side = 1), '') AS tool
    FROM (
        SELECT a.task, source, side, item_id, correct, CASE WHEN called THEN tool END AS tool
        FROM {} AS p JOIN (
            SELECT unnest($evaluations) AS evaluation, unnest($tasks) AS task, unnest($sources) AS source,
                   unnest($sides) AS side
        ) AS a USING (evaluation)
    ) GROUP BY ALL
)

-- query counts: How many items have which change.
SELECT task, tool, change, count(*) AS items FROM ({pairs}) GROUP BY ALL ORDER BY ALL

-- query page: A page of the items.
SELECT task, source, item_id, tool, change FROM ({pairs})
WHERE ($task = '' OR task = $task) AND ($tool IS NULL OR tool = $tool) AND change IN (SELECT unnest($changes))
    AND ($item IS NULL OR (task, source, item_id) > ($after_task, $after_source, $item))
ORDER BY task, source, item_id LIMIT $limit

-- query texts: What both sides made of some items.
WITH evaluated AS (
    SELECT unnest($evaluations) AS evaluation, unnest($tasks) AS task, unnest($sources) AS source,
           unnest($sides) AS side
), picked AS (
    SELECT unnest($picked_tasks) AS task, unnest($picked_sources) AS source, unnest($items) AS item_id
), predicted AS (
    SELECT a.task, a.source, side, p.item_id, prompt, answers, struct_pack(continuation, clean, correct,
           tool := CASE WHEN called THEN p.tool END, failure, problem) AS result
    FROM {} AS p JOIN evaluated AS a USING (evaluation)
    JOIN picked AS i ON i.task = a.task AND i.source = a.source AND i.item_id = p.item_id
    WHERE p.item_id IN (SELECT unnest($items))
)
SELECT task, source, item_id, arg_min(prompt, side) AS prompt, arg_min(answers, side) AS answers,
       any_value(result) FILTER (side = 1) AS first, any_value(result) FILTER (side = 2) AS second
FROM predicted GROUP BY ALL
