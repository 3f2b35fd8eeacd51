"""Registers the probes in a worker process (JOBQUEUE_EXECUTORS names this module)."""

from jobqueue.executors import register
from tests.worker.probes import PROBES

for name, probe in PROBES.items():
    register(name, probe)
