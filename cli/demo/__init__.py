"""The demo: the whole loop once, small. `command` runs it, `parameters` says with what."""
