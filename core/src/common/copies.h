// Is this library in the process twice?
//
// Two copies would each believe that they are the process's only core: two engines that bind the same meeting name, two
// loops, objects of one handed to the other. So the second is refused when it is loaded, with both paths, which is what
// its user needs to remove one. Asks the dynamic linker; any thread may call.
#pragma once

#include <string>

namespace farandole {

// The file of the shared object (or program) that holds this code.
std::string PathOfThisCopy();

// The file of a loaded object, other than the one that holds this code, in which `symbol` is found; "" where there is
// none.
std::string PathOfOtherCopy(const char* symbol);

}  // namespace farandole
