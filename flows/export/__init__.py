"""C* leaves the warehouse: as text, as JSONL, for `datasets`, and in the forms that trainers read.

parameters the one declaration of form and options
flow       the flow `export`, with progress and a table of what was written
delivery   what flow and command have in common: from the form to the files and the hub
find       a dataset by its name
settings   the options of an export, and which of them may stand together
tools      what a chat row says of a dataset's tools
formats    examples as the rows of each format, and what writes them
run        the export: data, dev split, card and manifest, all or nothing
card       the card, in the hub's form, and the manifest
earlier    an export that was written earlier, for a push that is repeated
hub        a dataset repository on the Hugging Face hub: looked at, then pushed to
previews   some examples, with what is trained and what is not

The names in `__all__` are imported when the first of them is used: the command line's help needs the parameters alone.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flows.export.delivery import deliver
    from flows.export.find import find_dataset
    from flows.export.parameters import ExportParameters
    from flows.export.previews import Preview, preview
    from flows.export.run import ExportResult, export_dataset, export_to
    from flows.export.settings import SEPARATOR, ExportSettings
else:
    _MODULES = {
        "deliver": "delivery",
        "find_dataset": "find",
        "ExportParameters": "parameters",
        "Preview": "previews",
        "preview": "previews",
        "ExportResult": "run",
        "export_dataset": "run",
        "export_to": "run",
        "SEPARATOR": "settings",
        "ExportSettings": "settings",
    }

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


__all__ = [
    "SEPARATOR",
    "ExportParameters",
    "ExportResult",
    "ExportSettings",
    "Preview",
    "deliver",
    "export_dataset",
    "export_to",
    "find_dataset",
    "preview",
]
