"""Compression of what is sent, from farandole_tensorflow."""

from farandole_tensorflow import Compression

from horovod.common.compression import Compressor

NoneCompressor = Compression.none
FP16Compressor = Compression.fp16
