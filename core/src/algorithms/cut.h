// Where the blocks of every chunk lie in the data. Arithmetic only; values, any thread.
//
// Elements (reductions, broadcasts) are cut to chunks, and every chunk to blocks of nearly equal size:
//
//   data     [ chunk 0: block 0 | block 1 | block 2 ][ chunk 1: block 0 | block 1 | block 2 ]
//
// Given blocks (allgather, where every participant brings its own size) keep their places, and chunk t is the t-th
// window of each of them; short blocks run out earlier:
//
//   data     [ block 0: window 0 | window 1 ][ block 1: window 0 ][ block 2: window 0 | window 1 ]
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "algorithms/schedule.h"

namespace farandole {

// Blocks of 256 KB, but no more than 1 MB in all: what is sent is still in the cache when it is received and folded.
// Two participants over loopback TCP, 16 MB, blocks of 128 | 256 | 512 KB | 1 MB: 3.27 | 3.14 | 3.2 - 3.5 | 5.0 - 6.0
// ms; 1 MB, blocks of 64 | 128 | 256 | 512 KB: 184 | 151 | 136 | 124 - 268 us.
size_t DefaultChunkBytes(int block_count);

class Cut {
 public:
  Cut() = default;  // nothing: no chunks

  // `chunk_bytes` is the most bytes of one chunk over all its blocks, except that a block gets no less than 64; 0
  // stands for DefaultChunkBytes.
  static Cut OfElements(int64_t element_count, size_t element_bytes, int block_count, size_t chunk_bytes);

  // `blocks` are ranges of bytes.
  static Cut OfBlocks(std::vector<Range> blocks, size_t chunk_bytes);

  int64_t chunk_count() const { return chunk_count_; }
  size_t largest_block_bytes() const { return largest_block_bytes_; }
  Range Bytes(int64_t chunk, int block) const;  // may be empty

 private:
  int64_t chunk_count_ = 0;
  size_t largest_block_bytes_ = 0;
  // Elements.
  int64_t element_count_ = 0;
  int64_t element_bytes_ = 1;
  int block_count_ = 1;
  int64_t chunk_elements_ = 0;
  // Given blocks; empty for elements.
  std::vector<Range> blocks_;
  int64_t window_bytes_ = 0;
};

}  // namespace farandole
