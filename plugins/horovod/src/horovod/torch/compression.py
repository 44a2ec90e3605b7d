"""Compression of what is sent, from farandole_torch."""

from farandole_torch import Compression

from horovod.common.compression import Compressor

NoneCompressor = Compression.none
FP16Compressor = Compression.fp16
