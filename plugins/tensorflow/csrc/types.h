// Element types: TensorFlow's numbers and the core's.
#pragma once

#include <cstdint>

namespace farandole_tensorflow {

// Convert a TF_DataType to the number of farandole.h, and back; -1 where there is none.
int32_t CoreTypeOf(int tf_type);
int TfTypeOf(int32_t core_type);

// All types that the core knows, as an operation's definition lists them.
extern const char* const kTypes;

}  // namespace farandole_tensorflow
