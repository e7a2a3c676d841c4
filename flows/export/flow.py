"""The flow `export`: C* in files that a trainer reads, from a form; at its end it shows counts and where files lie."""

from prefect import flow, get_run_logger

from flows.export.delivery import deliver
from flows.export.parameters import ExportParameters
from flows.export.run import ExportResult
from flows.report.tables import counted, markdown_table
from flows.runtime.artifacts import WorkProgress, publish_link, publish_summary, run_name_from
from flows.runtime.running import begin_flow
from flows.runtime.server import guard_prefect_server
from tasks.provenance import host


@flow(name="export", flow_run_name=run_name_from("export {dataset} as {format}"))
def export(parameters: ExportParameters) -> ExportResult:
    """Write C* in the format that a trainer reads, with a card and a manifest; push it to the hub on request."""
    begin_flow()
    progress = WorkProgress("export")

    def show(read: int, total: int) -> None:
        progress.show(100.0 * read / max(1, total), f"{read:,} of {total:,} examples read")

    result = deliver(parameters, show)
    progress.show(100.0, f"{result.examples:,} examples written")
    for note in result.notes:
        get_run_logger().warning(note)
    publish_summary(_summary(result), "exported", "The files of the dataset")
    if result.pushed is not None:
        publish_link(result.pushed.url, "export-hub", "The dataset on the hub")
    return result


def _summary(result: ExportResult) -> str:
    rows = [
        ("dataset", result.dataset),
        ("format", result.manifest["format"]),
        ("examples", f"{result.examples:,}"),
        ("of them in the dev split", f"{result.dev:,}"),
        ("left out", counted(result.left_out) or "none"),
        *((name, f"{n:,}") for name, n in result.counts.items()),
        ("machine", host()),
        *(("file", f"`{path}`") for path in result.files),
    ]
    if result.pushed is not None:
        rows += [("repository", result.pushed.url), ("commit", result.pushed.commit)]
    return markdown_table(["", ""], rows)


def run_export(parameters: ExportParameters) -> ExportResult:
    """Run the flow in this process; it raises what `deliver` does."""
    guard_prefect_server()
    return export(parameters)
