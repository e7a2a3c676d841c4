"""The parameters of a build's run as its manifest holds them: those of the form, and what the build found out."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from flows.build_dataset.parameters import BuildParameters
from tasks.specs.build_spec import BuildSpec
from tasks.specs.rating_filter import RatingFilter
from toolformer_core.annotate.decoys import Estimate, FoundThreshold
from toolformer_core.lm.remote.identity import RemoteModel
from warehouse.store import Store

_FOUND = "found_thresholds"
_REMOTE = "remote_model"
_FOUND_OUT = ("ratings_until", _REMOTE, _FOUND)  # say when, where and what came out, not what was requested


@dataclass(frozen=True, slots=True)
class BuildRecord:
    parameters: Mapping[str, Any]  # of the run's manifest

    @classmethod
    def begun(cls, p: BuildParameters, spec: BuildSpec) -> Self:
        """Return the record of a build that begins."""
        found = {
            "data": spec.store().root,  # a URL may hold keys
            "tool_names": dict(spec.tool_names),
            "shard_documents": spec.ingest.shard_documents,  # what `auto` came to
            **_rated(spec.rating_filter),
            **({_REMOTE: spec.remote.as_json()} if spec.remote is not None else {}),
        }
        return cls({**p.model_dump(mode="json"), **found})

    @classmethod
    def of_run(cls, store: Store, run_id: str) -> Self:
        """Return the record of a run; an empty one if the run is gone."""
        return cls(next((run.parameters for run in store.runs([run_id])), {}))

    def with_found(self, found: Sequence[FoundThreshold]) -> Self:
        """Return the record with the thresholds that were found for promised rates."""
        return replace(self, parameters={**self.parameters, _FOUND: [asdict(one) for one in found]}) if found else self

    def assembled_anew(self, rating_filter: RatingFilter | None, **changes: Any) -> Self:
        """Return the record of an assembly of the same scores, with parameters changed."""
        changes["ratings"] = "all" if rating_filter is None else rating_filter.keep
        return replace(self, parameters={**self.parameters, **_rated(rating_filter), **changes})

    @property
    def tool_names(self) -> dict[str, str]:
        return dict(self.parameters.get("tool_names", {}))

    @property
    def tools(self) -> list[str]:
        """The build's tools as they were named: keys, and references to others' tools."""
        return [*self.parameters.get("tools", ()), *self.parameters.get("tool", ())]

    @property
    def remote(self) -> RemoteModel | None:
        """Which model the server served; None: it was loaded here."""
        given = self.parameters.get(_REMOTE)
        return RemoteModel.from_json(given) if given else None

    @property
    def found(self) -> list[FoundThreshold]:
        """The thresholds that were found for promised rates of false discoveries."""
        return [FoundThreshold(**{**one, "at": Estimate(**one["at"])}) for one in self.parameters.get(_FOUND, ())]

    def requested(self, *without: str) -> dict[str, Any]:
        """Return the parameters that were given, without some."""
        return {name: one for name, one in self.parameters.items() if name not in (*_FOUND_OUT, *without)}


def _rated(rating_filter: RatingFilter | None) -> dict[str, str]:
    return {} if rating_filter is None else {"ratings_until": rating_filter.until}
