"""What a flow run says at its end, worked out by hand."""

from flows.build_dataset.flow import build_summary
from warehouse.queries import StageBalance

BALANCES = (
    StageBalance("ingest", "", "rows", 1, 1200, 1100),
    StageBalance("prefilter", "calculator", "documents", 2, 1100, 40),
    StageBalance("prefilter", "qa", "documents", 2, 1100, 1100),
    StageBalance("sample", "calculator", "documents", 2, 40, 30),
    StageBalance("sample", "calculator", "draws", 2, 300, 90),
    StageBalance("assemble", "", "documents", 2, 1100, 7),
)


def test_the_summary_holds_card_rows_gains_and_the_way_on() -> None:
    text = build_summary("# cstar@0123\n", BALANCES, "![gains](data:)", "/data/warehouse.duckdb", "run 12ab")
    assert text.startswith("# cstar@0123\n\n## Rows by stage\n")
    assert (
        "| stage | tool | unit | in | kept |\n| --- | --- | --- | --- | --- |\n| ingest |  | rows | 1,200 | 1,100 |\n"
        in text
    )
    assert "\n\n![gains](data:)\n\n" in text
    assert text.endswith("- `toolformer sql 'FROM yield_by_threshold' --data /data`\n- MLflow: run 12ab\n")
    empty = build_summary("# c\n", (), "", "w", "", ["why"])
    assert "MLflow" not in empty
    assert "\n- why\n" in empty
    assert "No call was scored." in empty
