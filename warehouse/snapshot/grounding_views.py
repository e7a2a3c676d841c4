"""The SQL of groundings: total scores and accuracies under any gamma and lambda, and figures of grounded answers.

The table `groundings` holds every score in parts: the cosine S, and the pattern counts of the preliminary answer and of
each tool's response, from which P follows (GEAR, eq. 2). Two table macros take the weights:

    FROM grounding_scores(0.75, 1)      -- every query and tool with S, P and the total, and which tool is chosen
    FROM grounding_accuracy(0.75, 1)    -- per grounding: the share of queries for which a right tool is chosen

gamma = 1 is the cosine alone. `smoothing` is lambda, which is a word of SQL. This module opens no database.
"""

from __future__ import annotations

from collections.abc import Mapping

# P: 0 for a response without patterns, and for an answer without any where lambda is 0.
_PATTERN = """coalesce(list_sum([(part[1] + smoothing) * part[2] * part[3]
        FOR part IN list_zip(preliminary_counts, counts, pattern_weights)])
    / nullif((list_sum(preliminary_counts) + smoothing * len(patterns)) * list_sum(counts), 0), 0)"""

_SCORES = f"""
WITH scored AS (
    SELECT grounding, task, item_id, query, right_tools, rank, tool, semantic, {_PATTERN} AS pattern, call, response,
           failure, mock
    FROM groundings
)
SELECT grounding, task, item_id, query, right_tools, tool, semantic, pattern,
       gamma * semantic + (1 - gamma) * pattern AS total,
       row_number() OVER (
           PARTITION BY grounding, item_id ORDER BY gamma * semantic + (1 - gamma) * pattern DESC, rank) = 1 AS chosen,
       list_contains(right_tools, tool) AS "right", call, response, failure, mock
FROM scored"""

# Table macro -> its parameters and its query.
MACROS: Mapping[str, tuple[str, str]] = {
    "grounding_scores": ("gamma, smoothing", _SCORES),
    "grounding_accuracy": (
        "gamma, smoothing",
        """
SELECT grounding, any_value(task) AS task, count(*) AS queries, count_if("right") AS "right",
       avg("right"::INT) AS accuracy
FROM grounding_scores(gamma, smoothing) WHERE chosen GROUP BY grounding""",
    ),
}

MACRO_COMMENTS: Mapping[str, str] = {
    "grounding_scores": "Per query and tool: cosine, pattern score and total under gamma and smoothing (lambda).",
    "grounding_accuracy": "Per grounding: the share of queries for which gamma and smoothing choose a right tool.",
}

CHOICE_ACCURACY = """
SELECT grounding, any_value(task) AS task, method, count(*) AS queries,
       count_if(coalesce(list_contains(right_tools, tool), len(right_tools) = 0)) AS "right",
       avg(coalesce(list_contains(right_tools, tool), len(right_tools) = 0)::INT) AS accuracy
FROM tool_choices GROUP BY grounding, method"""

GROUNDED_ACCURACY = """
SELECT answering, any_value(grounding) AS grounding, any_value(task) AS task, any_value(method) AS method,
       count(*) AS queries, count_if(correct) AS "right",
       avg(correct::INT) FILTER (len(answers) > 0) AS accuracy, avg((failure <> '')::INT) AS failure_rate
FROM grounded_answers GROUP BY answering"""

GROUNDING_COSTS = """
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
FROM used GROUP BY ALL"""
