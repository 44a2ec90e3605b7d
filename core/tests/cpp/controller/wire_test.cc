// Every message is decoded as it was encoded, and is refused if part of it is missing. The structs list their fields
// themselves (common/wire.h), so a new field is tested without a line here.
#include <gtest/gtest.h>

#include <random>

#include "controller/messages.h"
#include "world/peer_info.h"
#include "world/rendezvous/messages.h"

namespace farandole {
namespace {

// Visits one, and makes something that a rank may send of it.
class Filler {
 public:
  explicit Filler(unsigned seed) : random_(seed) {}

  template <typename T>
  void operator()(const char*, T& field) {
    Fill(&field);
  }

 private:
  template <typename T>
  void Fill(T* value) {
    if constexpr (std::is_enum_v<T>) {
      *value = static_cast<T>(random_() % 2);
    } else if constexpr (std::is_arithmetic_v<T>) {
      *value = static_cast<T>(random_() % 100);
    } else {
      VisitFields(*this, *value);
    }
  }
  void Fill(RendezvousMessage::Kind* kind) {
    *kind = static_cast<RendezvousMessage::Kind>(RendezvousMessage::kPeerInfo + random_() % 5);
  }
  void Fill(LogKind* kind) { *kind = static_cast<LogKind>(1 + random_() % 6); }
  void Fill(std::string* text) { text->assign(random_() % 9, 'x'); }
  template <typename T>
  void Fill(std::vector<T>* values) {
    values->resize(1 + random_() % 3);
    for (T& value : *values) Fill(&value);
  }
  template <typename Key, typename T>
  void Fill(std::map<Key, T>* values) {
    for (size_t left = random_() % 3; left > 0; --left) Fill(&(*values)[static_cast<Key>(random_() % 50)]);
  }
  template <typename First, typename Second>
  void Fill(std::pair<First, Second>* both) {
    Fill(&both->first);
    Fill(&both->second);
  }

  std::mt19937 random_;
};

template <typename T>
class WireTest : public testing::Test {};

using Structs =
    testing::Types<TensorSpec, Signature, Description, Assignment, Error, Abort, Completion, Closing, Leave, Report,
                   LogItem, LogItems, Question, Absence, Answer, Join, IdMessage, RendezvousMessage, PeerInfo>;
TYPED_TEST_SUITE(WireTest, Structs);

template <typename T>
Bytes BytesOf(const T& value) {
  ByteWriter writer;
  Encode(&writer, value);
  return writer.Take();
}

TYPED_TEST(WireTest, ComesBackWholeAndNotInPart) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    TypeParam sent;
    Filler fill(seed);
    VisitFields(fill, sent);
    const Bytes bytes = BytesOf(sent);
    ByteReader reader(bytes);
    const auto received = Decode<TypeParam>(&reader);
    EXPECT_TRUE(reader.AtEnd());
    EXPECT_EQ(BytesOf(received), bytes);
    for (size_t size = 0; size < bytes.size(); ++size) {
      ByteReader part(bytes.data(), size);
      Decode<TypeParam>(&part);
      ASSERT_FALSE(part.ok()) << size << " of " << bytes.size() << " bytes";
    }
  }
}

}  // namespace
}  // namespace farandole
