"""The published snapshot: its views, its index, how it is written, and how it is packed into one file."""
