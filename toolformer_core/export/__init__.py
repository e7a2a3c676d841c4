"""C* in the forms that trainers read.

    pieces         an example as text, calls and responses: what is trained and what is not; axolotl's segments
    tokens         one tokenization of x*, with labels
    conversation   the rule that makes turns of an example, and the reasons for which an example has none
    schemas        what a chat row says of a tool
    dialects       turns as OpenAI and TRL, LLaMA-Factory, or a chat template write them
    restore        x* back from a row

Pure functions of examples, tokenizers and tools: no files, no stores.
"""
