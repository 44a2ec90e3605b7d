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
#include <type_traits>
#include <utility>

namespace farandole {

enum class Code : int {
  kOk = 0,
  kInvalid = 1,         // a call that is wrong whatever the other ranks ask for      -> ValueError
  kMismatch = 2,        // ranks disagree about one operation; the job goes on, or    -> MismatchError
                        // about how many there are; this epoch is over
  kPeerLost = 3,        // a rank died or left; this epoch is over                    -> PeerLostError
  kDeadline = 4,        // a live rank did not come in time; this epoch is over       -> DeadlineError
  kNotInitialized = 5,  // before init, after shutdown, or in a forked child          -> NotInitializedError
  kInternal = 6,        // the system refused (memory, descriptors) or a bug of ours  -> FarandoleError
  kDeadlock = 7,        // live ranks wait for each other; this epoch is over         -> DeadlineError
};

inline bool IsKnown(Code code) { return code >= Code::kOk && code <= Code::kDeadlock; }

// The parts of a message one after the other, numbers in decimal: Text("rank ", 3, " is late").
template <typename... Parts>
std::string Text(const Parts&... parts) {
  std::string text;
  const auto append = [&text](const auto& part) {
    if constexpr (std::is_arithmetic_v<std::decay_t<decltype(part)>>) {
      text += std::to_string(part);
    } else {
      text += part;
    }
  };
  (append(parts), ...);
  return text;
}

class Status {
 public:
  Status() = default;
  // The message is its parts one after the other, see Text.
  template <typename... Parts>
  Status(Code code, const Parts&... parts) : code_(code), message_(Text(parts...)) {}
  static Status Ok() { return {}; }
  static Status OfKinds(Code code, const std::string& message, uint32_t kinds) {
    Status status(code, message);
    status.kinds_ = kinds;
    return status;
  }

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

template <typename... Parts>
Status Invalid(const Parts&... parts) {
  return {Code::kInvalid, parts...};
}
template <typename... Parts>
Status Internal(const Parts&... parts) {
  return {Code::kInternal, parts...};
}

// "what: strerror(errno)". REQUIRES: errno still holds the error.
inline Status SystemError(const std::string& what) { return Internal(what, ": ", std::strerror(errno)); }

}  // namespace farandole

// Returns from the enclosing function when `expression` is a Status that is not ok.
#define FRD_RETURN_IF_ERROR(expression)             \
  do {                                              \
    ::farandole::Status frd_status_ = (expression); \
    if (!frd_status_.ok()) return frd_status_;      \
  } while (0)
