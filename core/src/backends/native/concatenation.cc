#include "backends/native/concatenation.h"

#include <algorithm>
#include <cstring>

namespace farandole {

void ReadInput(const Segment& segment, size_t offset, size_t size_bytes, void* to) {
  if (size_bytes == 0) return;
  if (segment.input == nullptr) {
    std::memset(to, 0, size_bytes);
  } else {
    std::memcpy(to, static_cast<const char*>(segment.input) + offset, size_bytes);
  }
}

void WriteOutput(const Segment& segment, size_t offset, size_t size_bytes, const void* from) {
  if (size_bytes == 0 || segment.output == nullptr) return;
  char* const to = static_cast<char*>(segment.output) + offset;
  if (to != from) std::memcpy(to, from, size_bytes);
}

Concatenation::Concatenation(const std::vector<Segment>* segments) : segments_(segments) {
  for (const Segment& segment : *segments) {
    begins_.push_back(size_bytes_);
    size_bytes_ += segment.size_bytes;
  }
}

// The last segment that begins at or before the offset.
size_t Concatenation::Find(size_t offset) const {
  return static_cast<size_t>(std::upper_bound(begins_.begin(), begins_.end(), offset) - begins_.begin()) - 1;
}

template <typename Visit>
void Concatenation::ForEachPiece(size_t offset, size_t size_bytes, Visit visit) const {
  size_t passed = 0;
  for (size_t i = Find(offset); passed < size_bytes; ++i) {
    const Segment& segment = (*segments_)[i];
    const size_t within = offset + passed - begins_[i];
    const size_t piece = std::min(segment.size_bytes - within, size_bytes - passed);
    if (piece > 0) visit(segment, within, passed, piece);
    passed += piece;
  }
}

void Concatenation::ReadInput(size_t offset, size_t size_bytes, void* to) const {
  if (size_bytes == 0) return;
  ForEachPiece(offset, size_bytes, [to](const Segment& segment, size_t within, size_t passed, size_t piece) {
    farandole::ReadInput(segment, within, piece, static_cast<char*>(to) + passed);
  });
}

void Concatenation::WriteOutput(size_t offset, size_t size_bytes, const void* from) const {
  if (size_bytes == 0) return;
  ForEachPiece(offset, size_bytes, [from](const Segment& segment, size_t within, size_t passed, size_t piece) {
    farandole::WriteOutput(segment, within, piece, static_cast<const char*>(from) + passed);
  });
}

const void* Concatenation::Input(size_t offset, size_t size_bytes) const {
  if (size_bytes == 0) return nullptr;
  const size_t i = Find(offset);
  const Segment& segment = (*segments_)[i];
  if (segment.input == nullptr || offset - begins_[i] + size_bytes > segment.size_bytes) return nullptr;
  return static_cast<const char*>(segment.input) + (offset - begins_[i]);
}

void* Concatenation::Output(size_t offset, size_t size_bytes) const {
  if (size_bytes == 0) return nullptr;
  const size_t i = Find(offset);
  const Segment& segment = (*segments_)[i];
  if (segment.output == nullptr || offset - begins_[i] + size_bytes > segment.size_bytes) return nullptr;
  return static_cast<char*>(segment.output) + (offset - begins_[i]);
}

}  // namespace farandole
