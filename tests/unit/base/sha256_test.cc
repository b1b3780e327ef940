#include "base/sha256.h"

#include <gtest/gtest.h>

#include <string>

namespace headroom {
namespace {

struct Vector {
  std::string message;
  const char* hex;
};

// NIST's examples for SHA-256 (FIPS 180-4 and the Cryptographic Toolkit).
TEST(Sha256Test, AgreesWithNistsVectors) {
  const Vector vectors[] = {
      {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
      {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
       "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
      {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmn"
       "o"
       "pqrsmnopqrstnopqrstu",
       "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
      {std::string(1'000'000, 'a'),
       "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
  };
  for (const Vector& vector : vectors) {
    EXPECT_EQ(Sha256Text(vector.message), std::string("sha256:") + vector.hex);
  }
}

// Digests of 55, 56, 63, 64, 65 and 119 letters from Python's hashlib: the padding's edges.
TEST(Sha256Test, PadsAtEveryEdgeOfABlock) {
  const std::pair<size_t, const char*> cases[] = {
      {55, "d5e285683cd4efc02d021a5c62014694958901005d6f71e89e0989fac77e4072"},
      {56, "04c26261370ee7541549d16dee320c723e3fd14671e66a099afe0a377c16888e"},
      {63, "75220b47218278e656f2013bb8f0c455a25eaf01e86c64924e9d48d89776d6f2"},
      {64, "7ce100971f64e7001e8fe5a51973ecdfe1ced42befe7ee8d5fd6219506b5393c"},
      {65, "9537c5fdf120482f7d58d25e9ed583f52c02b4e304ea814db1633ad565aed7e9"},
      {119, "000b48d4edf0fa7bee3c6236ecd2785baa5db4eeb8bb54341b029e0d9fa5fb0c"},
  };
  for (const auto& [size, hex] : cases) {
    EXPECT_EQ(Sha256Text(std::string(size, 'x')), std::string("sha256:") + hex) << size;
  }
}

TEST(Sha256Test, DoesNotDependOnThePieces) {
  const std::string message = std::string(200, 'q') + "end";
  for (size_t piece = 1; piece < 140; piece += 7) {
    Sha256 hash;
    for (size_t i = 0; i < message.size(); i += piece) {
      hash.Update(std::string_view(message).substr(i, piece));
    }
    EXPECT_EQ(hash.FinishText(), Sha256Text(message)) << piece;
  }
}

TEST(Sha256Test, TellsListsOfTextsApart) {
  Sha256 first;
  first.UpdateText("ab");
  first.UpdateText("c");
  Sha256 second;
  second.UpdateText("a");
  second.UpdateText("bc");
  EXPECT_NE(first.FinishText(), second.FinishText());
}

TEST(Sha256Test, KnowsItsOwnForm) {
  const std::string good = Sha256Text("x");
  EXPECT_TRUE(IsSha256Text(good));
  EXPECT_FALSE(IsSha256Text(good + "0"));
  EXPECT_FALSE(IsSha256Text(good.substr(0, good.size() - 1)));
  EXPECT_FALSE(IsSha256Text("SHA256:" + good.substr(7)));
  EXPECT_FALSE(IsSha256Text(good.substr(0, good.size() - 1) + "G"));
  EXPECT_FALSE(IsSha256Text(""));
}

}  // namespace
}  // namespace headroom
