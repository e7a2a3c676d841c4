"""The list of stages, from which plans, tasks, progress and figures are derived.

    ingest      corpus             -> documents, cut into shards
    prefilter   documents          -> prefilter results    per tool and shard
    sample      + those kept       -> samples              per tool and shard   (asks the model)
    execute     + samples          -> responses            per tool and shard   (asks the tool)
    score       + responses        -> losses               per tool and shard   (asks the model)
    sample_2 ... score_2, sample_3 ...                     the same for chains of calls
    assemble    + losses           -> examples of C*       per shard, all tools

To add a stage, write a file here that declares it and add it to a list, after the stages that it reads.
"""

from typing import Any

from tasks.shards.stage import Stage
from tasks.specs.build_spec import BuildSpec
from tasks.stages.answer_grounded import ANSWER_GROUNDED
from tasks.stages.assemble import ASSEMBLE
from tasks.stages.benchmark import BENCHMARK
from tasks.stages.evaluate import EVALUATE, PERPLEXITY
from tasks.stages.execute import EXECUTE, execute_stage
from tasks.stages.extend import extend_stage
from tasks.stages.ground import CHOOSE, GROUND
from tasks.stages.ingest import INGEST
from tasks.stages.prefilter import PREFILTER
from tasks.stages.sample import SAMPLE
from tasks.stages.score import SCORE, score_stage
from toolformer_core.config import MAX_CHAIN_DEPTH

_CHAINS = [
    stage
    for depth in range(2, MAX_CHAIN_DEPTH + 1)
    for stage in (extend_stage(depth), execute_stage(depth), score_stage(depth))
]
BUILD_STAGES: list[Stage[Any]] = [INGEST, PREFILTER, SAMPLE, EXECUTE, SCORE, *_CHAINS, ASSEMBLE]
EVALUATION_STAGES: list[Stage[Any]] = [BENCHMARK, EVALUATE, PERPLEXITY, GROUND, CHOOSE, ANSWER_GROUNDED]


def build_stages(spec: BuildSpec, per: str = "") -> list[Stage[Any]]:
    """Return the stages that a build has, in order: all, or those that run per `source`, per `tool` or per `shard`."""
    return [stage for stage in BUILD_STAGES if stage.wanted(spec) and per in ("", stage.per)]
