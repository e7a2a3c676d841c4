"""What rounds cost, by numbers, before any of them is begun: see `flows.cost`.

Every round annotates the whole corpus and trains once, so that all cost what the first one does: at most, as later
rounds find the corpus read and many of their tools' answers known.
"""

from __future__ import annotations

from dataclasses import dataclass

from flows.bootstrap.parameters import BootstrapParameters, check_rounds, of_build
from flows.build_dataset.plan import plan_build
from flows.cost.of_build import cost_of_build

__all__ = ["RoundsPlan", "plan_rounds"]

_RECIPE = ("steps", "batch", "sequence_length", "evaluate_every", "dev_documents")  # what the cost of a training needs


@dataclass(frozen=True, slots=True)
class RoundsPlan:
    """The cost of one round, in a form that can be multiplied."""

    rounds: int
    documents: int
    lm_tokens: float  # of sampling and scoring
    tool_calls: float
    annotation_hours: float  # on the clock of this machine
    trained_tokens: float
    training_hours: float

    def times(self, rounds: int) -> RoundsPlan:
        """Return the cost of so many rounds."""
        return RoundsPlan(
            rounds,
            self.documents,
            rounds * self.lm_tokens,
            rounds * self.tool_calls,
            rounds * self.annotation_hours,
            rounds * self.trained_tokens,
            rounds * self.training_hours,
        )


def plan_rounds(p: BootstrapParameters) -> RoundsPlan:
    """Return what all rounds cost at most. No model is loaded, no tool is asked, and nothing is written.

    Raises:
        UsageError: something asked for is wrong.
    """
    check_rounds(p)
    first = of_build(p, 0, p.model)
    documents = plan_build(first).documents
    cost = cost_of_build(first, documents, assume=[f"{name}={getattr(p, name)}" for name in _RECIPE])
    one = RoundsPlan(
        rounds=1,
        documents=documents,
        lm_tokens=cost.sum("lm_tokens"),
        tool_calls=cost.sum("tool_calls"),
        annotation_hours=cost.wall_hours,
        trained_tokens=cost.training.trained_tokens,
        training_hours=cost.training.hours,
    )
    return one.times(p.rounds)
