"""A page's values for its template, from the data and the query string.

A page raises `WrongQueryError` for a wrong value, `NotThereError` where the data does not hold what is named,
`UsageError` until something is scored, and `WarehouseError` where snapshot or data cannot be read.
"""
