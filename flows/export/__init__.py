"""C* leaves the warehouse: as text, as JSONL, for `datasets`, and in the forms that trainers read."""
