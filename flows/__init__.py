"""What runs when: thin flows over tasks, and the command line on top of them."""
