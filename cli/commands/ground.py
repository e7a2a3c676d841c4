"""The commands `ground query` and `ground benchmarks`: GEAR's choice of tools, for one query or for many.

The word after `ground` may be left out.
"""

from dataclasses import asdict
from typing import Annotated, Any

from typer import Argument, Option, Typer
from typer.core import TyperGroup

from cli.commands.build import Runner, run_flow
from cli.options import AsJson, option_of, with_options
from cli.terminal import print_json
from cli.tool_options import ToolOptions, build_chosen
from cli.use.text import WritingOptions, iso_date
from flows.ground.parameters import GroundParameters
from tasks.environment import prepare_environment
from toolformer_core.grounding.records import GEAR_GAMMA, GEAR_LAMBDA


class _GroundGroup(TyperGroup):
    """A group whose first word may be a query, and may be left out in front of options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "--help"):
            args = ["benchmarks" if args[0].startswith("-") else "query", *args]
        return super().parse_args(ctx, args)


ground_app = Typer(
    cls=_GroundGroup,
    no_args_is_help=True,
    help='Choose tools by GEAR: for one query (toolformer ground "How far is ...?"), or for the queries of benchmarks '
    "(toolformer ground --task svamp=SVAMP.json). Nothing is trained.",
)


@ground_app.command("query")
@with_options(ToolOptions)
def ground_query(
    tools: ToolOptions,
    query: Annotated[str, Argument(help="The query")],
    model: Annotated[str, option_of(GroundParameters, "model")] = "embedded",
    large_model: Annotated[str | None, option_of(GroundParameters, "large_model")] = None,
    encoder: Annotated[str, option_of(GroundParameters, "encoder")] = "",
    patterns: Annotated[str, option_of(GroundParameters, "patterns")] = "standard",
    gamma: Annotated[float, option_of(GroundParameters, "gamma")] = GEAR_GAMMA,
    smoothing: Annotated[float, option_of(GroundParameters, "smoothing")] = GEAR_LAMBDA,
    threshold: Annotated[float | None, option_of(GroundParameters, "threshold")] = None,
    mock: Annotated[str, Option(help="Tools ranked by their stored example response, with commas, or all")] = "",
    date_: Annotated[str, option_of(WritingOptions, "date")] = "",
    answer: Annotated[bool, Option("--answer", help="Also answer: one call of the large LM, then the tool")] = False,
    as_json: AsJson = False,
) -> None:
    """Rank the tools for a query: both scores, each tool's preliminary answer, and why the first one is chosen.

    Example: toolformer ground query "How many kilometres are 26.2 miles?" --tools calculator,qa --tool units --answer
    """
    prepare_environment()
    from toolformer_core import load_model
    from toolformer_core.api import grounding as api

    chosen = list(build_chosen(tools).values())
    keys = [key for part in mock.split(",") if (key := part.strip())]
    options = api.GroundingOptions(
        gamma=gamma,
        smoothing=smoothing,
        threshold=threshold,
        encoder=encoder,
        patterns=patterns,
        mock=True if keys == ["all"] else keys,
        context=iso_date(date_),
    )
    small = load_model(model)
    if answer:
        large = small if large_model in (None, model) else load_model(str(large_model))
        result: Any = api.answer(query, chosen, small, large, **options)
    else:
        result = api.ground(query, chosen, small, **options)
    from cli.render.grounding import print_ranking

    print_json(result) if as_json else print_ranking(result)


@ground_app.command("benchmarks")
@with_options(GroundParameters)
def ground_benchmarks(parameters: GroundParameters, runner: Runner = None, as_json: AsJson = False) -> None:
    """Choose tools for the queries of benchmarks by GEAR, and answer them. Run it again to resume.

    Example: toolformer ground benchmarks --task svamp=SVAMP.json --task nq=NQ.jsonl --limit 200
    """
    result = run_flow("flows.ground", "run_ground", parameters, runner, quiet=as_json)
    if as_json:
        from flows.ground.tables import grounding_tables

        print_json({**asdict(result), "tables": grounding_tables(result)})
    else:
        from cli.render.grounding import print_grounding

        print_grounding(result)
