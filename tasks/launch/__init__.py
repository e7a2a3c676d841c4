"""How a training program is started where the GPUs are: on this machine, over SSH, by Slurm or by Kubernetes."""
