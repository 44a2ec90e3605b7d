#include "common/text.h"

#include <gtest/gtest.h>

namespace farandole {
namespace {

using Parts = std::vector<std::string>;

TEST(Text, HasPartsBetweenSeparators) {
  EXPECT_EQ(Split("", ','), Parts());
  EXPECT_EQ(Split("one", ','), Parts({"one"}));
  EXPECT_EQ(Split("one, two,,three,", ','), Parts({"one", " two", "", "three"}));
  EXPECT_EQ(Split(",", ','), Parts({""}));
}

TEST(Text, BeginsWithAText) {
  EXPECT_TRUE(StartsWith("tcp:host", "tcp:") && StartsWith("tcp:", "tcp:"));
  EXPECT_FALSE(StartsWith("tc", "tcp:") || StartsWith("unix:tcp:", "tcp:"));
}

TEST(Text, OfAFileThatIsNotThereIsEmpty) {
  EXPECT_EQ(ContentsOf("/proc/there/is/none"), "");
  EXPECT_EQ(ContentsOf("/proc/self/comm").back(), '\n');
}

}  // namespace
}  // namespace farandole
