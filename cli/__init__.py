"""The command line, `toolformer`: one module a group of commands, their output beside them."""
