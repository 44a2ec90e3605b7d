#include "common/status.h"

#include <cerrno>
#include <cstring>

namespace farandole {

Status SystemError(const std::string& what) { return Internal(what + ": " + std::strerror(errno)); }

}  // namespace farandole
