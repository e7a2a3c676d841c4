"""The chapter of docs/beyond.md on chains, from the figures of all seeds. Nothing is measured here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.beyond.pooled import Share, each, summed
from benchmarks.small_world import spread, table

__all__ = ["chains_chapter"]

_ARMS = {
    ("chained", "toolformer 2"): "chains, two calls",
    ("chained", "toolformer 3"): "chains, three",
    ("chained", "toolformer 1"): "chains, one",
    ("single", "toolformer 2"): "single calls, two",
    ("single", "toolformer 3"): "single calls, three",
    ("single", "toolformer 1"): "single calls, one",
    ("chained", "toolformer-disabled 1"): "disabled",
}


def chains_chapter(seeds: Mapping[str, Any]) -> list[str]:
    """Return the chapter on chains.

    Args:
        seeds: seed -> what `chained.chained` returned.
    """
    sizes = next(each(seeds, "sizes"))
    lines, kept = [], []
    rows = next(each(seeds, "chained", "answers", "toolformer 2"))
    for new in (False, True):
        for family in dict.fromkeys(row["family"] for row in rows):
            line = ["new" if new else "known", family]
            for name, arm in _ARMS:
                share = _share(
                    each(seeds, name, "answers", arm), lambda r, f=family, n=new: (r["family"], r["new"]) == (f, n)
                )
                line.append(share.percent() if share else "-")
            lines.append(line)
        line = ["new" if new else "known", "all"]
        for name, arm in _ARMS:
            line.append(spread((_percent(one[name]["answers"][arm], new) for one in seeds.values()), 1))
        lines.append(line)
    for group in next(each(seeds, "chained", "gold")):
        counts = summed(each(seeds, "chained", "gold", group))
        recall = Share.of(counts["found"], counts["gold"])
        precision = Share.of(counts["right"], counts["kept"]) if group == "all" else None
        cells = (str(counts["gold"]), precision.percent() if precision else "", recall.percent() if recall else "-")
        kept.append([group, str(counts["kept"]) if group == "all" else "", *cells])
    tokens = spread((one["chained"]["lm_tokens"] / one["single"]["lm_tokens"] for one in seeds.values()), 2)
    return [
        "## Chains",
        f"Models: {', '.join(seeds)}, each the shipped one after a leg of 1.5 M tokens of pretraining, in half of "
        "whose texts calls of invented tools go on from each other. Measured by "
        f"`python -m benchmarks.beyond --part chains`: {sizes['documents']} "
        f"documents, {sizes['steps']} steps of three texts, {sizes['items']} items of each family "
        "and kind of frames; each needs two tools. Percent answered right, k = 10, by what C* holds (chains and single "
        "calls, or single calls alone) and by the calls that an item may have at most; by family all models together, "
        "below that the mean of the models:",
        "\n".join(table(["frames", "family", *_ARMS.values()], lines)),
        "Chains in C* against those that are known. *Precision*: at a known place, with its tools, the last response "
        "holds the value. *Recall*: known places with such a chain.",
        "\n".join(table(["family and frames", "kept", "known places", "precision", "recall"], kept)),
        f"LM tokens of annotation, with chains over without: {tokens}.",
    ]


def _share(arms: Iterable[Sequence[Mapping[str, Any]]], wanted: Any) -> Share | None:
    total = summed({"right": row["right"], "items": row["items"]} for rows in arms for row in rows if wanted(row))
    return Share.of(total.get("right", 0), total.get("items", 0))


def _percent(rows: Sequence[Mapping[str, Any]], new: bool) -> float:
    total = summed({"right": row["right"], "items": row["items"]} for row in rows if row["new"] == new)
    return float(100 * total["right"] / total["items"])
