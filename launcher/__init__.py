"""The ``sparse-ring-run`` command: starts the ranks under the MPI that is there and leaves nothing behind.

How the processes hang together (one host)::

    sparse-ring-run ── mpiexec ── (its proxy) ── stub ── supervisor ── the rank's command
         │                                                   │
         └──────────── a Unix socket for each rank ──────────┘

MPI starts one :mod:`stub <sparse_ring.launcher.rank>` a rank. The stub only stands where MPI expects its process; its
supervisor runs the command, in a session that MPI's own clean-up does not reach, so that every end is seen with its
true exit code and every rank gets SIGTERM and time before SIGKILL. The rank's output pipes travel over the socket to
the launcher, which therefore knows whose bytes it reads; what mpiexec prints is MPI's own.

Whoever disappears is noticed by its neighbours through a closed socket or pipe (the command itself through the
kernel's parent-death signal), so the tree ends whichever process is killed.

main.py is the command line, mpi.py finds MPI, job.py watches the ranks, control.py is what stub and launcher say to
each other, rank.py is the stub, output.py turns bytes into lines, processes.py asks the kernel, report.py has a page made of
the ranks' metrics.
"""
