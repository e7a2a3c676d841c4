"""One idempotent unit of work on one shard, and the places where the outside world is met."""
