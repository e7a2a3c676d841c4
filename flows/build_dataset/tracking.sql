-- query current_files: How many files of a version are current.
SELECT count(DISTINCT df.path) AS files FROM facts.dataset_files AS df
JOIN facts.files AS f USING (path, digest)
JOIN facts.current USING (commit_id) WHERE df.name = $name AND df.version = $version AND df.made = $made

-- query costs: What each stage cost.
SELECT stage, sum(seconds) AS seconds, sum((counters->>'lm_tokens')::DOUBLE) AS lm_tokens
FROM shards WHERE "current" AND stage <> 'assemble' GROUP BY stage
