"""The commands, a module for each or for a few alike; `cli.main` registers them.

Each imports what it needs when it runs, and reports mistakes before a model is loaded or anything is started.
"""
