"""SyncBatchNormalization, from farandole_tensorflow. Its import takes as long as Keras's."""

from farandole_tensorflow import SyncBatchNormalization
