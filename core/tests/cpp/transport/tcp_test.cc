// Behaviour of TCP links alone; link_suite_test.cc tests what all links have in common.
#include "transport/link.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>

#include "transport/link_pairs.h"

namespace farandole::tests {
namespace {

// Receives one byte or an error within 10 s.
Status RecvByte(Link* link, char* byte) {
  pollfd wait{link->descriptor(), POLLIN, 0};
  if (poll(&wait, 1, 10000) != 1) return Internal("nothing came in time");
  size_t moved = 0;
  FRD_RETURN_IF_ERROR(link->TryRecv(byte, 1, &moved));
  return moved == 1 ? Status::Ok() : Internal("readable, but nothing moved");
}

void RunInChild(void (*action)(LinkPair*), LinkPair* pair) {
  const pid_t child = fork();
  if (child == 0) {
    action(pair);
    _exit(0);
  }
  waitpid(child, nullptr, 0);
}

TEST(TcpLink, AForkedChildThatDropsItsCopyLeavesTheConnectionOpen) {
  LinkPair pair = TcpLinks();
  RunInChild([](LinkPair* copy) { copy->first.reset(); }, &pair);
  size_t moved = 0;
  ASSERT_TRUE(pair.first->TrySend("x", 1, &moved).ok());
  char byte = 0;
  EXPECT_TRUE(RecvByte(pair.second.get(), &byte).ok());
  EXPECT_EQ(byte, 'x');
}

TEST(TcpLink, ClosingIsSeenAlthoughAForkedChildHoldsACopy) {
  LinkPair pair = TcpLinks();
  int hold[2];
  ASSERT_EQ(pipe(hold), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte;
    close(hold[1]);
    _exit(static_cast<int>(read(hold[0], &byte, 1)));
  }
  pair.first.reset();
  char byte;
  EXPECT_EQ(RecvByte(pair.second.get(), &byte).code(), Code::kPeerLost);
  close(hold[0]);
  close(hold[1]);
  waitpid(child, nullptr, 0);
}

TEST(TcpLink, AnErrorOfThisProcessIsNotBlamedOnThePeer) {
  const std::unique_ptr<Link> link = MakeTcpLink(Descriptor(-1), "rank 1");
  char byte;
  size_t moved;
  EXPECT_EQ(link->TryRecv(&byte, 1, &moved).code(), Code::kInternal);
}

}  // namespace
}  // namespace farandole::tests
