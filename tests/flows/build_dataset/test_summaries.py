"""What a flow run says at its end, worked out by hand."""

from __future__ import annotations

from flows.build_dataset.summary import build_summary, histograms, lineage_graph
from warehouse.commits import DataFile, Dataset
from warehouse.queries import GainBin, StageBalance

DATASET = Dataset(
    name="cstar",
    version="0123",
    files=(DataFile("a.parquet", "d", 3, 100), DataFile("b.parquet", "e", 4, 100)),
    counts={"calculator": 5, "qa": 2},
    thresholds={"calculator": 0.5, "qa": 1.0},
    run_id="r1",
    model="embedded",
    corpus='/data/my "best" <texts>.jsonl',
    created="2024-01-01",
)
BALANCES = (
    StageBalance("ingest", "", "rows", 1, 1200, 1100),
    StageBalance("prefilter", "calculator", "documents", 2, 1100, 40),
    StageBalance("prefilter", "qa", "documents", 2, 1100, 1100),
    StageBalance("sample", "calculator", "documents", 2, 40, 30),
    StageBalance("sample", "calculator", "draws", 2, 300, 90),
    StageBalance("assemble", "", "documents", 2, 1100, 7),
)


def test_the_graph_leads_from_the_corpus_through_every_tool_to_the_dataset() -> None:
    assert lineage_graph(DATASET, BALANCES) == "\n".join(
        [
            "flowchart LR",
            "    corpus[(\"my 'best' ‹texts›.jsonl\")]",
            '    ingest["ingest<br/>rows 1,200 → 1,100"]',
            '    prefilter_calculator["prefilter calculator<br/>documents 1,100 → 40"]',
            '    prefilter_qa["prefilter qa<br/>documents 1,100 → 1,100"]',
            '    sample_calculator["sample calculator<br/>documents 40 → 30<br/>draws 300 → 90"]',
            '    assemble["assemble<br/>documents 1,100 → 7"]',
            '    dataset[("cstar@0123<br/>7 examples")]',  # 3 + 4
            "    corpus --> ingest",
            "    ingest --> prefilter_calculator",
            "    prefilter_calculator --> sample_calculator",
            "    sample_calculator --> assemble",
            "    assemble --> dataset",
            "    ingest --> prefilter_qa",
            "    prefilter_qa --> assemble",
        ]
    )


def test_a_histogram_is_scaled_to_its_longest_bar_and_marks_what_is_kept() -> None:
    gains = [
        GainBin("calculator", None, 0.0, 80),
        GainBin("calculator", 0.0, 0.5, 1),
        GainBin("calculator", 0.5, 1.0, 0),
        GainBin("calculator", 1.0, None, 40),
    ]
    # 40 characters for 80 calls: half a character a call, rounded up, so that a single call is seen
    assert histograms(gains, {"calculator": 0.5}).splitlines() == [
        "calculator: 121 calls, tau_f 0.5",
        "     below +0.0 " + "█" * 40 + " 80",
        "   +0.0 to +0.5 █" + " " * 39 + " 1",
        ">  +0.5 to +1.0 " + " " * 40 + " 0",
        "> +1.0 and more " + "█" * 20 + " " * 20 + " 40",
    ]
    assert histograms([], {}) == "No call was scored."


def test_the_summary_holds_card_graph_histogram_and_the_way_on() -> None:
    text = build_summary("# cstar@0123\n", DATASET, BALANCES, [], "/data/warehouse.duckdb", "run 12ab")
    assert text.startswith("# cstar@0123\n\n## Lineage\n")
    assert "```mermaid\nflowchart LR\n" in text
    assert "No call was scored." in text
    assert text.endswith("- `toolformer sql 'FROM yield_by_threshold' --data /data`\n- MLflow: run 12ab\n")
    assert "MLflow" not in build_summary("# c\n", DATASET, (), [], "w", "")
