"""The commands, a module for each or for a few alike; `cli.main` registers them."""
