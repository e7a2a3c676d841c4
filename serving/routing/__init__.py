"""GEAR as the router of the server: which tool answers a chat, one of the server's own or one of the client's.

    schemas        what a request may say when the router is on
    client_tools   a client's function tool, and how the text of a call becomes arguments that fit its schema
    conversation   messages with calls and results of client's tools, as turns
    model_access   requests to the engine's thread (texts, embeddings), and how a call is read from a text
    router         ranks the tools, and has the chosen one called
    writers        the response: a call for the client, or an answer with the call that led to it
    chat           puts these together for one request

Nothing of it has an effect where `--router` is off.
"""
