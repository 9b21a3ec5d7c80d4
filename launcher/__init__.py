"""The ``sparse-ring-run`` command: starts the ranks under the MPI that is there and leaves nothing behind.

How the processes hang together::

    sparse-ring-run ── mpiexec or srun ── (ssh, daemon) ── stub ── supervisor ── the rank's command
         │                                                             │
         └───── a Unix socket for each rank; TCP on several hosts ─────┘

MPI starts one :mod:`stub <sparse_ring.launcher.rank>` a rank. The stub only stands where MPI expects its process; its
supervisor runs the command, in a session that MPI's own clean-up does not reach, so that every end is seen with its
true exit code and every rank gets SIGTERM and time before SIGKILL. The rank's output pipes travel over the Unix socket to
the launcher, or their bytes over TCP; it therefore knows whose bytes it reads; what mpiexec prints is MPI's own.

Whoever disappears is noticed by its neighbours through a closed socket or pipe (the command itself through the
kernel's parent-death signal), so the tree ends whichever process is killed.

main.py goes from the command line (options.py) to a job; hosts.py knows where ranks go. base.py is what an MPI must be
able to say, hydra.py, openmpi.py and slurm.py say it, mpi.py finds the one that is there. job.py watches the ranks:
wires.py holds the connections, ranks.py names who failed first. control.py is what stub and launcher say to each other,
listen.py the launcher's side of it, uplink.py the supervisor's; rank.py is the stub. output.py turns bytes into lines,
files.py copies them, lastwords.py keeps a rank's traceback; check.py is ``--check-build``; report.py has a page made
of the ranks' metrics; processes.py asks the kernel.
"""
