// A file that is a complete JSON array after every Append, whatever kills the process: each write takes the place of
// the array's end and brings a new one.
//
//   [\n{...},\n{...}\n]\n
//   [\n{...},\n{...}      <- the next Append writes from here: ,\n{...}\n]\n
//
// A process can be killed within a write, too: between two pages of it. So a write stays within a page, or goes to the
// next one with nothing but blanks before: what may be missing then is the array's end, and those who read traces
// accept that.
// One thread at a time.
#pragma once

#include <cstdint>
#include <string>

#include "common/descriptor.h"
#include "common/status.h"

namespace farandole {

class TraceFile {
 public:
  // Makes or empties the file. kInvalid says why it cannot be.
  Status Open(const std::string& path);
  // Events, with ",\n" between them. kInternal when they cannot be written; what was there before stays.
  Status Append(const std::string& events);

 private:
  Status AppendPiece(size_t padding, const std::string& events);
  Status Write(const std::string& text);

  Descriptor file_;
  std::string path_;
  int64_t end_ = 0;  // where the next event goes
  bool has_events_ = false;
};

}  // namespace farandole
