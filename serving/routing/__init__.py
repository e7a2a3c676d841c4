"""GEAR as the router of the server: which tool answers a chat, one of the server's own or one of the client's."""
