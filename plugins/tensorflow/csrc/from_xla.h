// Operations inside of what XLA compiles for the CPU: calls out of the compiled code, which wait for the other ranks
// where they stand. XLA is asked for by the names of C++ functions, which TensorFlow exports but does not promise, so
// this is for those who ask for it.
#pragma once

#include <string>

namespace farandole_tensorflow {

// Makes the target "farandole" known to XLA. "" or why that cannot be. Once is enough.
std::string UseXla();

}  // namespace farandole_tensorflow
