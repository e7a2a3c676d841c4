-- query accuracies: Those of completed runs, of a task or of all.
FROM accuracy WHERE completed AND ($task IS NULL OR task = $task) ORDER BY run_number, evaluated, evaluation

-- query limits: Limit and seed of the items of each evaluation.
SELECT c.config::JSON->>'evaluation' AS evaluation, (r.parameters::JSON->>'limit')::BIGINT AS "limit",
       (r.parameters::JSON->>'seed')::BIGINT AS seed
FROM facts.run_commits AS rc JOIN facts.runs AS r USING (run_id) JOIN facts.commits AS c USING (commit_id)
WHERE r.state = 'completed' AND c.stage IN ('evaluate', 'perplexity')
QUALIFY row_number() OVER (PARTITION BY evaluation ORDER BY $newest) = 1
