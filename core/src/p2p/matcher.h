// Matches the messages that arrive with the receives that this rank has posted.
//
//   Post      a receive takes the first arrival that it fits, or waits
//   Arrive    a message takes the first receive that fits it, or waits
//
// A receive fits a message with its key, and of its source if it names one. So messages between two ranks under one key
// are received in the order in which they were sent, and a receive from any source takes what arrived first.
//
// A value without threads or sockets; the Messenger owns it, under its lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "p2p/transfer.h"

namespace farandole {

class Link;

// A message for which no receive is posted yet, or a part of which has still to arrive.
struct Arrival {
  int source = 0;
  DType dtype = DType::kUint8;
  size_t size_bytes = 0;
  Link* link = nullptr;               // on which it arrived; null: sent by this rank itself, or the link has ended
  uint32_t serial = 0;                // of the send, on that link
  std::unique_ptr<std::byte[]> kept;  // the payload (of no bytes, perhaps) or its place; null: it is only announced
  bool is_complete = false;           // `kept` is filled
  bool is_dropped = false;            // nobody wants the payload any more
  TransferPtr receive;                // takes `kept` once it is filled
  TransferPtr local;                  // the send of this rank, while its memory holds the payload
};
using ArrivalPtr = std::shared_ptr<Arrival>;

class Matcher {
 public:
  // Returns the arrival, which waits no longer; null: the receive waits.
  ArrivalPtr Post(const TransferPtr& receive);
  // Returns the receive, which waits no longer; null: the caller may call Keep.
  TransferPtr Arrive(const MessageKey& key, int source);
  void Keep(const MessageKey& key, ArrivalPtr arrival);

  // Returns whether the receive was waiting, which it does no longer.
  bool Cancel(const TransferPtr& receive);
  // Removes and returns the waiting receives that name this source; kAnySource: all that wait.
  std::vector<TransferPtr> TakeReceives(int source);
  // Likewise, those for which this returns true.
  std::vector<TransferPtr> TakeReceives(const std::function<bool(const Transfer&)>& is_taken);
  // Removes the waiting messages for which this returns true.
  void DropArrivals(const std::function<bool(Arrival&)>& is_gone);

  size_t waiting() const;  // receives and messages

 private:
  struct Waiting {  // under one key; in the order of posting, and of arrival
    std::deque<TransferPtr> receives;
    std::deque<ArrivalPtr> arrivals;
  };

  void EraseIfEmpty(std::map<MessageKey, Waiting>::iterator at);

  std::map<MessageKey, Waiting> waiting_;
};

}  // namespace farandole
