"""Training jobs: their folder, launch and progress, and the names of finished checkpoints."""
