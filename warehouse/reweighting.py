"""Gains under other weights of the next tokens, from the log-probabilities that are stored with every scored call.

    L(z) = - sum_t w_t log p(x_t | z)       gain = min(L(eps), L(e(c, eps))) - L(e(c, r))

Other weights make other calls the best at a position, so all scored calls are read once; what comes of it is a file
with the columns of `facts.gains` (see `snapshot.index`), which queries take in its place. It has single calls alone: of
a chain, the log-probabilities after the calls in front are not stored with it. Where L(e(c, eps)) was not computed,
there is only an upper bound of the gain: such calls are not in the file, and `skipped_calls` counts them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from warehouse.queries.rows import open_snapshot, rows_in
from warehouse.snapshot.relations import parquet_sql, sql_text
from warehouse.snapshot.views import LOOKED_AHEAD, PRECEDENCE, RULES


@dataclass(frozen=True, slots=True)
class Gains:
    relation: str = "facts.gains"  # SQL of a relation with its columns
    of_call: str = "gain"  # SQL of the gain of a row of `scored`


STORED = Gains()  # as the calls were scored


def reweigh(path: str | Path, weights: Sequence[float], file: Path) -> Gains:
    """Write the gains under other weights of the tokens from a position on to a file, and return them."""
    gain = _gain_sql(weights)
    sql = f"""
WITH calls AS (
    SELECT hash(doc_id) AS doc, tool, "position", gain, input, window_end
    FROM (SELECT * REPLACE ({gain} AS gain) FROM scored) WHERE {RULES}
    QUALIFY row_number() OVER (PARTITION BY doc_id, tool, "position" ORDER BY {PRECEDENCE}) = 1
)
SELECT slot, doc, "position", c.gain, g.log_p, g."rank",
       CASE WHEN count(c.window_end) OVER (PARTITION BY doc, tool, input) > 1 THEN hash(input) END AS alike,
       c.window_end::INTEGER AS window_end
FROM facts.gains AS g JOIN (FROM facts.slots WHERE preceding_tools = []) AS s USING (slot)
JOIN calls AS c USING (doc, "position", tool) ORDER BY doc, "position", c.gain DESC, tool"""
    with open_snapshot(path) as connection:
        rows_in(connection, f"COPY ({sql}) TO {sql_text(str(file))} (FORMAT parquet)")
    return Gains(parquet_sql([str(file)]), gain)


def skipped_calls(path: str | Path, weights: Sequence[float], tau_f: Mapping[str, float]) -> dict[str, int]:
    """Return by tool how many calls might reach their threshold under other weights, had L(e(c, eps)) been computed."""
    cases = " ".join(f"WHEN {sql_text(tool)} THEN {float(tau)!r}::DOUBLE" for tool, tau in tau_f.items())
    columns = "tool, seen_before, seen_after, loss_call, log_p_plain, log_p_call, log_p_response"
    with open_snapshot(path) as connection:
        # The bound of a chain is that of a single call in its place: shorter chains could only lower it.
        sql = f"""SELECT tool, count(*) AS calls
            FROM (SELECT {columns} FROM scored UNION ALL SELECT {columns} FROM chain_scored)
            WHERE loss_call IS NULL AND log_p_plain IS NOT NULL AND log_p_response IS NOT NULL AND NOT {LOOKED_AHEAD}
            AND {_gain_sql(weights)} >= CASE tool {cases} END GROUP BY tool ORDER BY tool"""
        return {row["tool"]: row["calls"] for row in rows_in(connection, sql)} if tau_f else {}


def _gain_sql(weights: Sequence[float]) -> str:
    """Return SQL of a scored row's gain; without L(e(c, eps)) it is the upper bound."""
    plain, call, response = (_loss_sql(f"log_p_{name}", weights) for name in ("plain", "call", "response"))
    return f"((CASE WHEN log_p_call IS NULL THEN {plain} ELSE least({plain}, {call}) END) - {response})"


def _loss_sql(column: str, weights: Sequence[float]) -> str:
    """Return SQL of a loss; near the end of a text there are fewer tokens, and the weights stay as they are."""
    terms = (f"{float(w)!r}::DOUBLE * coalesce({column}[{t}]::DOUBLE, 0.0)" for t, w in enumerate(weights, 1))
    return f"(-({' + '.join(terms)}))"
