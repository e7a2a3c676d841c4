-- The views and macros of the published snapshot, and two queries that it is made with; `views.py` reads this file.
--
-- A statement begins with `-- query|view|macro name: comment`, and its comment is stored in the snapshot. A name after a
-- dollar sign is a condition or a list of `views.py`. The facts contain times as ISO UTC text; every view shows them as TIMESTAMP, in UTC.
--
-- An example of a tool is a document with a kept call of that tool, alone or in a chain. The limit on examples per tool
-- is not applied here: it chooses among examples, not among calls. Gains are in nats. Positions are character offsets
-- (code points).

-- query current: The current commits.
-- Of builds: the commits of one run, the newest completed one that has any, else the newest that has any (which is
-- running, or has failed). The results of `what-if` replace nothing. Of evaluations: for each (task, text, arm, k, model,
-- tools), the commits of one run, chosen in the same way. Without runs: the newest commit of every shard.
WITH known AS (
    SELECT r.run_id, r.started, r.number, r.state = 'completed' AS completed, c.commit_id,
           CASE WHEN c.stage IN ($evaluation_stages)
                THEN coalesce(c.config::JSON->>'evaluation', c.shard) ELSE '' END AS of
    FROM facts.run_commits AS rc JOIN facts.runs AS r USING (run_id) JOIN facts.commits AS c USING (commit_id)
    WHERE r.flow <> $what_if
), loose AS (
    SELECT c.commit_id, c.stage, c.tool, c.shard, c.created, coalesce(r.number, 0) AS number,
           CASE WHEN stage IN ($evaluation_stages) THEN coalesce(config::JSON->>'evaluation', shard) ELSE '' END AS of
    FROM facts.commits AS c LEFT JOIN facts.runs AS r USING (run_id)
)
SELECT DISTINCT commit_id FROM (
    SELECT * FROM known AS r QUALIFY dense_rank() OVER (PARTITION BY of ORDER BY completed DESC, $newest) = 1)
UNION ALL
SELECT commit_id FROM loose WHERE of NOT IN (SELECT of FROM known)
QUALIFY row_number() OVER (PARTITION BY stage, tool, shard ORDER BY number DESC, created DESC, commit_id DESC) = 1

-- query current_build: The build whose commits are current, and its version of C*, which an earlier run may have made.
SELECT r.run_id, r.flow, r.started, r.state, r.corpus, r.model,
       coalesce(d.name, '') AS name, coalesce(d.version, '') AS version, d.created
FROM facts.runs AS r LEFT JOIN facts.datasets AS d
    ON r.run_id = d.run_id OR r.dataset = d.name || '/' || d.version || '-' || d.made
WHERE r.flow <> $what_if AND r.run_id IN (
    SELECT rc.run_id FROM facts.run_commits AS rc JOIN facts.current USING (commit_id)
    JOIN facts.commits AS c USING (commit_id) WHERE c.stage = 'ingest')
ORDER BY r.state = 'completed' DESC, $newest, d.created DESC LIMIT 1

-- view shards: Every commit: what was done, and whether it is current (of the newest build or evaluation) and intact.
SELECT c.stage, c.tool, c.shard, c.commit_id IN (SELECT commit_id FROM facts.current) AS "current",
       c.commit_id NOT IN (SELECT commit_id FROM facts.broken) AS intact, c.rows, c.bytes, c.seconds,
       TRY_CAST(c.created AS TIMESTAMP) AS created, c.run_id, c.host, c.stage_version, c.fingerprint, c.content_digest,
       c.config::JSON AS config, c.counters::JSON AS counters, c.versions::JSON AS versions, c.commit_id
FROM facts.commits AS c

-- view drops: Which rows of the current shards were not kept: dropped or failed, by reason.
SELECT c.stage, c.tool, b.unit, b.reason, b.kind, sum(b.rows)::BIGINT AS rows
FROM facts.balances AS b JOIN facts.commits AS c USING (commit_id) JOIN facts.current USING (commit_id)
WHERE b.kind IN ('dropped', 'failed')
GROUP BY ALL

-- view dropped_documents: Documents that were read and dropped for what other texts say, and why.
SELECT doc_id, reason, detail, source, line, raw AS beginning, like_doc_id, likeness, benchmark, item_id
FROM rejects WHERE doc_id IS NOT NULL

-- view runs: One row per build, evaluation or what-if, newest last; times in UTC.
SELECT * REPLACE (TRY_CAST(started AS TIMESTAMP) AS started, TRY_CAST(finished AS TIMESTAMP) AS finished,
                  parameters::JSON AS parameters)
FROM facts.runs ORDER BY number, started, run_id

-- view datasets: Versions of C*; one row for each way in which a version was made.
SELECT * REPLACE (counts::JSON AS counts, thresholds::JSON AS thresholds, TRY_CAST(created AS TIMESTAMP) AS created)
FROM facts.datasets

-- view lineage: The commits and files on which each dataset version depends, for each way in which it was made.
WITH RECURSIVE used(name, version, made, run_id, commit_id) AS (
    SELECT d.name, d.version, d.made, d.run_id, f.commit_id
    FROM facts.datasets AS d JOIN facts.dataset_files AS df USING (name, version, made)
    JOIN facts.files AS f ON f.path = df.path AND f.digest = df.digest
    UNION
    SELECT u.name, u.version, u.made, u.run_id, source.commit_id
    FROM used AS u JOIN facts.commits AS target ON target.commit_id = u.commit_id
    JOIN facts.commit_inputs AS i ON i.commit_id = u.commit_id
    JOIN facts.files AS f ON f.digest = i.digest AND f.commit_id <> u.commit_id
    JOIN facts.commits AS source ON source.commit_id = f.commit_id
    WHERE (source.tool = target.tool OR source.tool = '' OR target.tool = ''
           OR starts_with(target.stage, 'sample_'))  -- further calls of chains follow calls of any tool
      AND (EXISTS (FROM facts.run_commits AS rc WHERE rc.run_id = u.run_id AND rc.commit_id = source.commit_id)
           OR NOT EXISTS (FROM facts.run_commits AS rc WHERE rc.run_id = u.run_id))
)
SELECT u.name AS dataset, u.version, u.made, c.stage, c.tool, c.shard, f.path AS file, f.rows, f.digest, c.commit_id
FROM used AS u JOIN facts.commits AS c USING (commit_id) JOIN facts.files AS f USING (commit_id)

-- view best_calls: Single calls that low thresholds keep: the best at each position, and of those repeated nearby.
-- The index has hashes of documents, and the best call of each tool at a position.
SELECT s.* FROM scored AS s SEMI JOIN (
    SELECT doc, "position", tool FROM facts.gains JOIN facts.slots USING (slot) WHERE best AND preceding_tools = []
) AS g ON g.doc = hash(s.doc_id) AND g."position" = s."position" AND g.tool = s.tool
WHERE $rules QUALIFY row_number() OVER (PARTITION BY s.doc_id, s."position" ORDER BY $precedence) = 1

-- view kept_calls: The calls in the current C*, with their losses (nats).
-- A call is scored once per document, position and input; its losses are NULL if the scores are damaged. The calls of a
-- chain share their position: the losses of the chain stand beside its last call.
WITH kept AS (SELECT doc_id, unnest(calls) AS call, calls, dataset, version FROM examples), numbered AS (
    SELECT *, len([c FOR c IN calls IF c.position = call.position AND c.start <= call.start]) AS link,
           len([c FOR c IN calls IF c.position = call.position]) AS links
    FROM kept
)
SELECT k.doc_id, k.call.tool AS tool, k.call.position AS "position", k.call.input AS input,
       k.call.response AS response, k.call.gain AS gain,
       coalesce(s.loss_plain, z.loss_plain) AS loss_plain, coalesce(s.loss_call, z.loss_call) AS loss_call,
       coalesce(s.loss_response, z.loss_response) AS loss_response, k.dataset, k.version, k.link, k.links
FROM numbered AS k
LEFT JOIN scored AS s ON s.doc_id = k.doc_id AND s.tool = k.call.tool AND s."position" = k.call.position
    AND s.input = k.call.input AND k.links = 1
LEFT JOIN chain_scored AS z ON z.doc_id = k.doc_id AND z.tool = k.call.tool AND z."position" = k.call.position
    AND z.input = k.call.input AND z.response = k.call.response AND k.link = k.links AND k.links > 1
    AND [(b.tool, b.input, b.response) FOR b IN z.preceding_calls]
        = [(c.tool, c.input, c.response) FOR c IN k.calls IF c.position = k.call.position AND c.start < k.call.start]

-- view costs: Seconds and LM tokens of the current build per stage and tool, in total and per kept call.
-- The cost of a stage that runs once for all tools is divided by the kept calls of all of them.
WITH kept AS (
    SELECT tool, count(*) AS n FROM (SELECT unnest(calls).tool AS tool FROM examples) GROUP BY tool
    UNION ALL SELECT '', coalesce(sum(len(calls)), 0) FROM examples
), spent AS (
    SELECT c.stage, c.tool, count(*) AS shards, sum(c.seconds) AS seconds,
           coalesce(sum(TRY_CAST(c.counters::JSON->>'lm_tokens' AS DOUBLE)), 0)::BIGINT AS lm_tokens
    FROM facts.commits AS c JOIN facts.current USING (commit_id)
    WHERE c.stage NOT IN ($evaluation_stages) GROUP BY c.stage, c.tool
)
SELECT s.stage, s.tool, s.shards, s.seconds, s.lm_tokens, coalesce(k.n, 0)::BIGINT AS kept_calls,
       s.seconds / nullif(k.n, 0) AS seconds_per_kept_call, s.lm_tokens / nullif(k.n, 0) AS lm_tokens_per_kept_call
FROM spent AS s LEFT JOIN kept AS k USING (tool) LEFT JOIN facts.stages AS o USING (stage) ORDER BY o.rank, s.tool

-- view tool_costs: Calls per tool of the current build: answered, failed, from the cache; their durations and cost.
-- From the counters in the commits of `execute` (`toolformer_core.tools.execution.tally`). A call's duration is counted
-- in the class whose upper bound is a power of two in milliseconds (`ms_1`, `ms_2`, ...); a percentile is interpolated
-- in its class. Sums of DECIMAL do not depend on the order of the rows, as those of floats do.
WITH used AS (
    SELECT c.commit_id, c.tool, c.host, c.counters::JSON AS counters
    FROM facts.commits AS c JOIN facts.current USING (commit_id)
    WHERE c.stage = 'execute' OR starts_with(c.stage, 'execute_')
), counted AS (
    SELECT commit_id, sum(rows) FILTER (kind = 'in') AS questions, sum(rows) FILTER (kind = 'kept') AS answered,
           coalesce(sum(rows) FILTER (kind = 'failed'), 0) AS failed
    FROM facts.balances WHERE unit = 'calls' GROUP BY commit_id
), read AS (
    SELECT u.tool, u.host, c.*, (u.counters->>'transient')::BIGINT AS transient,
           (u.counters->>'cache_hits')::BIGINT AS cached, (u.counters->>'requested')::BIGINT AS requested,
           (u.counters->>'calls')::BIGINT AS calls,
           TRY_CAST(u.counters->>'tool_seconds' AS DECIMAL(38, 9)) AS seconds,
           TRY_CAST(u.counters->>'tool_cost' AS DECIMAL(38, 9)) AS cost
    FROM used AS u JOIN counted AS c USING (commit_id)
), totals AS (
    SELECT tool, count(*) AS shards, count(DISTINCT host) AS hosts, sum(questions)::BIGINT AS questions,
           sum(answered)::BIGINT AS answered, sum(transient)::BIGINT AS failed_transient,
           sum(failed - transient)::BIGINT AS failed_lasting, sum(cached)::BIGINT AS from_cache,
           sum(requested)::BIGINT AS requested, sum(calls)::BIGINT AS calls, sum(calls - requested)::BIGINT AS retries,
           sum(seconds)::DOUBLE AS seconds, 1000 * sum(seconds)::DOUBLE / nullif(sum(calls), 0) AS mean_ms,
           sum(cost)::DOUBLE AS cost
    FROM read GROUP BY tool
), classes AS (
    SELECT tool, substr(name, 4)::BIGINT AS bound, sum((counters->>name)::BIGINT) AS n
    FROM (SELECT tool, counters, unnest(json_keys(counters)) AS name FROM used) WHERE name LIKE 'ms\_%' ESCAPE '\'
    GROUP BY ALL
), ranked AS (
    SELECT tool, bound, n, CASE WHEN bound = 1 THEN 0 ELSE bound / 2 END AS lower_bound,
           sum(n) OVER (PARTITION BY tool ORDER BY bound) AS up_to, sum(n) OVER (PARTITION BY tool) AS total
    FROM classes
), percentiles AS (
    SELECT tool, share,
           arg_min(lower_bound + (bound - lower_bound) * (share * total - (up_to - n)) / n, bound)
               FILTER (up_to >= share * total) AS ms
    FROM ranked CROSS JOIN (VALUES (0.5), (0.95), (0.99)) AS s(share) GROUP BY tool, share
), latency AS (
    SELECT tool, any_value(ms) FILTER (share = 0.5) AS p50_ms, any_value(ms) FILTER (share = 0.95) AS p95_ms,
           any_value(ms) FILTER (share = 0.99) AS p99_ms
    FROM percentiles GROUP BY tool
)
SELECT t.tool, t.shards, t.hosts, t.questions, t.answered, t.failed_transient, t.failed_lasting, t.from_cache,
       t.requested, t.calls, t.retries, t.seconds, t.mean_ms, l.p50_ms, l.p95_ms, l.p99_ms, t.cost
FROM totals AS t LEFT JOIN latency AS l USING (tool) ORDER BY t.tool

-- view prompts: The annotation prompts of all builds.
SELECT c.tool, p.value AS digest, bool_or(commit_id IN (SELECT commit_id FROM facts.current)) AS "current",
       list(DISTINCT rc.run_id ORDER BY rc.run_id) FILTER (rc.run_id IS NOT NULL) AS runs, any_value(t.text) AS text
FROM facts.commit_parts AS p JOIN facts.commits AS c USING (commit_id)
LEFT JOIN facts.run_commits AS rc USING (commit_id)
LEFT JOIN facts.prompts AS t ON t.tool = c.tool AND t.digest = p.value
WHERE c.stage = 'sample' AND (p.part = 'prompt' OR p.part LIKE 'prompt %')
GROUP BY c.tool, p.value ORDER BY c.tool, min(c.created), p.value

-- view trainings: Finished trainings: their inputs, losses, perplexities, and the path of the checkpoint.
SELECT * EXCLUDE (curve) REPLACE (recipe::JSON AS recipe, TRY_CAST(finished AS TIMESTAMP) AS finished)
FROM facts.trainings ORDER BY finished, job

-- view training_steps: Every step of the finished trainings: loss, learning rate, speed, and dev perplexity where measured.
SELECT job, arm, dataset, version, measured.*
FROM (SELECT *, unnest(from_json(curve, '[{"step": "BIGINT", "loss": "DOUBLE", "learning_rate": "DOUBLE",
          "tokens_per_second": "DOUBLE", "dev_perplexity": "DOUBLE"}]')) AS measured FROM facts.trainings)
ORDER BY finished, job, measured.step

-- view yield_by_threshold: Examples and calls per tool that the thresholds 0.5, 1 and 2 would keep.
SELECT tool, tau_f, coalesce(sum(examples), 0)::BIGINT AS examples, coalesce(sum(calls), 0)::BIGINT AS calls
FROM (SELECT DISTINCT tool FROM facts.commits JOIN facts.current USING (commit_id) WHERE stage = 'score')
CROSS JOIN (VALUES $thresholds) AS t(tau_f)
LEFT JOIN facts.yields USING (tool, tau_f) GROUP BY ALL ORDER BY ALL

-- view evaluations: One row per evaluation: an arm at one k on one task, and whether its run was completed.
-- An evaluation's names are those in its newest commit.
WITH used AS (
    SELECT rc.commit_id, max((r.number, r.started)) AS run, bool_or(r.state = 'completed') AS completed
    FROM facts.run_commits AS rc JOIN facts.runs AS r USING (run_id) GROUP BY ALL
), evaluated AS (
    SELECT c.*, c.config::JSON AS settings, u.run, (coalesce(r.number, 0), c.created) AS made,
           coalesce(u.completed, false) AS completed
    FROM facts.commits AS c JOIN facts.current USING (commit_id) LEFT JOIN used AS u USING (commit_id)
    LEFT JOIN facts.runs AS r ON r.run_id = c.run_id
    WHERE c.stage IN ('evaluate', 'perplexity')
)
SELECT settings->>'evaluation' AS evaluation, any_value(settings->>'task') AS task, any_value(settings->>'arm') AS arm,
       any_value((settings->>'k')::BIGINT) AS k, max_by(settings->>'model', made) AS model,
       any_value(coalesce((settings->>'max_calls')::BIGINT, 1)) AS max_calls,
       max_by(settings->>'base', made) AS base, any_value(settings->>'model_digest') AS model_digest,
       any_value(settings->>'base_digest') AS base_digest, any_value(settings->>'source') AS source,
       max_by(settings->>'path', made) AS path, count(*) AS shards, sum(seconds) AS seconds,
       bool_and(completed) AS completed, TRY_CAST(max(run)[2] AS TIMESTAMP) AS evaluated,
       coalesce(max(run)[1], 0) AS run_number
FROM evaluated GROUP BY settings->>'evaluation'

-- view accuracy: Per evaluation: the share of right examples, among all and among those with and without a call.
-- Where an item has one call at most, `calls` is NULL.
WITH counted AS (
    SELECT evaluation, any_value(parameters) AS parameters, count(*) AS items, count_if(correct) AS "right",
           avg(correct::INT) AS accuracy, count_if(called) AS called, avg(called::INT) AS call_rate,
           avg(coalesce(len([c FOR c IN calls IF c.requested]), called::INT)) AS calls_per_item,
           avg(correct::INT) FILTER (called) AS accuracy_called,
           avg(correct::INT) FILTER (NOT called) AS accuracy_uncalled, count_if(problem <> '') AS failed
    FROM predictions GROUP BY evaluation
)
SELECT e.task, e.base, e.arm, e.k, e.max_calls, c.* EXCLUDE (evaluation), e.model, e.base_digest, e.model_digest,
       e.source, e.path, e.completed, e.evaluated, e.seconds, e.evaluation, e.run_number
FROM counted AS c JOIN evaluations AS e USING (evaluation)

-- view certificates: Accuracies of finetuned models with and without the items that stand in the texts of their training.
FROM facts.certificates

-- view call_rates: Per evaluation and tool: the number of examples on which it was called.
-- An item of several calls counts once for each tool that it called; of calls of one tool it failed if the first did.
WITH made AS (
    SELECT evaluation, task, arm, k, item_id, correct, tool, failure FROM predictions WHERE called AND calls IS NULL
    UNION ALL
    SELECT evaluation, task, arm, k, item_id, correct, call.tool, call.failure
    FROM (SELECT *, unnest(calls) AS call, generate_subscripts(calls, 1) AS number FROM predictions)
    WHERE call.requested QUALIFY row_number() OVER (PARTITION BY evaluation, item_id, call.tool ORDER BY number) = 1
)
SELECT evaluation, any_value(task) AS task, any_value(arm) AS arm, any_value(k) AS k, tool, count(*) AS items,
       count(*) / any_value(total) AS rate, avg(correct::INT) AS accuracy,
       avg((failure IS NOT NULL)::INT) AS failure_rate
FROM made JOIN (SELECT evaluation, count(*) AS total FROM predictions GROUP BY evaluation) USING (evaluation)
GROUP BY evaluation, tool

-- view perplexity: Per evaluation: perplexity over all tokens, tools disabled.
WITH summed AS (
    SELECT evaluation, any_value(parameters) AS parameters, count(*) AS texts, sum(tokens)::BIGINT AS tokens,
           exp(sum(nll) / nullif(sum(tokens), 0)) AS perplexity, count_if(problem <> '') AS failed
    FROM perplexities GROUP BY evaluation
)
SELECT e.task, e.source, e.base, e.arm, p.* EXCLUDE (evaluation), e.model, e.base_digest, e.model_digest, e.path,
       e.completed, e.evaluated, e.seconds, e.evaluation, e.run_number
FROM summed AS p JOIN evaluations AS e USING (evaluation)

-- view choice_accuracy: Per grounding and method (lm, toolformer): the share of queries with a right choice.
SELECT grounding, any_value(task) AS task, method, count(*) AS queries,
       count_if(coalesce(list_contains(right_tools, tool), len(right_tools) = 0)) AS "right",
       avg(coalesce(list_contains(right_tools, tool), len(right_tools) = 0)::INT) AS accuracy
FROM tool_choices GROUP BY grounding, method

-- view grounded_accuracy: Per method of choosing: the share of queries with a right answer.
SELECT answering, any_value(grounding) AS grounding, any_value(task) AS task, any_value(method) AS method,
       count(*) AS queries, count_if(correct) AS "right",
       avg(correct::INT) FILTER (len(answers) > 0) AS accuracy, avg((failure <> '')::INT) AS failure_rate
FROM grounded_answers GROUP BY answering

-- view grounding_costs: LM calls, tokens, tool calls and seconds of each step of a grounding.
WITH used AS (
    SELECT c.stage, c.config::JSON AS settings, c.counters::JSON AS counters, c.seconds, b.rows AS queries
    FROM facts.commits AS c JOIN facts.current USING (commit_id)
    JOIN facts.balances AS b ON b.commit_id = c.commit_id AND b.kind = 'in'
    WHERE c.stage IN ('ground', 'choose', 'answer_grounded')
)
SELECT settings->>'grounding' AS grounding, any_value(settings->>'task') AS task, stage,
       coalesce(settings->>'method', '') AS method, settings->>'answering' AS answering,
       sum(queries)::BIGINT AS queries, sum((counters->>'small_calls')::BIGINT)::BIGINT AS small_calls,
       sum((counters->>'large_calls')::BIGINT)::BIGINT AS large_calls,
       sum((counters->>'lm_tokens')::BIGINT)::BIGINT AS lm_tokens,
       sum((counters->>'tool_calls')::BIGINT)::BIGINT AS tool_calls, sum(seconds) AS seconds
FROM used GROUP BY ALL

-- macro grounding_scores(gamma, smoothing): Per query and tool: cosine, pattern score and total under gamma and smoothing (lambda).
-- `groundings` holds every score in parts: the cosine S, and the pattern counts of the preliminary answer and of each
-- tool's response, from which P follows (GEAR, eq. 2). P is 0 for a response without patterns, and for an answer without
-- any where lambda is 0. gamma = 1 is the cosine alone. lambda is a word of SQL.
WITH scored AS (
    SELECT grounding, task, item_id, query, right_tools, rank, tool, semantic, call, response, failure, mock,
           coalesce(list_sum([(part[1] + smoothing) * part[2] * part[3]
                              FOR part IN list_zip(preliminary_counts, counts, pattern_weights)])
                    / nullif((list_sum(preliminary_counts) + smoothing * len(patterns)) * list_sum(counts), 0), 0)
               AS pattern
    FROM groundings
)
SELECT grounding, task, item_id, query, right_tools, tool, semantic, pattern,
       gamma * semantic + (1 - gamma) * pattern AS total,
       row_number() OVER (
           PARTITION BY grounding, item_id ORDER BY gamma * semantic + (1 - gamma) * pattern DESC, rank) = 1 AS chosen,
       list_contains(right_tools, tool) AS "right", call, response, failure, mock
FROM scored

-- macro grounding_accuracy(gamma, smoothing): Per grounding: the share of queries for which gamma and smoothing choose a right tool.
SELECT grounding, any_value(task) AS task, count(*) AS queries, count_if("right") AS "right",
       avg("right"::INT) AS accuracy
FROM grounding_scores(gamma, smoothing) WHERE chosen GROUP BY grounding

-- macro false_discovery_rate(tau): Per tool: calls and decoys that gain at least tau (nats), and the estimated rate of false discoveries.
-- The rate is the share of a tool's decoys that gain at least tau, divided by the share of its calls that do, and at most
-- 1. A chain counts as its last call: it is kept by the threshold of that call's tool. Calls that are dropped whatever the
-- threshold take no part. The rate is NULL where no call passes, or where calls were scored without decoys.
WITH calls AS (
    SELECT tool, gain, decoy_gains, seen_before, seen_after FROM scored
    UNION ALL SELECT tool, gain, decoy_gains, seen_before, seen_after FROM chain_scored
), counted AS (
    SELECT tool, tau::DOUBLE AS tau_f, count(*) FILTER (gain >= tau) AS calls, count(*) AS of_calls,
           coalesce(sum(len([g FOR g IN decoy_gains IF g >= tau AND NOT isnan(g)])), 0)::BIGINT AS decoys,
           coalesce(sum(len([g FOR g IN decoy_gains IF NOT isnan(g)])), 0)::BIGINT AS of_decoys
    FROM calls WHERE $measured AND NOT $looked_ahead GROUP BY ALL
)
SELECT *, CASE WHEN calls > 0 AND of_decoys > 0
               THEN least(1.0, (decoys / of_decoys) / (calls / of_calls)) END AS rate
FROM counted ORDER BY tool
