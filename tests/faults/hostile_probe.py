"""The executors of the worker's own tests, under other names."""

from jobqueue.executors import register
from tests.worker.probes import PROBES

register("hostile_probe", PROBES["probe"])
register("hostile_typed_probe", PROBES["typed_probe"])
register("hostile_thread_probe", PROBES["thread_probe"])
