#include "engine/trace_file.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace farandole {
namespace {

constexpr std::string_view kBegin = "[", kBetween = ",", kEnd = "\n]\n", kBetweenEvents = ",\n";
constexpr size_t kPageBytes = 4096;

// Returns where the last event ends that begins at `from` or later and ends within `room` bytes; `from` if there is
// none.
size_t EndWithin(const std::string& events, size_t from, size_t room) {
  if (events.size() - from <= room) return events.size();
  const size_t end = events.rfind(kBetweenEvents, from + room);
  return end == std::string::npos || end < from ? from : end;
}

size_t EndOfFirst(const std::string& events, size_t from) {
  return std::min(events.find(kBetweenEvents, from), events.size());
}

}  // namespace

Status TraceFile::Open(const std::string& path) {
  path_ = path;
  file_ = Descriptor(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file_.valid()) return Invalid("a timeline cannot be written to '", path, "': ", std::strerror(errno));
  FRD_RETURN_IF_ERROR(Write(Text(kBegin, kEnd)));
  end_ = static_cast<int64_t>(kBegin.size());
  has_events_ = false;
  return Status::Ok();
}

// An append overwrites the end of the array and writes it again behind, so the file is a whole array after every write.
// Spaces fill a page whose rest is too short for the next event.
Status TraceFile::Append(const std::string& events) {
  for (size_t from = 0; from < events.size();) {
    const size_t around = kBetweenEvents.size() + kEnd.size();
    const size_t left = kPageBytes - static_cast<size_t>(end_) % kPageBytes;
    size_t padding = 0, end = left > around ? EndWithin(events, from, left - around) : from;
    if (end == from) {
      padding = left;
      end = EndWithin(events, from, kPageBytes - around);
    }
    if (end == from) end = EndOfFirst(events, from);  // one that is longer than a page
    FRD_RETURN_IF_ERROR(AppendPiece(padding, events.substr(from, end - from)));
    from = end + kBetweenEvents.size();
  }
  return Status::Ok();
}

Status TraceFile::AppendPiece(size_t padding, const std::string& events) {
  const std::string text = Text(std::string(padding, ' '), has_events_ ? kBetween : "", "\n", events);
  FRD_RETURN_IF_ERROR(Write(Text(text, kEnd)));
  end_ += static_cast<int64_t>(text.size());
  has_events_ = true;
  return Status::Ok();
}

Status TraceFile::Write(const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t written =
        pwrite(file_.get(), text.data() + done, text.size() - done, end_ + static_cast<int64_t>(done));
    if (written > 0) {
      done += static_cast<size_t>(written);
      continue;
    }
    if (written < 0 && errno == EINTR) continue;
    const std::string why = written < 0 ? std::strerror(errno) : "nothing was written";
    // A partial write would leave no complete array, so this restores the former end.
    if (ftruncate(file_.get(), end_) == 0) {
      const ssize_t ended = pwrite(file_.get(), kEnd.data(), kEnd.size(), end_);
      (void)ended;  // there was room for it before
    }
    return Internal("the timeline '", path_, "' cannot be written any further: ", why);
  }
  return Status::Ok();
}

}  // namespace farandole
