"""The commands of the group "ask": `plan`, `stats`, `explain`, `what-if`, `datasets`.

`cli` puts them into the one command line. They import what they need when they run, and none of them loads a model.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli_build import check, with_build_options
from flows.cli_warehouse import built_store, published_snapshot
from flows.terminal import parse_tau_f, print_json, say
from tasks.settings import prepare

if TYPE_CHECKING:
    from flows.parameters import BuildParameters

__all__ = ["datasets", "explain", "plan", "stats", "what_if"]

Data = Annotated[
    str | None, typer.Option("--data", help="Data folder or URL (default: $TOOLFORMER_DATA, else ./toolformer-data)")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines")]


@with_build_options
def plan(parameters: BuildParameters, runner: str, as_json: bool) -> None:
    """What a build with these options would do, why, and what it would cost. Loads no model and changes nothing.

    Costs are those of past runs in the same data folder, scaled by documents and by draws (k * m). "at least" says that
    a stage has none; a pilot run, whose command is printed, gives it one.

    Example: toolformer plan --corpus c4.jsonl --data runs/c4 --tau-f qa=1.2     (the same options as build)
    """
    check(parameters)
    prepare()
    from flows.display_ask import print_plan
    from flows.plan import plan_build

    planned = plan_build(parameters)
    if as_json:
        totals = {"total": asdict(planned.total), "total_at_most": asdict(planned.total_at_most)}
        print_json({**asdict(planned), "nothing_to_do": planned.nothing_to_do, **totals})
    else:
        print_plan(planned)


def stats(data: Data = None, as_json: AsJson = False) -> None:
    """Rows in, kept, dropped by reason per stage and tool; examples per tool at each threshold.

    Example: toolformer stats --data runs/c4 --json
    """
    from flows.display import print_stats
    from warehouse.queries import stats as query
    from warehouse.queries import subject

    path = published_snapshot(data)
    found, of = query(path), subject(path)
    if as_json:
        balances = [{**asdict(b), "conserved": b.conserved} for b in found.balances]
        told = {"of": asdict(of) if of is not None else None, "conserved": found.conserved, "balances": balances}
        covered = {"coverage": [asdict(c) for c in found.coverage]}
        print_json({**told, "yield": [asdict(y) for y in found.yields], **covered})
    else:
        print_stats(found, of)


def explain(
    doc_id: Annotated[str, typer.Argument(help="The document's id, or how it begins")],
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """One document's whole path: verdicts, positions, draws, responses, losses, what was kept, and who used it.

    Example: toolformer explain 3f2a... --data runs/c4     (the id may be shortened)
    """
    from flows.explained import explained

    told = explained(built_store(data), published_snapshot(data), doc_id)
    if as_json:
        own = asdict(told)
        print_json({**own.pop("found"), **own})
    else:
        from flows.display_ask import print_explained

        print_explained(told)


def what_if(
    tau: Annotated[
        str, typer.Option("--tau", help="Filtering thresholds in nats, e.g. calculator=0.7,qa=1.2; others stay")
    ] = "",
    top_k: Annotated[int | None, typer.Option(min=1, help="Only the so many likeliest positions of a document")] = None,
    tau_s: Annotated[
        float | None, typer.Option(min=0, max=1, help="Only positions where p(' [') is above this")
    ] = None,
    keep_repeats: Annotated[
        bool | None,
        typer.Option(
            "--keep-repeats/--drop-repeats",
            help="Keep or drop calls of one tool with the same input within five tokens of a better one (default: as "
            "C* was assembled)",
        ),
    ] = None,
    materialise: Annotated[
        str | None, typer.Option(metavar="NAME", help="Assemble C* so, as a new version of the dataset NAME")
    ] = None,
    samples: Annotated[int, typer.Option(min=0, help="Calls to show of those that come and of those that go")] = 5,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Other thresholds, from stored scores alone: the yield per tool, and calls that would come and go.

    Example: toolformer what-if --tau calculator=0.7,qa=1.2 --top-k 3 --materialise strict --data runs/c4
    """
    prepare()
    from warehouse.queries import subject
    from warehouse.what_if import what_if as query

    store, path = built_store(data), published_snapshot(data)
    thresholds = parse_tau_f(tau, "--tau")
    from flows.what_if import ask
    from flows.what_if import materialise as assemble

    asked, now = ask(path, thresholds, top_k, tau_s, keep_repeats), subject(path)
    found = query(path, asked.before, asked.after, samples)
    limit = int(asked.stored.assembled.get("max_examples", 25_000))
    made = assemble(store, asked, materialise) if materialise is not None else None
    if as_json:
        version = {"dataset": made.to_json()} if made is not None else {}
        of = asdict(now) if now is not None else None
        print_json({"now": of, **asdict(found), "notes": asked.notes, "max_examples": limit, **version})
        return
    from flows.display_ask import print_what_if

    print_what_if(asked, found, limit, now)
    if made is not None:
        kept = ", ".join(f"{tool} {n:,}" for tool, n in made.counts.items())
        print(f"\nassembled {made.label}: {sum(file.rows for file in made.files):,} examples ({kept})")


def datasets(
    name: Annotated[str, typer.Argument(help="name, name@version or name@version-made: print its card")] = "",
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """List the versions of C*; of one that is named, print the card.

    A version is named by its content. Where several thresholds, corpora or models gave the same content, each of them
    is listed, as name@version-made, and the card tells of all. A version whose files are gone or cut short is marked;
    `toolformer reconcile --check` reads every byte.

    Example: toolformer datasets --data runs/c4     then toolformer datasets cstar --data runs/c4
    """
    store = built_store(data)
    if name:
        from flows.export import find_dataset
        from flows.versions import card_of

        one = find_dataset(store, name)
        card = card_of(store, one)
        if as_json:
            print_json({**one.to_json(), "card": card})
        else:
            say(card, end="")
        return
    from warehouse.audit import gone

    found = [(d, gone(store, d)) for d in store.datasets()]
    if as_json:
        print_json([{**d.to_json(), "gone": lost} for d, lost in found])
    elif not found:
        print("no version yet: run the same toolformer build to its end")
    else:
        from flows.display_ask import print_datasets

        print_datasets(found)
