-- query configs: The configs by which the current calls were sampled and assembled.
SELECT c.stage, c.tool, any_value(c.config) AS config FROM facts.commits AS c
JOIN facts.current USING (commit_id) WHERE c.stage IN ('sample', 'assemble')
GROUP BY ALL ORDER BY ALL

-- query scoring: By tool, the gain below which its calls are not scored to the end.
SELECT c.tool, max(TRY_CAST(c.config::JSON->>'floor' AS DOUBLE)) AS floor
FROM facts.commits AS c JOIN facts.current USING (commit_id) WHERE c.stage = 'score' GROUP BY c.tool

-- query left_out: How many calls ratings or other texts kept out of C*.
SELECT b.reason, sum(b.rows)::BIGINT AS calls FROM facts.balances AS b JOIN facts.commits AS c
USING (commit_id) JOIN facts.current USING (commit_id)
WHERE c.stage = 'assemble' AND (b.reason IN (SELECT unnest($reasons)) OR starts_with(b.reason, 'benchmark:'))
GROUP BY b.reason

-- query newest_run: The newest run that used the current scores.
SELECT run_id FROM facts.runs AS r WHERE flow <> $what_if AND run_id IN (
    SELECT rc.run_id FROM facts.run_commits AS rc JOIN facts.current USING (commit_id)
    JOIN facts.commits AS c USING (commit_id) WHERE c.stage = 'score')
ORDER BY state = 'completed' DESC, $newest LIMIT 1
