// The vectors of FIPS 180-4 (as published by NIST's CAVP) and RFC 4231.
#include "common/sha256.h"

#include <gtest/gtest.h>

#include <string>

namespace farandole {
namespace {

std::string Hex(const Digest& digest) {
  std::string text;
  for (const uint8_t byte : digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

std::string Sha(const std::string& message) { return Hex(Sha256(message.data(), message.size())); }

std::string Hmac(const std::string& key, const std::string& data) {
  return Hex(HmacSha256(key.data(), key.size(), data.data(), data.size()));
}

TEST(Sha256, OfNothing) {
  EXPECT_EQ(Sha(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Hex(Sha256(nullptr, 0)), Sha(""));
}

TEST(Sha256, OfOneBlock) { EXPECT_EQ(Sha("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"); }

TEST(Sha256, OfTwoBlocks) {
  EXPECT_EQ(Sha("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST(Sha256, OfFourBlocksOfText) {
  EXPECT_EQ(
      Sha("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrst"
          "nopqrstu"),
      "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
}

TEST(Sha256, OfAMillionBytes) {
  EXPECT_EQ(Sha(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, LengthsAroundABlockAllDiffer) {
  std::string last;
  for (size_t size = 54; size <= 66; ++size) {
    const std::string digest = Sha(std::string(size, '\0'));
    EXPECT_NE(digest, last);
    last = digest;
  }
}

TEST(HmacSha256, Rfc4231Case1) {
  EXPECT_EQ(Hmac(std::string(20, '\x0b'), "Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
}

TEST(HmacSha256, Rfc4231Case2KeyShorterThanTheDigest) {
  EXPECT_EQ(Hmac("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

TEST(HmacSha256, Rfc4231Case3) {
  EXPECT_EQ(Hmac(std::string(20, '\xaa'), std::string(50, '\xdd')),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
}

TEST(HmacSha256, Rfc4231Case4) {
  std::string key;
  for (char c = 1; c <= 25; ++c) key += c;
  EXPECT_EQ(Hmac(key, std::string(50, '\xcd')), "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
}

TEST(HmacSha256, Rfc4231Case5TruncatedTo128Bits) {
  EXPECT_EQ(Hmac(std::string(20, '\x0c'), "Test With Truncation").substr(0, 32), "a3b6167473100ee06e0c796c2955552b");
}

TEST(HmacSha256, Rfc4231Case6KeyLongerThanABlock) {
  EXPECT_EQ(Hmac(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(HmacSha256, Rfc4231Case7KeyAndDataLongerThanABlock) {
  EXPECT_EQ(
      Hmac(std::string(131, '\xaa'),
           "This is a test using a larger than block-size key and a larger than block-size data. The key needs to be "
           "hashed before being used by the HMAC algorithm."),
      "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

TEST(EqualConstantTime, SeesADifferenceInEveryByte) {
  const Digest digest = Sha256("abc", 3);
  EXPECT_TRUE(EqualConstantTime(digest, digest));
  for (size_t i = 0; i < digest.size(); ++i) {
    Digest other = digest;
    other[i] ^= 0x80;
    EXPECT_FALSE(EqualConstantTime(digest, other)) << i;
  }
}

TEST(RandomBytes, FillsTheWholeBufferDifferentlyEachTime) {
  std::string first(4096, '\0'), second(4096, '\0');
  ASSERT_TRUE(RandomBytes(first.data(), first.size()).ok());
  ASSERT_TRUE(RandomBytes(second.data(), second.size()).ok());
  EXPECT_NE(first, second);
  EXPECT_NE(first.substr(4064), std::string(32, '\0'));
}

}  // namespace
}  // namespace farandole
