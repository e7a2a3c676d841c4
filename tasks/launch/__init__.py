"""How a training program is started where the GPUs are: on this machine, over SSH, by Slurm or by Kubernetes.

    base.py         what they share: `LaunchRequest`, the protocol `Launcher`, `LaunchError`, and running commands
    processes.py    processes of this machine that outlive their starter, and are found again
    local.py ssh.py slurm.py kubernetes.py    one launcher each

Launchers know no losses, data sets or trackers: they start a program in a job folder, report its state, and end it.
"""
