"""C* leaves the warehouse: as text, as JSONL, for `datasets`, and in the forms that trainers read.

find       a dataset by its name
settings   the options of an export, and which of them may stand together
tools      what a chat row says of a dataset's tools
formats    examples as the rows of each format, and what writes them
run        the export: data, dev split, card and manifest, all or nothing
card       the card, in the hub's form, and the manifest
preview    some examples, with what is trained and what is not
"""

from flows.export.find import find_dataset
from flows.export.preview import Preview, preview
from flows.export.run import ExportResult, export_dataset, export_to
from flows.export.settings import SEPARATOR, ExportSettings

__all__ = [
    "SEPARATOR",
    "ExportResult",
    "ExportSettings",
    "Preview",
    "export_dataset",
    "export_to",
    "find_dataset",
    "preview",
]
