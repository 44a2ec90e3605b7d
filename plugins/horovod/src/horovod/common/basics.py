"""HorovodBasics: the functions that need no framework, from farandole, as methods."""

from __future__ import annotations

import farandole

from horovod._environment import reading_settings


class HorovodBasics:
    """The functions of `farandole` about the world and what is built."""

    def __init__(self, pkg_path: str = "", *args: str) -> None:
        """The arguments name a compiled library of Horovod's; here there is one for all, and they have no effect."""

    init = staticmethod(reading_settings(farandole.init))
    shutdown = staticmethod(farandole.shutdown)
    is_initialized = staticmethod(farandole.is_initialized)
    start_timeline = staticmethod(farandole.start_timeline)
    stop_timeline = staticmethod(farandole.stop_timeline)
    size = staticmethod(farandole.size)
    local_size = staticmethod(farandole.local_size)
    cross_size = staticmethod(farandole.cross_size)
    rank = staticmethod(farandole.rank)
    local_rank = staticmethod(farandole.local_rank)
    cross_rank = staticmethod(farandole.cross_rank)
    is_homogeneous = staticmethod(farandole.is_homogeneous)
    mpi_threads_supported = staticmethod(farandole.mpi_threads_supported)
    mpi_enabled = staticmethod(farandole.mpi_enabled)
    mpi_built = staticmethod(farandole.mpi_built)
    gloo_enabled = staticmethod(farandole.gloo_enabled)
    gloo_built = staticmethod(farandole.gloo_built)
    nccl_built = staticmethod(farandole.nccl_built)
    ddl_built = staticmethod(farandole.ddl_built)
    ccl_built = staticmethod(farandole.ccl_built)
    cuda_built = staticmethod(farandole.cuda_built)
    rocm_built = staticmethod(farandole.rocm_built)
