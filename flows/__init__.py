"""What runs when: thin flows over tasks."""
