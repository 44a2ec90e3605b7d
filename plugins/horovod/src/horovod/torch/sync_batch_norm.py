"""SyncBatchNorm, from farandole_torch."""

from farandole_torch import SyncBatchNorm
