"""What came of what, as OpenLineage events: corpus, stages, C*, checkpoints, exports, evaluations.

Events are made from the stored records alone, which never change: the same records give the same events, byte for byte.
"""
