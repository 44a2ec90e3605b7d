"""Horovod's settings -> their counterparts here. Pure."""

from __future__ import annotations

from collections.abc import Mapping

# Horovod's setting -> our setting with the same meaning, possibly with another form of values; the first of two wins.
COUNTERPARTS = {
    "HOROVOD_FUSION_THRESHOLD": "FARANDOLE_FUSION_THRESHOLD",
    "HOROVOD_STALL_CHECK_DISABLE": "FARANDOLE_WARN_AFTER",
    "HOROVOD_STALL_CHECK_TIME_SECONDS": "FARANDOLE_WARN_AFTER",
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "FARANDOLE_TIMEOUT",
    "HOROVOD_LOG_LEVEL": "FARANDOLE_LOG_LEVEL",
    "HOROVOD_TIMELINE": "FARANDOLE_TIMELINE",
    "HOROVOD_TIMELINE_MARK_CYCLES": "FARANDOLE_TIMELINE_MARK_CYCLES",
    "HOROVOD_START_TIMEOUT": "FARANDOLE_START_TIMEOUT",
    "HOROVOD_GLOO_TIMEOUT_SECONDS": "FARANDOLE_START_TIMEOUT",
    "HOROVOD_ELASTIC_TIMEOUT": "FARANDOLE_ELASTIC_TIMEOUT",
}
_SETTINGS = {
    **COUNTERPARTS,
    "HOROVOD_FUSION_THRESHOLD": "FARANDOLE_FUSION_THRESHOLD, in bytes",
    "HOROVOD_STALL_CHECK_TIME_SECONDS": "FARANDOLE_WARN_AFTER, in seconds",
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "FARANDOLE_TIMEOUT, in seconds",
    "HOROVOD_STALL_CHECK_DISABLE": "FARANDOLE_WARN_AFTER, a large number of seconds",
    "HOROVOD_TIMELINE": "farandole run --timeline-filename FILE",
    "HOROVOD_TIMELINE_MARK_CYCLES": "farandole run --timeline-mark-cycles",
    "HOROVOD_START_TIMEOUT": "farandole run --start-timeout SECONDS",
    "HOROVOD_GLOO_TIMEOUT_SECONDS": "farandole run --start-timeout SECONDS",
    "HOROVOD_GLOO_IFACE": "farandole run --network-interfaces NAME,...",
    "HOROVOD_CPU_OPERATIONS": "farandole run --backend NAME",
    "HOROVOD_CONTROLLER": "nothing: no MPI is needed",
}


def about_settings(environment: Mapping[str, str]) -> str:
    """Return a sentence about Horovod settings whose Farandole counterpart is not set; "" if there are none."""
    open_ones = [name for name in sorted(_SETTINGS) if COUNTERPARTS.get(name) not in environment]
    found = [f"{name} ({_SETTINGS[name]})" for name in open_ones if environment.get(name)]
    only = "only programs that import horovod read Horovod's settings; here they are in brackets"
    return f"{only}: {'; '.join(found)}." if found else ""
