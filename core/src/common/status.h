// A Status reports the failure of a function with a code and a message.
//
// Every function that can fail returns a Status; nothing in the core throws across a module border. The code decides
// which Python exception is raised (see bindings/); the message is for the user, and says who failed, in what, where,
// and what to do next. Values are immutable after construction; any thread may read them.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

namespace farandole {

enum class Code : int {
  kOk = 0,
  kInvalid = 1,         // a call that is wrong whatever the other ranks ask for      -> ValueError
  kMismatch = 2,        // ranks disagree about one operation; the job goes on        -> MismatchError
  kPeerLost = 3,        // a rank died or left; this epoch is over                    -> PeerLostError
  kDeadline = 4,        // a live rank did not come in time; this epoch is over       -> DeadlineError
  kNotInitialized = 5,  // before init, after shutdown, or in a forked child          -> NotInitializedError
  kInternal = 6,        // the system refused (memory, descriptors) or a bug of ours  -> FarandoleError
};

inline bool IsKnown(Code code) { return code >= Code::kOk && code <= Code::kInternal; }

class Status {
 public:
  Status() = default;
  Status(Code code, std::string message, uint32_t kinds = 0)
      : code_(code), message_(std::move(message)), kinds_(kinds) {}
  static Status Ok() { return {}; }

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }
  // For kMismatch: a bit 1 << OpKind for each kind of operation that ranks called; 0 if all called the same kind.
  uint32_t kinds() const { return kinds_; }

 private:
  Code code_ = Code::kOk;
  std::string message_;
  uint32_t kinds_ = 0;
};

inline Status Invalid(std::string message) { return {Code::kInvalid, std::move(message)}; }
inline Status Internal(std::string message) { return {Code::kInternal, std::move(message)}; }

// "what: strerror(errno)". REQUIRES: errno still holds the error.
inline Status SystemError(const std::string& what) { return Internal(what + ": " + std::strerror(errno)); }

}  // namespace farandole

// Returns from the enclosing function when `expression` is a Status that is not ok.
#define FRD_RETURN_IF_ERROR(expression)             \
  do {                                              \
    ::farandole::Status frd_status_ = (expression); \
    if (!frd_status_.ok()) return frd_status_;      \
  } while (0)
