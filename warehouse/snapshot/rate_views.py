"""The SQL of the estimated rate of false discoveries at a threshold, from the gains of calls and of their decoys.

A tool's rate is the share of its decoys that gain at least tau, divided by the share of its calls that do, and at most
1. Calls that are dropped whatever the threshold take no part. The rate is null where no call passes, or where calls
were scored without decoys. How a threshold is found for a promised rate is not known here, and no database is opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from warehouse.snapshot.views import LOOKED_AHEAD, MEASURED

# Whether the current calls were scored with decoys.
DECOYS = """SELECT coalesce(bool_or(TRY_CAST(c.config::JSON->>'decoys' AS INTEGER) > 0), false) AS decoys
    FROM facts.commits AS c JOIN facts.current USING (commit_id) WHERE c.stage = 'score'"""

_COLUMNS = "tool, gain, decoy_gains, seen_before, seen_after"
_SINGLE_CALLS = f"SELECT {_COLUMNS} FROM scored"
# A chain counts as its last call: it is kept by the threshold of that call's tool.
_ALL_CALLS = f"{_SINGLE_CALLS} UNION ALL SELECT {_COLUMNS} FROM chain_scored"

# Whether a snapshot has a table of chains; those of earlier program versions have none.
CHAINS = "SELECT count(*) > 0 AS chains FROM information_schema.tables WHERE table_name = 'chain_scored'"

_COUNTED = f"""
SELECT tool, tau::DOUBLE AS tau_f, count(*) FILTER (gain >= tau) AS calls, count(*) AS of_calls,
       coalesce(sum(len([g FOR g IN decoy_gains IF g >= tau AND NOT isnan(g)])), 0)::BIGINT AS decoys,
       coalesce(sum(len([g FOR g IN decoy_gains IF NOT isnan(g)])), 0)::BIGINT AS of_decoys
FROM ({{scored}}){{thresholds}}
WHERE {MEASURED} AND NOT {LOOKED_AHEAD} GROUP BY ALL"""

_RATES = """
SELECT *, CASE WHEN calls > 0 AND of_decoys > 0
               THEN least(1.0, (decoys / of_decoys) / (calls / of_calls)) END AS rate
FROM ({counted}) ORDER BY tool, tau_f"""

# Table macro -> its parameters and its query.
MACROS: Mapping[str, tuple[str, str]] = {
    "false_discovery_rate": ("tau", _RATES.format(counted=_COUNTED.format(scored=_ALL_CALLS, thresholds=""))),
}

MACRO_COMMENTS: Mapping[str, str] = {
    "false_discovery_rate": "Per tool: calls and decoys that gain at least tau (nats), and the estimated rate of false "
    "discoveries.",
}


def rate_sql(thresholds: Iterable[float], *, chains: bool = True) -> str:
    """Return the query for (tool, tau_f, calls, of_calls, decoys, of_decoys, rate), each threshold for every tool.

    Args:
        thresholds: in nats.
        chains: whether the snapshot has a table of chains, see `CHAINS`.
    """
    listed = ", ".join(f"({float(value)!r}::DOUBLE)" for value in thresholds)
    return _RATES.format(
        counted=_COUNTED.format(
            scored=_ALL_CALLS if chains else _SINGLE_CALLS, thresholds=f" CROSS JOIN (VALUES {listed}) AS t(tau)"
        )
    )
