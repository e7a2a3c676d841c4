"""C* leaves the warehouse: as text, as JSONL, for `datasets`, and in the forms that trainers read.

parameters the one declaration of form and options
flow       the flow `export`, with progress and a table of what was written
delivery   what flow and command have in common: from the form to the files and the hub
find       a dataset by its name
settings   the options of an export, and which of them may stand together
formats    examples as the rows of each format, and what writes them
run        the export: data, dev split, card and manifest, all or nothing
card       the card, in the hub's form, and the manifest
hub        a dataset repository on the Hugging Face hub: looked at, then pushed to
previews   some examples, with what is trained and what is not
"""
