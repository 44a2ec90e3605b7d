"""Compression of what is sent, from farandole_mxnet."""

from farandole_mxnet import Compression

from horovod.common.compression import Compressor

NoneCompressor = Compression.none
FP16Compressor = Compression.fp16
