"""Commands that use a model: `text` has generate and chat, `serve` the server, `router_options` its choice of tools.

They report mistakes before a model is loaded.
"""
