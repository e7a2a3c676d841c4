"""The flow `bootstrap`: rounds of annotation and finetuning, each with the model that the last one has taught.

A round is a build, a training and evaluations, the flows of those names. All of them find finished work done, so a
bootstrap that was killed and is started again goes on where it was, and makes the same datasets. How a round's flows
work is not known here.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import pairwise

from prefect import flow, get_run_logger

from flows.artifacts import publish_link, publish_summary, run_name_from
from flows.bootstrap.parameters import BootstrapParameters, check_rounds, of_build, of_evaluations, of_training
from flows.bootstrap.rounds import Round, gain_of, round_of
from flows.bootstrap.tracking import RoundsRun
from flows.build_dataset.flow import build_dataset
from flows.build_dataset.resolve import resolve as resolve_build
from flows.build_dataset.tracking import track_build_if_in_use
from flows.evaluate.flow import evaluate
from flows.finetune.flow import finetune
from flows.runners import choose_runner
from flows.server import guard_prefect_server, record_server
from flows.stopping import restore_stop_handler
from tasks.environment import prepare_environment
from warehouse.store import Store

__all__ = ["BootstrapResult", "bootstrap", "run_bootstrap"]


@dataclass(frozen=True, slots=True)
class BootstrapResult:
    """The result of a bootstrap."""

    rounds: tuple[Round, ...]
    stopped: str  # why no further round was begun
    seconds: float
    gains: tuple[float, ...] = field(default=())  # of each round but the first, as `gain_of` has it


@flow(name="bootstrap", flow_run_name=run_name_from("bootstrap {dataset} from {corpus} with {model}, {rounds} rounds"))
def bootstrap(parameters: BootstrapParameters) -> BootstrapResult:
    """Teach a model in rounds: annotate, finetune, and annotate again with what was taught.

    Args:
        parameters: corpus, models, tools, thresholds, recipe, and how many rounds.
    """
    begin = time.monotonic()
    prepare_environment()
    record_server()
    restore_stop_handler()
    check_rounds(parameters)
    resolve_build(of_build(parameters, 0, parameters.model), run_id="check")
    store = Store(parameters.data)
    run = RoundsRun(parameters, store)
    rounds: list[Round] = []
    try:
        stopped = _run_rounds(parameters, store, run, rounds)
    except BaseException:
        run.finish("FAILED")
        raise
    run.finish("FINISHED")
    gains = tuple(gain_of(*pair) for pair in pairwise(rounds))
    publish_link(run.address, "bootstrap-mlflow-run", "The run in MLflow")
    return BootstrapResult(tuple(rounds), stopped, time.monotonic() - begin, gains)


def _run_rounds(p: BootstrapParameters, store: Store, run: RoundsRun, rounds: list[Round]) -> str:
    """Add rounds until one is the last; return why it is."""
    sampler = p.model
    while len(rounds) < p.rounds:
        one, children, sampler = _run_round(p, store, len(rounds), sampler)
        rounds.append(one)
        run.add(rounds, children)
        publish_summary(rounds_card(rounds), "rounds")
        if not one.examples:
            return f"round {one.number} kept no call"
        if len(rounds) > 1 and (gain := gain_of(*rounds[-2:])) <= p.min_gain:
            return f"round {one.number} gained {gain:+.4g}, no more than {p.min_gain:g}"
        get_run_logger().info("round %d: %d examples of %d documents", one.number, one.examples, one.documents)
    return f"{p.rounds} rounds are done"


def _run_round(p: BootstrapParameters, store: Store, number: int, sampler: str) -> tuple[Round, list[str], str]:
    """Run one round; return it, the MLflow runs that it made, and the model that the next one samples with."""
    asked = of_build(p, number, sampler)
    models = sampler, asked.score_model or sampler
    built = build_dataset(asked)
    label = f"{built.dataset}@{built.version}"
    if not built.examples:
        return round_of(store, number, models, built, None, []), [], sampler
    trained = finetune(of_training(p, label))
    evaluated = [evaluate(one) for one in of_evaluations(p, trained.folder)]
    dataset = next(d for d in store.datasets() if (d.name, d.version) == (built.dataset, built.version))
    tracked = track_build_if_in_use(store, p.data, dataset)
    children = [tracked[0] if tracked else "", trained.run_id, *(one.mlflow_run for one in evaluated)]
    return round_of(store, number, models, built, trained, evaluated), children, trained.model


def rounds_card(rounds: list[Round]) -> str:
    """Return a table of rounds in Markdown, one row each."""

    def share(value: float | None) -> str:
        return "" if value is None else f"{value:.3f}"

    head = ["round", "sampled by", "examples", "well-formed", "calls / 1,000 documents", "calls / million tokens"]
    head += ["dev perplexity", *(f"{name} {task}" for task in rounds[0].answers for name in ("accuracy", "disabled"))]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for one in rounds:
        cells = [str(one.number), f"`{one.sampled_by}`", f"{one.examples:,}"]
        cells += [share(one.well_formed / one.draws if one.draws else None)]
        cells += [f"{one.calls_per_thousand:.1f}", f"{one.calls_per_million_tokens:.1f}", share(one.dev_perplexity)]
        for task in rounds[0].answers:
            answers = one.answers.get(task)
            cells += [share(answers.accuracy if answers else None), share(answers.disabled if answers else None)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def run_bootstrap(parameters: BootstrapParameters, runner: str | None = None) -> BootstrapResult:
    """Run the flow in this process.

    Args:
        runner: `threads`, `dask` (a local cluster of `parameters.workers` processes), or a Dask scheduler's address;
            default: as $TOOLFORMER_RUNNER says, else threads.

    Raises:
        UsageError: something asked for is wrong.
    """
    guard_prefect_server()
    with choose_runner(runner):
        return bootstrap(parameters)
