"""What a person sees of a command: progress, summaries, answers and tables. It prints and knows nothing else."""
