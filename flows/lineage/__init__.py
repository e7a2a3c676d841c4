"""What came of what, as OpenLineage events, made from stored records: the same give the same, byte for byte."""
