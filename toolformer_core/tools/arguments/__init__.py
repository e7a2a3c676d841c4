"""A call's input text becomes the arguments of a tool: of an MCP server, a client or a Python function.

form           how an input is written and read, by the JSON schema of the arguments (values: one value)
signature      the schema of a Python function, from its annotations, and the values that it is called with
"""
