"""The commands `plan`, `stats`, `explain`, `what-if` and `datasets`, which read a data folder and load no model."""

from dataclasses import asdict
from typing import Annotated

from typer import Argument, Option

from cli.commands.build import Runner, checked_runner
from cli.commands.warehouse import built_store, published_snapshot
from cli.options import AsJson, Data, option_name, option_of, parse_by_tool, parse_rates, parse_thresholds, with_options
from cli.terminal import print_json, say
from flows.build_dataset.parameters import BuildParameters
from flows.cost.parameters import CostOptions
from flows.forms.calls import Ratings
from tasks.environment import prepare_environment
from toolformer_core.config import TOOL_NAMES
from toolformer_core.errors import UsageError


@with_options(BuildParameters, CostOptions, optional=("corpus",))
def plan(parameters: BuildParameters, costs: CostOptions, runner: Runner = None, as_json: AsJson = False) -> None:
    """Show what a build would do, why, and at what cost. Loads no model, changes nothing.

    Costs are estimated from past runs in the same data folder, scaled by documents and by samples (k * m). "at least"
    means that a stage has no past run; the pilot run, whose command is printed, provides one.

    Example: toolformer plan --corpus c4.jsonl --data runs/c4 --tau-f qa=1.2     (the same options as build)

    With --documents: what a run of that size costs, before anything is built or rented. Per stage and tool: LM tokens,
    GPU hours, tool calls and hours, CPU hours; in all: money, wall time and what holds it up; and the finetuning behind
    it. Every number it rests on is printed with its origin, and --assume replaces it.
    Best from a pilot build of a few hundred documents: name its folder with --from.

    Example: toolformer plan --documents 1e9 --gpu h100 --gpu-count 64 --gpu-price 2.5 --model gpt-j-6b --from pilot
    """
    prepare_environment()
    if costs.documents is not None:
        from cli.render.cost import cost_as_json, print_cost
        from flows.cost.of_build import cost_of_build

        cost = cost_of_build(parameters, costs.documents, costs)
        print_json(cost_as_json(cost)) if as_json else print_cost(cost)
        return
    if names := list(map(option_name, costs.model_dump(exclude_defaults=True))):
        raise UsageError(f"{', '.join(names)}: for a plan by numbers; say how many documents, e.g. --documents 1e9")
    if not parameters.corpus:
        raise UsageError("--corpus names the texts; for the cost by numbers alone give --documents, e.g. 1e9")
    checked_runner(runner, parameters.workers, parameters.gpus)
    from cli.render.answers import print_plan
    from flows.build_dataset.plan import plan_build

    build_plan = plan_build(parameters)
    if as_json:
        totals = {"total": build_plan.total, "total_at_most": build_plan.total_at_most}
        print_json({**asdict(build_plan), "nothing_to_do": build_plan.nothing_to_do, **totals})
    else:
        print_plan(build_plan)


def stats(data: Data = None, as_json: AsJson = False) -> None:
    """Count rows in, kept and dropped by reason, per stage and tool, and examples per tool at each threshold.

    Of each tool's kept calls, also how many inputs and responses are distinct (see build --max-same-call).
    If calls were scored with decoys (build --tau-f fdr=0.05, or --decoys), also how often wrong ones would pass;
    of benchmarks that were kept out (build --decontaminate), how many of their items stood in the corpus.

    Example: toolformer stats --data runs/c4 --json
    """
    from cli.render.answers import print_stats
    from warehouse.queries import stats as query
    from warehouse.queries.builds import current_build, kept_calls

    snapshot = published_snapshot(data)
    figures, build, calls = query(snapshot), current_build(snapshot), kept_calls(snapshot)
    if as_json:
        balances = [{**asdict(b), "conserved": b.conserved} for b in figures.balances]
        shown: dict[str, object] = {"of": build, "conserved": figures.conserved, "yield": figures.yields, "kept": calls}
        shown |= {"false_discovery_rates": figures.rates, "coverage": figures.coverage, "tools": figures.tools}
        print_json({**shown, "balances": balances, "benchmarks": figures.benchmarks})
    else:
        print_stats(figures, build, calls)


def explain(
    doc_id: Annotated[str, Argument(help="The document's id, or its first characters")],
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Show one document's path through all stages: positions, samples, responses, losses, kept calls, and what used it.

    Example: toolformer explain 3f2a... --data runs/c4     (the id may be shortened)
    """
    from cli.render.answers import print_document_trace
    from flows.report.document_trace import trace_document

    trace = trace_document(built_store(data), published_snapshot(data), doc_id)
    fields = asdict(trace)
    print_json({**fields.pop("explanation"), **fields}) if as_json else print_document_trace(trace)


_REPEATS = Option("--keep-repeats/--drop-repeats", help="Calls that repeat a better one nearby (default: as in C*)")


def what_if(
    tau: Annotated[str, Option("--tau", help="Thresholds in nats, e.g. calculator=0.7,qa=1.2; others stay")] = "",
    fdr: Annotated[str, Option("--fdr", help="Thresholds by decoys for false discovery rates, e.g. 0.01,0.05")] = "",
    top_k: Annotated[str, Option(help="Only the k best positions of a document; or by tool, calculator=3,qa=2")] = "",
    tau_s: Annotated[str, Option(help="Only where p(' [') is above this; or by tool, calculator=0.1,qa=0.2")] = "",
    keep_repeats: Annotated[bool | None, _REPEATS] = None,
    ratings: Annotated[Ratings, option_of(BuildParameters, "ratings")] = "all",
    materialise: Annotated[str | None, Option(metavar="NAME", help="Assemble C* so, as a version of NAME")] = None,
    calls: Annotated[int, Option(min=0, help="Calls to show that would come, and as many that would go")] = 5,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Try other thresholds on stored scores: the yield per tool, and calls that would be added or removed.

    Example: toolformer what-if --tau calculator=0.7,qa=1.2 --top-k 3 --materialise strict --data runs/c4
    Example: toolformer what-if --fdr 0.01,0.05,0.1 --data runs/c4
    """
    prepare_environment()
    from warehouse.queries import current_build
    from warehouse.queries.calls import tool_names
    from warehouse.what_if import what_if as answer_query

    store, snapshot = built_store(data), published_snapshot(data)
    thresholds = parse_thresholds(tau, "--tau")
    from cli.render.tables import print_tables
    from flows.build_dataset.versions import found_table
    from flows.build_dataset.what_if import compare_by_shard, thresholds_for
    from flows.build_dataset.what_if import materialise as assemble
    from flows.build_dataset.what_if_query import ask
    from flows.report.judging import chosen_ratings

    rates = parse_rates(fdr)
    found = thresholds_for(store, snapshot, rates)
    if len(rates) > 1:
        if materialise is not None:
            raise UsageError("--materialise assembles C* with one rate: give --fdr a single number")
        print_json({"found": found}) if as_json else print_tables([found_table(found)])
        return
    thresholds = {one.tool: one.tau_f for one in found} | thresholds
    k, p = parse_by_tool(top_k, "--top-k", 1), parse_by_tool(tau_s, "--tau-s", 0, 1)
    positions = (
        {tool: int(value) for tool, value in k.items()} if isinstance(k, dict) else None if k is None else int(k)
    )
    rating_filter = chosen_ratings(store, ratings)
    build = current_build(snapshot)
    what_if_query = ask(snapshot, thresholds, positions, p, keep_repeats, rating_filter)
    if rating_filter is None:
        answer = answer_query(snapshot, what_if_query.before, what_if_query.after, calls)
    else:
        answer = compare_by_shard(store, what_if_query, calls)
    limit = int(what_if_query.stored.assembled.get("max_examples", 25_000))
    dataset = assemble(store, what_if_query, materialise) if materialise is not None else None
    if as_json:
        more: dict[str, object] = {"found": found} if found else {}
        more |= {"dataset": dataset.to_json()} if dataset is not None else {}
        print_json({"now": build, **asdict(answer), "notes": what_if_query.notes, "max_examples": limit, **more})
        return
    from cli.render.answers import print_what_if
    from flows.report.tables import counted

    if found:
        print_tables([found_table(found)])
    print_what_if(what_if_query, answer, limit, {**TOOL_NAMES, **tool_names(snapshot)}, build)
    if dataset is not None:
        examples = sum(file.rows for file in dataset.files)
        print(f"\nassembled {dataset.label}: {examples:,} examples ({counted(dataset.counts)})")


def datasets(
    name: Annotated[str, Argument(help="name, name@version or name@version-made: print its card")] = "",
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """List the versions of C*; with a name, print the card of that version.

    A version is named after its content. Where several thresholds, corpora or models gave the same content, each is
    listed as name@version-made, and the card describes all. A version with missing or truncated files is marked;
    `toolformer reconcile --check` reads every byte.

    Example: toolformer datasets --data runs/c4     then toolformer datasets cstar --data runs/c4
    """
    store = built_store(data)
    if name:
        from flows.build_dataset.versions import card_of
        from flows.export.find import find_dataset

        dataset = find_dataset(store, name)
        card = card_of(store, dataset)
        print_json({**dataset.to_json(), "card": card}) if as_json else say(card, end="")
        return
    from cli.render.answers import print_datasets
    from warehouse.audit import missing_files

    versions = [(dataset, missing_files(store, dataset)) for dataset in store.datasets()]
    if as_json:
        print_json([{**dataset.to_json(), "gone": missing} for dataset, missing in versions])
    else:
        print_datasets(versions)
