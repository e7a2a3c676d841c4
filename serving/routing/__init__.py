"""GEAR as the router of the server: which tool answers a chat, one of the server's own or one of the client's.

`chat` puts the other modules together for one request. Nothing of it has an effect where `--router` is off.
"""
