#include "engine/trace_file.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

namespace farandole {
namespace {

constexpr char kBegin[] = "[", kBetween[] = ",", kEnd[] = "\n]\n";

}  // namespace

Status TraceFile::Open(const std::string& path) {
  path_ = path;
  file_ = Descriptor(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file_.valid()) return Invalid("a timeline cannot be written to '" + path + "': " + std::strerror(errno));
  FRD_RETURN_IF_ERROR(Write(std::string(kBegin) + kEnd));
  end_ = static_cast<int64_t>(std::strlen(kBegin));
  has_events_ = false;
  return Status::Ok();
}

Status TraceFile::Append(const std::string& events) {
  if (events.empty()) return Status::Ok();
  const std::string text = std::string(has_events_ ? kBetween : "") + "\n" + events;
  FRD_RETURN_IF_ERROR(Write(text + kEnd));
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
    // A part of it would leave no array: what was complete before is so again.
    if (ftruncate(file_.get(), end_) == 0) {
      const ssize_t ended = pwrite(file_.get(), kEnd, std::strlen(kEnd), end_);
      (void)ended;  // there was room for it before
    }
    return Internal("the timeline '" + path_ + "' cannot be written any further: " + why);
  }
  return Status::Ok();
}

}  // namespace farandole
