"""The SQL of what tools cost: how many of their calls had an answer, how long they took, what was paid for them.

The figures come from the counters in the commits of `execute` (`toolformer_core.tools.execution.tally`), of which
earlier program versions wrote none: over their commits the figures are NULL. A call's duration is counted in the
class of durations whose upper bound is a power of two in milliseconds (`ms_1`, `ms_2`, `ms_4`, ...); a percentile is
interpolated in its class. This module opens no database.
"""

from __future__ import annotations

_PERCENTILES = (0.5, 0.95, 0.99)
_EXACT = "DECIMAL(38, 9)"  # its sums do not depend on the order of the rows, as those of floats do


def _percentile(share: float) -> str:
    """Return SQL of a percentile in milliseconds, from classes with `bound, n, up_to, total`."""
    wanted = f"{share} * total"
    inside = f"({wanted} - (up_to - n)) / n"
    return (
        f"arg_min(lower_bound + (bound - lower_bound) * {inside}, bound) FILTER (up_to >= {wanted}) "
        f"AS p{100 * share:.0f}_ms"
    )


TOOL_COSTS = f"""
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
           (u.counters->>'cache_hits')::BIGINT AS cached, (u.counters->>'asked')::BIGINT AS asked,
           (u.counters->>'calls')::BIGINT AS calls,
           TRY_CAST(u.counters->>'tool_seconds' AS {_EXACT}) AS seconds,
           TRY_CAST(u.counters->>'tool_cost' AS {_EXACT}) AS cost
    FROM used AS u JOIN counted AS c USING (commit_id)
), totals AS (
    SELECT tool, count(*) AS shards, count(DISTINCT host) AS hosts, sum(questions)::BIGINT AS questions,
           sum(answered)::BIGINT AS answered, sum(transient)::BIGINT AS failed_transient,
           sum(failed - transient)::BIGINT AS failed_lasting, sum(cached)::BIGINT AS from_cache,
           sum(asked)::BIGINT AS asked, sum(calls)::BIGINT AS calls, sum(calls - asked)::BIGINT AS retries,
           sum(seconds)::DOUBLE AS seconds, 1000 * sum(seconds)::DOUBLE / nullif(sum(calls), 0) AS mean_ms,
           sum(cost)::DOUBLE AS cost
    FROM read GROUP BY tool
), classes AS (
    SELECT tool, substr(name, 4)::BIGINT AS bound, sum((counters->>name)::BIGINT) AS n
    FROM (SELECT tool, counters, unnest(json_keys(counters)) AS name FROM used) WHERE name LIKE 'ms\\_%' ESCAPE '\\'
    GROUP BY ALL
), ranked AS (
    SELECT tool, bound, n, CASE WHEN bound = 1 THEN 0 ELSE bound / 2 END AS lower_bound,
           sum(n) OVER (PARTITION BY tool ORDER BY bound) AS up_to, sum(n) OVER (PARTITION BY tool) AS total
    FROM classes
), latency AS (
    SELECT tool, {", ".join(map(_percentile, _PERCENTILES))} FROM ranked GROUP BY tool
)
SELECT t.tool, t.shards, t.hosts, t.questions, t.answered, t.failed_transient, t.failed_lasting, t.from_cache, t.asked,
       t.calls, t.retries, t.seconds, t.mean_ms, l.p50_ms, l.p95_ms, l.p99_ms, t.cost
FROM totals AS t LEFT JOIN latency AS l USING (tool) ORDER BY t.tool"""
