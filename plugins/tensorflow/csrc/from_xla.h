// Operations in code that XLA compiles for the CPU: calls from the compiled code, which wait there for the other ranks.
// XLA is reached by the names of C++ functions, which TensorFlow exports but does not promise. So the user has to ask
// for this.
#pragma once

#include <string>

namespace farandole_tensorflow {

// Registers the target "farandole" with XLA. Returns "", or why that is not possible. Once is enough.
std::string UseXla();

}  // namespace farandole_tensorflow
