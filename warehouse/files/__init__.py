"""File operations for the store: files are written completely or not at all, locally or in an object store."""
