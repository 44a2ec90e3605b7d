#include "common/dynamic_library.h"

#include <gtest/gtest.h>

namespace farandole {
namespace {

TEST(Copies, ThisCopyIsTheTestProgram) {
  EXPECT_NE(PathOfThisCopy(), "");
  EXPECT_EQ(PathOfThisCopy().find("libc"), std::string::npos);
}

TEST(Copies, ASymbolOfAnotherObjectIsFoundThere) {
  EXPECT_NE(PathOfOtherCopy("gnu_get_libc_version").find("libc"), std::string::npos);
}

TEST(Copies, ASymbolOfNoOtherObjectIsNotFound) {
  EXPECT_EQ(PathOfOtherCopy("frd_get_api"), "");
  EXPECT_EQ(PathOfOtherCopy("frd_no_such_symbol"), "");
}

}  // namespace
}  // namespace farandole
