"""Prints what people's marks say of the calls, for a person."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.markup import escape

from cli.render.console import Console, narrow_table

if TYPE_CHECKING:
    from flows.report.judging import Judgements


def print_judgements(found: Judgements) -> None:
    """Print who has marked how many calls, the precision of every tool, and the agreement of every two people."""
    console = Console()
    if not found.calls:
        console.print("nobody has marked a call yet")
        return
    users = ", ".join(f"{escape(user)} {n:,}" for user, n in found.users.items())
    console.print(f"{len(found.calls):,} marked calls; of {users}", highlight=False, soft_wrap=True)
    unknown = sum(call.gain is None for call in found.calls)
    if unknown:
        console.print(f"{unknown:,} of them are not among the current scores", highlight=False)
    if found.damaged:
        console.print(f"[yellow]{found.damaged:,} lines in marks/ are no marks[/yellow]", highlight=False)
    table = narrow_table("Precision of the judged calls (* the threshold of the current C*)")
    table.add_column("tool")
    for name in ("tau_f", "right", "wrong", "open", "precision", "95 % interval"):
        table.add_column(name, justify="right")
    for one in found.precisions:
        judged = not math.isnan(one.precision)
        table.add_row(
            escape(one.tool),
            f"{one.tau_f:g}{'*' if one.is_current else ' '}",
            *(f"{n:,}" for n in (one.right, one.wrong, one.open)),
            f"{one.precision:.3f}" if judged else "",
            f"{one.low:.3f} to {one.high:.3f}" if judged else "",
        )
    console.print(table)
    if found.agreements:
        table = narrow_table("Agreement")
        table.add_column("of")
        for name in ("calls", "same verdict", "Cohen's kappa"):
            table.add_column(name, justify="right")
        for pair in found.agreements:
            kappa = "" if math.isnan(pair.kappa) else f"{pair.kappa:.2f}"
            table.add_row(escape(f"{pair.first}, {pair.second}"), f"{pair.calls:,}", f"{pair.same:,}", kappa)
        console.print(table)
