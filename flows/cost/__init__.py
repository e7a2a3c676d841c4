"""What a run costs by numbers: assumptions with an origin each, a sample build's counters, and plain arithmetic."""
