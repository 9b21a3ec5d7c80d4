"""Bytes over torch.distributed's gloo, for jobs that torchrun starts; ``c10d.py`` is the transport, ``world.py`` the job."""
