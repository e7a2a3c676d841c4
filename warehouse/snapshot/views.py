"""The conditions on calls that the snapshot's SQL shares, and the statements of `views.sql`."""

import re
from functools import cache
from pathlib import Path
from string import Template
from typing import NamedTuple

from warehouse.schema import EVALUATION_STAGES, WHAT_IF
from warehouse.snapshot.outcomes import THRESHOLDS
from warehouse.snapshot.relations import HOST

# A gain that could be measured. For DuckDB NaN is the largest number, and since a file's statistics leave NaN out, it
# concludes that there is none and does not evaluate `isnan(gain)`. It cannot draw this conclusion through TRY.
MEASURED = "NOT isnan(TRY(gain))"

# MT only: the model looked ahead.
LOOKED_AHEAD = "(tool = 'mt' AND seen_after AND NOT seen_before)"

# Which scored calls may be kept at all, whatever the threshold. Where L(e(c, eps)) was not computed, the gain is an
# upper bound that is below every threshold in use.
RULES = f"{MEASURED} AND loss_call IS NOT NULL AND NOT {LOOKED_AHEAD}"

# In which order calls at one position are kept, if their thresholds allow it: single calls, and chains beside them.
PRECEDENCE = "gain DESC, tool, input, response"
CHAIN_PRECEDENCE = f"len(preceding_calls) DESC, {PRECEDENCE}, preceding_calls"

# Runs `r`, the newest first: by their numbers, since clocks are set back and those of two machines differ.
NEWEST = "r.number DESC, r.started DESC, r.run_id DESC"

_HEAD = re.compile(r"^-- (query|view|macro) (\w+)(?:\((.*)\))?: (.*)\n", re.MULTILINE)
# What stands in .sql files as a name after a dollar sign.
_NAMES = {
    "measured": MEASURED,
    "looked_ahead": LOOKED_AHEAD,
    "rules": RULES,
    "precedence": PRECEDENCE,
    "newest": NEWEST,
    "what_if": f"'{WHAT_IF}'",
    "evaluation_stages": ", ".join(f"'{stage}'" for stage in EVALUATION_STAGES),
    "thresholds": ", ".join(f"({value!r}::DOUBLE)" for value in THRESHOLDS),
    "host": HOST,
}


class Statement(NamedTuple):
    kind: str  # query | view | macro
    parameters: str  # of a macro
    comment: str
    sql: str


@cache
def statements() -> dict[str, Statement]:
    """Return the statements of `views.sql` by name; a view may read those in front of it."""
    return _read(Template(Path(__file__).with_name("views.sql").read_text("utf-8")).substitute(_NAMES))


def queries_beside(module: str) -> dict[str, str]:
    """Return the queries of the .sql file beside a module (its `__file__`); what is not in `_NAMES` is a parameter."""
    text = Template(Path(module).with_suffix(".sql").read_text("utf-8")).safe_substitute(_NAMES)
    return {name: statement.sql.strip() for name, statement in _read(text).items()}


def _read(text: str) -> dict[str, Statement]:
    _, *parts = _HEAD.split(text)
    return {
        name: Statement(kind, parameters or "", comment, sql)
        for kind, name, parameters, comment, sql in zip(*[iter(parts)] * 5, strict=True)
    }


def query(name: str) -> str:
    """Return the SQL of a query of `views.sql`."""
    return statements()[name].sql
