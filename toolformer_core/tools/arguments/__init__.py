"""A call's input text becomes the arguments of a tool: of an MCP server, a client or a Python function."""
